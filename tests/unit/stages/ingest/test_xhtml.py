"""Pages of XML as pages of HTML."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.ingest.warc import Page
from crawl2llm.stages.ingest.xhtml import as_html
from tests.unit.stages.ingest.warcs import TEXT, http, one


@pytest.mark.parametrize(
    ("xml", "html"),
    [
        ("<script src='x'/><p/>", "<script src='x'></script><p></p>"),
        ("<br/><br /><img alt='a/>'/><hr></hr>", "<br><br ><img alt='a/>'><hr>"),
        ('<a href="x>y" />', '<a href="x>y" ></a>'),
        ("<a href=x/>", "<a href=x></a>"),  # not XML, and not refused
        ("<![CDATA[a < b & c]]>d", "a &lt; b &amp; cd"),
        ("<script>//<![CDATA[\nif (a<b/>c)\n//]]></script><div/>", "<script>//<![CDATA[\nif (a<b/>c)\n//]]></script><div></div>"),
        ("<!-- <p/> --><?php <p/> ?><p/>", "<!-- <p/> --><?php <p/> ?><p></p>"),
        ("<svg:path d='a'/>", "<svg:path d='a'></svg:path>"),
        ("<p title='", "<p title='"),
        ("a < b /> c", "a < b /> c"),
    ],
)  # fmt: skip
def test_empty_elements(xml: str, html: str) -> None:
    assert as_html(xml) == html


@given(st.text("<>/!-?[]ab= \"'\n"))
def test_any_text(text: str) -> None:
    """Only what ends in `/>`, CDATA and end tags of void elements are written in another way; the rest stays."""
    if "/>" not in text and "<![" not in text and "</" not in text:
        assert as_html(text) == text
    as_html(text)


@pytest.mark.parametrize(
    "piece", ["<!--", "<script>", "<style ", '<a "', "<![CDATA[", "<?", "<a/>", "</br ", "<a/", "< ", "/>"]
)
def test_the_work_grows_with_the_page(piece: str) -> None:
    begin = time.process_time()
    as_html("<a " + piece * (1_000_000 // len(piece)))
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(("kind", "kept"), [("application/xhtml+xml; charset=utf-8", True), ("text/html", False)])
def test_the_type_decides(kind: str, kept: bool, tmp_path: Path) -> None:
    """What calls itself XML and is served as HTML is HTML, in which the script has no end."""
    body = f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><script src="x"/><p>{TEXT}</p></body></html>'
    found = one(tmp_path, http(body.encode(), Content_Type=kind), main_content=False)
    assert (isinstance(found, Page) and found.text == TEXT) == kept
