"""What becomes of a record: a page, or a reason."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.formats.documents import document_id
from crawl2llm.stages.ingest import http as http_body
from crawl2llm.stages.ingest.warc import Page, RejectedRecord, tidy
from tests.unit.stages.ingest.warcs import TEXT, html, http, ids, name, one, page, read, reasons, record


def test_page(tmp_path: Path) -> None:
    found = one(tmp_path, http(html("Zwölf " + TEXT).encode("latin-1"), Content_Type="text/html; charset=ISO-8859-1"))
    assert isinstance(found, Page)
    assert found.text == "Zwölf " + TEXT
    assert (found.url, found.date) == ("https://example.org/1", "2024-05-01T00:00:00Z")
    assert found.id == document_id(name(1), found.url)
    assert found.metadata == {
        "content_type": "text/html; charset=ISO-8859-1",
        "charset": "windows-1252",
        "charset_from": "header",
        "title": "A page",
        "record_id": name(1),
    }


@pytest.mark.parametrize(
    ("block", "reason", "detail"),
    [
        (http(b"", "301 Moved", Location="/there"), "status_301", "/there"),
        (http(html().encode(), "404 Not Found"), "status_404", ""),
        (http(html().encode(), "204 No Content"), "status_204", ""),
        (http(b""), "empty_body", ""),
        (http(b" \r\n "), "empty_body", ""),
        (http(b"%PDF-1.7 labelled as HTML"), "not_html", "text/html, the bytes are PDF"),
        (http(b"\x89PNG\r\n\x1a\n" + b"\x00" * 50), "not_html", ""),
        (http(b"{}", Content_Type="application/json"), "not_html", "application/json"),
        (http(b"\x00\x01\x02" * 50, Content_Type=""), "not_html", ""),
        (http(html("").encode()), "no_text", "0 characters"),
        (http(b"<html><script>var x = 1;</script></html>"), "no_text", "0 characters"),
        (http(html(head='<meta name="robots" content="noindex">').encode()), "noindex", ""),
        (http(html(head="<META CONTENT='follow, NoIndex' NAME=Robots>").encode()), "noindex", ""),
        (http(html(head='<meta content="none" name="robots">').encode()), "noindex", ""),
        (http(html(head='<meta name="googlebot" content="noindex">').encode()), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="noindex"), "noindex", ""),
        (http(html().encode(), x_robots_tag="nofollow, NONE"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="googlebot: nofollow, noindex"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="otherbot:noindex"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="nofollow", x_robots_tag="bingbot: noindex"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="unavailable_after: 25 Jun 2030 15:00:00 PST, noindex"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="max-image-preview:none noindex"), "noindex", ""),
        (http(html().encode(), X_Robots_Tag="bingbot: noindex nofollow; all"), "noindex", ""),
        (http(html(head='<meta name="robots " content="noindex">').encode()), "noindex", ""),
        (http(html(head='<meta name="\tBingBot" content="follow noindex, nosuchrule">').encode()), "noindex", ""),
        (b"no HTTP here, only words", "not_http", ""),
        (b"", "not_http", ""),
    ],
)
def test_set_aside(tmp_path: Path, block: bytes, reason: str, detail: str) -> None:
    found = one(tmp_path, block)
    assert isinstance(found, RejectedRecord) and found.reason == reason, found
    assert found.record_id == name(1) and detail in found.detail


def test_kept_all_the_same(tmp_path: Path) -> None:
    body = html().encode()
    for block in (
        http(body, Content_Type="application/octet-stream"),
        http(body, Content_Type=""),
        http(body, Content_Type="TEXT/HTML;Charset=utf-8"),
        http(body, Content_Type="application/xhtml+xml"),
        http(html(head='<meta name="robots" content="index, follow">').encode()),
        http(html(head='<meta name="description" content="none of noindex">').encode()),
        http(html(head='<meta name="robots" content="index, max-image-preview: none">').encode()),
        http(html(head='<meta name="iRobot" content="There is none like it">').encode()),
        http(html(head='<meta name="robots" content="index, second to none">').encode()),
        http(html(head='<meta name="googlebot-news" content="noindex">').encode()),
        http(html(head='<meta name="robots" content="max-image-preview:none index">').encode()),
        http(html(head='<meta name="twitter:bot-name" content="noindex">').encode()),
        http(body, X_Robots_Tag="index, max-image-preview:none, max-snippet:-1"),
        http(body, X_Robots_Tag="noindexation, x-noindex"),
        http(body, X_Other="noindex"),
        http(body, Content_Encoding="gzip"),
        http(gzip.compress(body), Content_Encoding="gzip"),
        http(body, Transfer_Encoding="chunked"),
        http(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), Transfer_Encoding="chunked"),
        http(body).replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200"),
    ):
        found = one(tmp_path, block)
        assert isinstance(found, Page) and found.text == TEXT, (found, block)
    hidden = http(html(head='<meta name="robots" content="noindex">').encode())
    assert isinstance(one(tmp_path, hidden, respect_noindex=False), Page)
    assert isinstance(one(tmp_path, http(body, X_Robots_Tag="noindex"), respect_noindex=False), Page)


def test_navigation_goes_where_only_main_content_is_wanted(tmp_path: Path) -> None:
    body = f"<html><body><nav><a href=/>Home</a></nav><main><p>{TEXT}</p></main><footer>Imprint</footer></body></html>"
    assert isinstance(found := one(tmp_path, http(body.encode())), Page) and found.text == TEXT
    found = one(tmp_path, http(body.encode()), main_content=False)
    assert isinstance(found, Page) and {"Home", "Imprint"} <= set(found.text.split())


def test_least_characters(tmp_path: Path) -> None:
    block = http(html("Short one.").encode())
    assert isinstance(one(tmp_path, block, min_characters=10), Page)
    found = one(tmp_path, block, min_characters=11)
    assert isinstance(found, RejectedRecord) and (found.reason, found.detail) == ("no_text", "10 characters")


def test_bodies_that_are_too_large_stored_or_unpacked(tmp_path: Path) -> None:
    for block in (http(b"<html>" + b"x" * 2000), http(gzip.compress(b"0" * 10**7), Content_Encoding="gzip")):
        found = one(tmp_path, block, max_body_bytes=len(block) // 2 if len(block) < 3000 else 100_000)
        assert isinstance(found, RejectedRecord) and found.reason == "too_large", found
    assert isinstance(one(tmp_path, http(b"<html>" + b"x" * 2000), max_body_bytes=2006), Page)


def test_truncated_pages_are_kept_and_marked(tmp_path: Path) -> None:
    body = html().encode()
    found = one(tmp_path, http(body, Content_Length=str(len(body) + 100)))
    assert isinstance(found, Page) and found.metadata["truncated"] is True
    (tmp_path / "a.warc").write_bytes(record("response", 1, http(body), {"WARC-Truncated": "length"}))
    (found,) = read(tmp_path / "a.warc")
    assert isinstance(found, Page) and found.metadata["truncated"] is True


def test_page_without_a_length_of_its_own_cut_by_the_files_end(tmp_path: Path) -> None:
    whole = record("response", 1, http(html(TEXT * 9).encode(), Content_Length=""))
    (tmp_path / "a.warc").write_bytes(whole[:-200])
    page_, damage = read(tmp_path / "a.warc")
    assert isinstance(page_, Page) and page_.metadata["truncated"] is True
    assert isinstance(damage, RejectedRecord) and damage.reason == "broken_record"


def test_other_record_types(tmp_path: Path) -> None:
    wet, content = f"Plain text.\n{TEXT}".encode(), html().encode()
    parts = [
        record("warcinfo", 0, b"software: test\r\n"),
        record("request", 1, b"GET / HTTP/1.1\r\n\r\n"),
        record("metadata", 2, b"a: b\r\n"),
        record("revisit", 3, b"HTTP/1.1 200 OK\r\n\r\n"),
        record("unheard-of", 4, b"x"),
        record("conversion", 5, wet),
        record("resource", 6, content, {"Content-Type": "text/html"}),
        record("resource", 7, b"words", {"Content-Type": "text/plain"}),
        record("conversion", 8, b"\xff\xfe broken \x00 text", {"WARC-Target-URI": "<https://example.org/x y>"}),
        record("response", 9, http(html().encode()), {"WARC-Record-ID": "", "WARC-Target-URI": "", "WARC-Date": ""}),
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(parts))
    found = read(tmp_path / "a.warc")
    assert reasons(found) == {
        **{f"type_{kind}": 1 for kind in ("warcinfo", "request", "metadata", "revisit", "unknown")},
        "page": 4,
        "not_html": 1,
    }
    assert isinstance(found[5], Page) and found[5].text == wet.decode()
    assert isinstance(found[6], Page) and found[6].text == TEXT
    assert isinstance(found[8], Page) and found[8].url == "https://example.org/x y" and "\x00" not in found[8].text
    assert isinstance(found[9], Page) and found[9].url == "" and found[9].date is None


def test_records_without_an_id_or_a_url_are_told_apart_by_file_and_offset(tmp_path: Path) -> None:
    nameless = [record("response", 1, http(html().encode()), {"WARC-Record-ID": ""}) for _ in range(2)]
    nowhere = [record("response", 1, http(html().encode()), {"WARC-Target-URI": ""}) for _ in range(2)]
    neither = [record("response", 1, http(html().encode()), {"WARC-Record-ID": "", "WARC-Target-URI": ""})] * 2
    body = b"".join([*nameless, page(7), *nowhere, *neither])
    for name_ in ("a.warc", "b.warc"):
        (tmp_path / name_).write_bytes(body)
    packed = tmp_path / "c.warc.gz"
    packed.write_bytes(gzip.compress(body))
    found = [each for name_ in ("a.warc", "b.warc") for each in read(tmp_path / name_)]
    assert reasons(found) == {"page": 14}
    own = [each.id for each in found if isinstance(each, Page)]
    # Only the record with both is the same in both files.
    assert len(set(own)) == 13 and own[2] == own[9]
    offsets = [each.metadata.get("offset") for each in read(packed) if isinstance(each, Page)]
    assert offsets == [body.index(nameless[0]), len(nameless[0]), None, *offsets[3:]]
    assert all(body[at:].startswith(b"WARC/1.1") for at in offsets if at is not None)
    assert own[0] == document_id("web", "a.warc", "0")


def test_http_header_without_end_costs_its_record_alone(tmp_path: Path) -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"X-Filler: y\r\n" * 10_000
    (tmp_path / "a.warc").write_bytes(page(0) + record("response", 1, endless) + page(2))
    found = read(tmp_path / "a.warc")
    assert ids(found) == [name(0), name(1), name(2)]
    assert reasons(found) == {"page": 2, "broken_record": 1}


def test_headers_in_any_encoding(tmp_path: Path) -> None:
    block = http(html().encode(), X_Name="Zw\xf6lf")
    data = record("response", 1, block).replace(b"example.org/1", b"example.org/\xff\xf6")
    (tmp_path / "a.warc").write_bytes(data)
    (found,) = read(tmp_path / "a.warc")
    assert isinstance(found, Page)
    json.dumps([found.url, found.metadata]).encode()
    assert found.url.encode()


@given(st.text())
def test_tidy_is_stable_and_writable(text: str) -> None:
    tidied = tidy(text)
    assert tidy(tidied) == tidied
    assert tidied.encode() is not None and "\x00" not in tidied and "\r" not in tidied and "\n\n\n" not in tidied
    # Words stay: nothing but blanks, NUL and lone surrogates goes.
    clean = "".join(c for c in text if c != "\x00" and not "\ud800" <= c <= "\udfff")
    assert tidied.split() == clean.split()


def test_a_body_of_many_gzip_members_takes_time_by_its_size(tmp_path: Path) -> None:
    start = time.process_time()
    body = gzip.compress(b"ab", mtime=0) * 40_000  # each member was copied with all that follow it: 18 s
    whole, complete = http_body.decode_body(body, ["gzip"], 10**6)
    assert whole == b"ab" * 40_000 and complete and time.process_time() - start < 2
    for size in (0, 1, 30, 100_000):  # at any place between two pieces, with bytes behind that are no member
        data = gzip.compress(bytes(size), mtime=0) * 3
        for piece in (2, 3, 7, len(data)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(http_body, "PIECE", piece if size < 100_000 else max(piece, 50))
                assert http_body.decode_body(data + b"\x1e", ["gzip"], 10**6) == (bytes(3 * size), True)
                assert http_body._inflate(data[:-1], 31, 10**6) == (bytes(3 * size), http_body.End.CUT)
