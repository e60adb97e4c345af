"""ARC, as Common Crawl and the Internet Archive wrote it: the same pages as from WARC, and damage that is counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.warcs import TEXT, html, http, members, page, read, reasons

HEAD = b"1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n\n"


def line(url: str, length: int, kind: str = "text/html", date: str = "20100102030405") -> bytes:
    return f"{url} 192.0.2.1 {date} {kind} {length}\n".encode()


def arc(url: str, block: bytes, kind: str = "text/html", length: int | None = None) -> bytes:
    """One record of ARC; `length` is a lie about the block's size."""
    return line(url, len(block) if length is None else length, kind) + block + b"\n"


FIRST = arc("filedesc://x.arc.gz", HEAD, "text/plain")


def record(number: int, text: str = "") -> bytes:
    return arc(f"http://example.org/{number}", http(html(text or f"{TEXT} Number {number}.").encode()))


def urls(found: list) -> list[str]:
    return [each.url for each in found if isinstance(each, Page)]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_pages_of_an_arc_file(tmp_path: Path, packed: bool) -> None:
    parts = [FIRST, arc("dns:example.org", b"20100102030405\nexample.org. 1 IN A 192.0.2.1\n", "text/dns")]
    parts += [record(1), arc("http://example.org/a b", http(b"", "404 Gone")), record(2)]
    path = tmp_path / "x.arc.gz"
    path.write_bytes(b"".join(gzip.compress(each, mtime=0) for each in parts) if packed else b"".join(parts))
    found = read(path)
    assert reasons(found) == {"type_warcinfo": 1, "not_html": 1, "status_404": 1, "page": 2}
    assert [each.url for each in found][1:] == [
        "dns:example.org", "http://example.org/1", "http://example.org/a b", "http://example.org/2"
    ]  # fmt: skip
    one = next(each for each in found if isinstance(each, Page))
    assert one.date == "2010-01-02T03:04:05Z" and one.text == f"{TEXT} Number 1." and one.metadata["record_id"] == ""
    (tmp_path / "x.warc.gz").write_bytes(members(page(1)))
    (same,) = read(tmp_path / "x.warc.gz")
    assert isinstance(same, Page) and same.text == one.text


def test_ids_are_those_of_the_file_and_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.arc").write_bytes(FIRST + record(1) + record(1))
    (tmp_path / "b.arc").write_bytes(FIRST + record(1))
    ids = [each.id for name in ("a.arc", "b.arc", "a.arc") for each in read(tmp_path / name) if isinstance(each, Page)]
    assert len(set(ids)) == 3 and ids[:2] == ids[3:]


def test_version_two_has_more_fields(tmp_path: Path) -> None:
    block = http(html().encode())
    head = f"http://example.org/ 192.0.2.1 20100102030405 text/html 200 abc - 77 x.arc {len(block)}\n".encode()
    (tmp_path / "x.arc").write_bytes(FIRST + head + block + b"\n" + record(2))
    assert urls(read(tmp_path / "x.arc")) == ["http://example.org/", "http://example.org/2"]


def test_damage_is_counted_and_reading_continues(tmp_path: Path) -> None:
    bad = b"http://example.org/bad 192.0.2.1 null text/html 3\nabc\n"
    (tmp_path / "x.arc").write_bytes(FIRST + record(1) + bad + record(2) + record(3)[:-20])
    found = read(tmp_path / "x.arc")
    assert reasons(found) == {"type_warcinfo": 1, "page": 3, "broken_record": 2}
    cut = found[-2]
    assert isinstance(cut, Page) and cut.metadata["truncated"]
    (tmp_path / "y.arc").write_bytes(FIRST[10:] + record(1))
    assert reasons(read(tmp_path / "y.arc")) == {"broken_record": 1, "page": 1}


def test_a_length_that_takes_in_the_next_record_gives_it_back(tmp_path: Path) -> None:
    block = http(html().encode())
    (tmp_path / "x.arc").write_bytes(FIRST + arc("http://example.org/1", block, length=len(block) + 60) + record(2))
    assert urls(read(tmp_path / "x.arc")) == ["http://example.org/1", "http://example.org/2"]


def test_a_warc_file_that_quotes_arc_is_warc(tmp_path: Path) -> None:
    (tmp_path / "x.warc").write_bytes(page(1, "filedesc://x.arc 192.0.2.1 20100102030405 text/html 3") + page(2))
    assert reasons(read(tmp_path / "x.warc")) == {"page": 2}


@given(st.lists(st.tuples(st.integers(0, 1500), st.binary(min_size=1, max_size=4)), max_size=4), st.integers(0, 1500))
def test_any_damage_is_survived(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(FIRST + record(1) + record(2) + record(3))
    for at, new in edits:
        data[at : at + len(new)] = new
    path = tmp_path_factory.mktemp("arc") / "x.arc"
    path.write_bytes(data[: len(data) - cut])
    found = read(path)
    # What neither an edit nor the cut touched is there.
    whole = [number for number in (1, 2, 3) if bytes(record(number)) in bytes(data[: len(data) - cut])]
    assert {f"http://example.org/{number}" for number in whole} <= set(urls(found)) or edits
    assert found
