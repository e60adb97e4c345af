"""Pages nested so deep that a parser would take minutes, and pages that only look like it."""

from __future__ import annotations

import time

import pytest

from scripts.ingest.nesting import MOST, too_deep
from tests.unit.ingest.warcs import http, read, reasons, record


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 9000,
        "<DIV class='a'>" * 9000 + "</DIV>" * 9000,
        "<div></nonsense>" * 9000,
        "<div><table><tr><td></div>" * 9000,
        "<b>" * 9000,
        "<div><!-- </div> -->" * 9000,
        "<div><script></div></script>" * 9000,
        "<ul><li>" * 9000,
    ],
)
def test_deep(html: str) -> None:
    assert too_deep(html)


@pytest.mark.parametrize(
    "html",
    [
        "<div></div>" * 9000,
        "<p>words" * 9000,
        "<ul>" + "<li>words" * 9000 + "</ul>",
        "<table>" + "<tr><td>1<td>2" * 9000 + "</table>",
        "<div><span>words</div>" * 9000,
        "<br>" * 9000,
        "<script>" + "'<div>'" * 9000 + "</script>",
        "<!--" + "<div>" * 9000 + "-->",
        "<select>" + "<option>x" * 9000 + "</select>",
        "a < b " * 9000,
        "<div>" * MOST,
    ],
)
def test_not_deep(html: str) -> None:
    assert not too_deep(html)


@pytest.mark.parametrize(
    "piece", ["<div>", "<a></b>", "<!--", "<script>", "<table>", "<div></x>", "<", "</table>", "<svg></div>"]
)
def test_the_time_is_in_proportion_to_the_size(piece: str) -> None:
    """A bound for a page of 2 MB that quadratic work would exceed by hours."""
    begin = time.monotonic()
    too_deep(piece * (2_000_000 // len(piece)), most=10**9)
    assert time.monotonic() - begin < 60


def test_such_a_page_is_counted_and_others_are_read(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "a.warc"
    deep = record("response", 0, http(b"<html>" + b"<div>" * 30_000))
    good = record("response", 1, http(b"<html><p>Some words of a page that is good.</p></html>"))
    path.write_bytes(deep + good)
    assert reasons(read(path, extractor="resiliparse")) == {"too_deep": 1, "page": 1}
