"""The extractors that a config may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.stages.ingest import extractors
from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.warcs import TEXT, http, one

BODY = f"""<html><body><nav><a href=/>Start</a> <a href=/b>Other pages</a></nav><article><h1>A heading</h1>
<p>{TEXT} {TEXT} {TEXT}</p><p>{TEXT} {TEXT}</p></article><footer>Imprint</footer></body></html>"""


@pytest.mark.parametrize("name", sorted(extractors.EXTRACTORS))
def test_main_text(tmp_path: Path, name: str) -> None:
    if lacking := extractors.missing_extractor(name):
        pytest.skip(lacking)
    found = one(tmp_path, http(BODY.encode()), extractor=name)
    assert isinstance(found, Page)
    assert found.text.count(TEXT) == 5 and "Other pages" not in found.text
    every = one(tmp_path, http(BODY.encode()), extractor=name, main_content=False)
    assert isinstance(every, Page) and "Other pages" in every.text


@pytest.mark.parametrize("name", sorted(extractors.EXTRACTORS))
def test_a_page_that_is_too_hard_has_a_reason(tmp_path: Path, name: str) -> None:
    if lacking := extractors.missing_extractor(name):
        pytest.skip(lacking)
    deep = one(tmp_path, http(b"<div>" * 15_000 + BODY.encode()), extractor=name)
    assert not isinstance(deep, Page) and deep.reason == "too_deep"


def test_code_keeps_its_white_space(tmp_path: Path) -> None:
    code = "for each in all:\r\n    print(each)\n\n\treturn\x00"
    found = one(
        tmp_path, http(f"<p>{TEXT} {TEXT}</p><pre>{code}</pre><p>{TEXT} {TEXT}</p>".encode()), main_content=False
    )
    assert (
        isinstance(found, Page)
        and "\n\nfor each in all:\n    print(each)\n\n\treturn\n\n" in found.text
        and "\x00" not in found.text
    )


@pytest.mark.parametrize("name", sorted(set(extractors.EXTRACTORS) - {"fast"}))
def test_code_of_a_library_keeps_its_indentation(tmp_path: Path, name: str) -> None:
    """And other lines lose theirs: libraries indent lists and write white space of the source."""
    if lacking := extractors.missing_extractor(name):
        pytest.skip(lacking)
    code = "if a  <\tb:\n    c\n      d"
    pre = f"<pre>{code.replace('<', '&lt;')}</pre>"
    page = f"<article><p>{TEXT} {TEXT}</p>{pre}<p>&nbsp; x&nbsp;&nbsp; y {TEXT}</p><p>{TEXT} {TEXT} {TEXT} so&shy;on</p></article>"
    found = one(tmp_path, http(page.encode()), extractor=name)
    assert isinstance(found, Page) and f"\n{code}\n" in found.text and found.text.endswith("soon")
    assert [line for line in found.text.split("\n") if line[:1].isspace()] == [
        "    c",
        "      d",
    ] and "x y" in found.text


def test_one_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extractors.importlib.util, "find_spec", lambda name: None)
    assert extractors.missing_extractor("trafilatura").startswith(
        "ingest.extract.extractor is trafilatura, which is not installed: pip install"
    )
    assert not extractors.missing_extractor("resiliparse")


def test_many_blocks_are_counted(tmp_path: Path) -> None:
    many = one(tmp_path, http(b"<p>x" * 60_000), extractor="fast", max_body_bytes=20_000_000)
    assert not isinstance(many, Page) and (many.reason, many.detail) == ("too_complex", "60,000 blocks, at most 50,000")
