"""crawl.render on the real pages and on a few real modules."""

from __future__ import annotations

import argparse
import gzip
import html
import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from hypothesis import given
from hypothesis import strategies as st
from resiliparse.extract.html2text import extract_plain_text

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.crawl import document, modules, own_pages, render, topics
from crawl2llm.stages.crawl.answers import encode_chunked, record_id
from crawl2llm.stages.crawl.settings import RenderSettings


class Infinity:
    """A default value whose repr holds characters that HTML escapes."""

    def __repr__(self) -> str:
        return "<infinity & more>"


MODULES = ("bisect", "sys", "textwrap")
SETTINGS = {
    "files": 2,
    "standard_library": False,
    "packages": [*MODULES],
    "max_pages_per_package": 10,
    "max_page_kilobytes": 1000,
    "max_megabytes": 10,
    "module_seconds": 60,
}


def run(folder: Path, workers: int, **changed: Any) -> Manifest:
    folder.mkdir()
    manifest = Manifest(step="crawl.render", fingerprint="test")
    args = argparse.Namespace(manifest=folder / "manifest.json")
    # A copy is not checked: a limit below what a config takes is reached sooner.
    settings = RenderSettings.model_validate({**SETTINGS, "workers": workers}).model_copy(update=changed)
    files = render.body(args, settings, manifest)
    return manifest.write(args.manifest, files)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return run(tmp_path_factory.mktemp("crawl") / "first", workers=2)


@pytest.fixture(scope="module")
def gold(crawl: Manifest) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in crawl.file("gold.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["url"] for row in rows}) == len(rows)
    return {row["url"]: row for row in rows}


def records(manifest: Manifest) -> list[dict[str, Any]]:
    """Every record of the crawl, read by FastWARC, with its HTTP part parsed."""
    found = []
    for name in sorted(manifest.files):
        if name.endswith(".warc.gz"):
            with manifest.file(name).open("rb") as stream:
                for record in ArchiveIterator(stream, record_types=WarcRecordType.any_type, parse_http=True):
                    headers = record.http_headers
                    found.append(
                        {
                            "file": name,
                            "type": str(record.headers["WARC-Type"]),
                            "id": record.headers["WARC-Record-ID"],
                            "url": record.headers.get("WARC-Target-URI"),
                            "warc": dict(record.headers),
                            "status": getattr(headers, "status_code", None),
                            "http": dict(headers) if headers is not None else {},
                            "body": record.reader.read(),
                        }
                    )
    return found


@pytest.fixture(scope="module")
def responses(crawl: Manifest) -> dict[str, dict[str, Any]]:
    return {record["url"]: record for record in records(crawl) if record["type"] == "response"}


def test_same_bytes_whatever_the_environment(crawl: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    again = run(tmp_path / "second", workers=1)
    assert again.path is not None and crawl.path is not None
    assert again.path.read_bytes() == crawl.path.read_bytes()


def test_a_package_that_is_not_installed_is_an_error_unless_the_default_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = r"crawl.render.packages names 'nunpy', .* \(did you mean 'numpy'\?\): give its import name"
    with pytest.raises(InputError, match=words):
        run(tmp_path / "misspelt", workers=1, packages=["bisect", "nunpy"])
    package = modules.package_modules
    monkeypatch.setattr(modules, "package_modules", lambda name: [] if name == "nltk" else package(name))
    made = run(tmp_path / "default", workers=1, packages=["bisect", "nltk"])
    assert made.counts["dropped"]["not_installed"] == 1
    assert made.summary["notes"] == ["crawl.render.packages has packages that are not installed: nltk"]


def test_counts(crawl: Manifest, gold: dict[str, Any], responses: dict[str, Any]) -> None:
    assert crawl.counts["in"] == len(gold) + len(MODULES)
    assert crawl.counts["kept"] == len(responses) == len(gold) + len(MODULES)
    assert not any(crawl.counts["dropped"].values()) and "notes" not in crawl.summary
    assert sum(crawl.summary["records_by_file"].values()) == len(responses) + 2


def test_every_record_is_whole(crawl: Manifest) -> None:
    found = records(crawl)
    kinds = Counter(record["type"] for record in found)
    assert kinds == {"warcinfo": 2, "response": crawl.counts["kept"], "request": 1, "metadata": 1}
    assert len({record["id"] for record in found}) == len(found)
    for record in found:
        assert record["id"] == f"<{record_id(record['type'], record['url'] or record['warc']['WARC-Filename'])}>"
        assert record["warc"]["WARC-Date"] == "2026-01-15T12:00:00Z"
    for name in crawl.files:
        if name.endswith(".warc.gz"):
            data = crawl.file(name).read_bytes()
            # FastWARC's own check of the digests, and one gzip member a record.
            with crawl.file(name).open("rb") as stream:
                verified = [record.verify_block_digest() for record in ArchiveIterator(stream, parse_http=False)]
            assert verified and all(verified)
            members = data.split(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")
            assert len(members) - 1 == sum(record["file"] == name for record in found)
            assert gzip.decompress(data).startswith(b"WARC/1.1\r\n")


def test_languages_and_scripts(gold: dict[str, dict[str, Any]]) -> None:
    prose = [row for row in gold.values() if row["variant"] == "original"]
    assert len(gold) >= 60 and len({row["language"] for row in prose}) >= 14
    scripts: Counter[str] = Counter()
    for row in prose:
        letters = [c for c in row["text"] if c.isalpha()]
        scripts[Counter(unicodedata.name(c).split()[0] for c in letters).most_common(1)[0][0]] += 1
        assert len(row["text"].split()) >= 130 or len(letters) >= 350, row["url"]
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "CJK", "HIRAGANA", "HANGUL"} <= set(scripts)


def test_charsets_decode_to_the_gold_text(gold: dict[str, dict[str, Any]], responses: dict[str, Any]) -> None:
    declared = Counter()
    for url, row in gold.items():
        if row["variant"] in {"chunked", "gzip", "pdf", "png", "empty", "redirect"}:
            continue
        record = responses[url]
        page = html.unescape(
            record["body"].decode(row["charset"], "strict" if row["variant"] != "truncated" else "ignore")
        )
        assert all(line in page for line in row["text"].split("\n")), url
        in_header, in_meta = "charset=" in record["http"]["Content-Type"], "<meta charset" in page
        assert (in_header, in_meta) == (row["declared"] in {"header", "both"}, row["declared"] in {"meta", "both"})
        declared[row["charset"] == "utf-8", row["declared"]] += 1
    assert all(declared[False, where] for where in ("header", "meta", "none"))
    assert len({row["charset"] for row in gold.values()}) >= 12


def shingles(text: str) -> set[tuple[str, ...]]:
    """Runs of five words, or of five characters where the language writes no spaces."""
    words = text.lower().split() if len(text.split()) > 100 else list(text)
    return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}


def test_duplicates_are_what_they_say(gold: dict[str, dict[str, Any]]) -> None:
    seen = Counter()
    for row in gold.values():
        if row["variant"] in {"exact_duplicate", "near_duplicate", "partial_overlap"}:
            one, two = shingles(row["text"]), shingles(gold[row["duplicate_of"]]["text"])
            jaccard = len(one & two) / len(one | two)
            low, high = {"exact_duplicate": (1, 1), "near_duplicate": (0.8, 0.999), "partial_overlap": (0.2, 0.7)}[
                row["variant"]
            ]
            assert low <= jaccard <= high, (row["url"], jaccard)
            seen[row["variant"]] += 1
    assert seen["exact_duplicate"] >= 5 and seen["near_duplicate"] >= 8 and seen["partial_overlap"] >= 1


def test_broken_and_coded_answers(gold: dict[str, dict[str, Any]], responses: dict[str, dict[str, Any]]) -> None:
    by_variant = {row["variant"]: responses[url] for url, row in gold.items()}
    assert by_variant["redirect"]["status"] == 301 and by_variant["redirect"]["http"]["Location"] in gold
    assert by_variant["not_found"]["status"] == 404
    assert by_variant["empty"]["body"] == b""
    assert int(by_variant["truncated"]["http"]["Content-Length"]) > len(by_variant["truncated"]["body"])
    truncated = next(row for row in gold.values() if row["variant"] == "truncated")
    assert 0 < len(truncated["text"]) < len(gold[truncated["duplicate_of"]]["text"])
    assert by_variant["pdf"]["body"].startswith(b"%PDF") and by_variant["png"]["body"].startswith(b"\x89PNG")
    page = gzip.decompress(by_variant["gzip"]["body"]).decode()
    assert "<article" in page and by_variant["gzip"]["http"]["Content-Encoding"] == "gzip"
    assert by_variant["chunked"]["http"]["Transfer-Encoding"] == "chunked"
    assert "Content-Length" not in by_variant["chunked"]["http"]
    assert by_variant["chunked"]["body"].endswith(b"0\r\n\r\n")


def test_documentation_keeps_its_lines_after_extraction(responses: dict[str, dict[str, Any]]) -> None:
    page = responses["https://textwrap.docs.demo.example/textwrap.html"]["body"].decode()
    lines = [line for line in extract_plain_text(page, main_content=True).split("\n") if line.strip()]
    at = lines.index("dedent(text)")
    assert lines[at + 1] == "Remove any common leading whitespace from every line in `text`."
    assert "docs.demo.example" not in lines and not any("\xa0" in line for line in lines)


def test_each_package_has_a_host_of_its_own(responses: dict[str, dict[str, Any]]) -> None:
    assert {f"https://{module}.docs.demo.example/{module}.html" for module in MODULES} <= set(responses)
    assert (
        document.page_url("huggingface_hub.utils")
        == "https://huggingface-hub.docs.demo.example/huggingface_hub.utils.html"
    )
    page = responses["https://textwrap.docs.demo.example/textwrap.html"]["body"].decode()
    links = re.findall(r'href="([^"#]+\.html)', page)
    assert all(link.startswith(("https://", "/textwrap")) for link in links), links
    assert "https://re.docs.demo.example/re.html" in links


def test_a_signature_is_escaped_once() -> None:
    class Queue:
        """Items that are &lt; others go first."""

        def __init__(self, less: object = Infinity(), high: bool = 2 > 1) -> None:
            """Compares by `<`."""

    page = document.HTMLDoc().document(Queue, "Queue")
    assert "less: 'object' = &lt;infinity &amp; more&gt;" in re.sub(r"</?a[^>]*>", "", page), page
    assert "&amp;lt;infinity" not in page and page.count("&amp;lt; others") == 1 and "by `&lt;`" in page


def test_pages_show_one_folder_whatever_the_code_is_in(tmp_path: Path) -> None:
    """Pages of cgi and others show PYTHONPATH, as documents of the demo since its first run."""
    shown = dict(map(tuple, modules.path_replacements(tmp_path)))
    assert shown[modules.process_environment(tmp_path)["PYTHONPATH"]] == shown[str(ROOT)] == "/srv/demo"


def test_nothing_of_this_machine_is_left(responses: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for module in MODULES:
        page = responses[f"https://{module}.docs.demo.example/{module}.html"]["body"].decode()
        for old, _ in modules.path_replacements(tmp_path):
            assert old not in page
        assert not document.ADDRESS.search(page.replace("0x…", "")) and "file:" not in page


def test_limits_are_counted(tmp_path: Path) -> None:
    found = run(
        tmp_path / "small", workers=1, packages=["textwrap", "json"], max_pages_per_package=2, max_page_kilobytes=10
    )
    dropped = found.counts["dropped"]
    assert dropped["package_limit"] == 3 and dropped["page_too_large"] >= 1
    found = run(tmp_path / "none", workers=1, packages=["json"], max_megabytes=0)
    assert found.counts["dropped"]["size_limit"] == 5


@pytest.mark.slow  # seconds
def test_a_module_that_dies_or_hangs_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real package whose modules exit, kill their process, wait for ever, print, or read the closed stdin."""
    package = tmp_path / "troublesome"
    package.mkdir()
    sources = {
        "__init__": '"""Trouble."""',
        "dies": "import os\nos.abort()",
        "exits": "raise SystemExit(3)",
        "fine": '"""Still here."""\nprint("noise")',
        "hangs": "import threading\nthreading.Event().wait()",
        "reads": '"""Reads."""\nassert input.__name__ == "input"\nimport sys\nassert sys.stdin.read() == ""',
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    batches, over, absent = modules.module_batches(False, ["troublesome"], 100)
    assert (over, absent) == (0, []) and batches[0].modules[1] == "troublesome.dies"
    environment = modules.process_environment
    monkeypatch.setattr(
        modules,
        "process_environment",
        lambda home: environment(home) | {"PYTHONPATH": f"{environment(home)['PYTHONPATH']}:{tmp_path}"},
    )
    rows = {row["module"]: row.get("error", "ok") for _, row in modules.render_modules(batches, 10**6, 3.0, 1)}
    assert rows == {
        "troublesome": "ok",
        "troublesome.dies": "crashed",
        "troublesome.exits": "import_failed",
        "troublesome.fine": "ok",
        "troublesome.hangs": "timed_out",
        "troublesome.reads": "ok",
    }


def test_dangerous_modules_are_not_touched() -> None:
    names = modules.standard_library()
    assert len(names) > 300 and {"json.decoder", "bisect", "email.message"} <= set(names)
    assert not {"antigravity", "this", "idlelib", "test"} & {name.split(".")[0] for name in names}
    assert not any(part.startswith("_") or part in modules.BLOCKED_NAMES for name in names for part in name.split("."))


def test_curated(crawl: Manifest) -> None:
    rows = [json.loads(line) for line in crawl.file("curated.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == crawl.summary["curated_documents"] > 50
    assert all(set(row) == {"id", "text", "title", "url"} and row["text"] for row in rows)
    lines = [line for row in rows for line in row["text"].split("\n")]
    assert not any(line.startswith(("****", "====", "-[")) for line in lines)


def test_plain_unwraps_prose_and_keeps_code() -> None:
    given_text = "Title\n*****\n\nThe *first* line\nand the second. [1]\n\n   x = 1\n   y = 2\n"
    assert topics.strip_markup(given_text) == "Title\n\nThe first line and the second.\n\n   x = 1\n   y = 2"
    assert topics.strip_markup("name()\n\n   Called when\n   it ends.\n") == "name()\n\nCalled when it ends."


def test_variants_name_what_is_wrong() -> None:
    originals = {"en/tides": own_pages.read_pages()[0]}
    with pytest.raises(InputError, match="no page 'en/none'; there are en/tides"):
        own_pages.variant_of(originals, {"variant": "exact_duplicate", "of": "en/none", "slug": "x"})
    with pytest.raises(InputError, match="unknown key edit"):
        own_pages.variant_of(originals, {"variant": "near_duplicate", "of": "en/tides", "slug": "x", "edit": []})
    with pytest.raises(InputError, match="has no 'absent words'"):
        edits = [{"find": "absent words", "replace": ""}]
        own_pages.variant_of(originals, {"variant": "near_duplicate", "of": "en/tides", "slug": "x", "edits": edits})


@given(st.binary(max_size=5000), st.integers(1, 2000))
def test_chunks_join_to_the_body(body: bytes, size: int) -> None:
    coded, joined = encode_chunked(body, size), b""
    while True:
        head, _, coded = coded.partition(b"\r\n")
        length = int(head, 16)
        if not length:
            break
        joined += coded[:length]
        assert coded[length : length + 2] == b"\r\n"
        coded = coded[length + 2 :]
    assert joined == body and coded == b"\r\n"


@given(st.lists(st.sampled_from(["words here.", "    code", ">>> x", "", "Notes", "-----", "- item"]), max_size=20))
def test_blocks_lose_no_line(lines: list[str]) -> None:
    kept = [line.strip() for tag, block in document.docstring_blocks("\n".join(lines)) for line in block.split("\n")]
    wanted = [line.strip() for line in lines if line.strip() and line != "-----"]
    assert [line for line in kept if line and line != "-----"] == wanted
