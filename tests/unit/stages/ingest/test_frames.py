"""The records of a file, whatever became of it: none twice, none lost in silence, nothing raised, memory bounded."""

from __future__ import annotations

import gzip
import io
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from fastwarc.stream_io import Lz4Writer, ZstdWriter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crawl2llm.stages.ingest import compressed
from crawl2llm.stages.ingest.compressed import Damage
from crawl2llm.stages.ingest.decompress import INFLATED_BYTES
from crawl2llm.stages.ingest.frames import HEADER, Frame, frames
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest.warcs import http, ids, members, name, page, read, reasons, record

PAGES = [page(number) for number in range(5)]
NAMES = [name(number) for number in range(5)]
PLAIN = b"".join(PAGES)


def of(path: Path, data: bytes) -> list[Page | RejectedRecord]:
    path.write_bytes(data)
    return read(path)


def detail(found: list[Page | RejectedRecord]) -> str:
    (damage,) = [each for each in found if isinstance(each, RejectedRecord) and each.reason == "broken_record"]
    return damage.detail


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        members(*PAGES),
        gzip.compress(PLAIN, mtime=0),
        members(*PAGES) + b"\x00" * 512,
        b"\r\n\r\n" + PLAIN,
        b"".join(part.rstrip(b"\r\n") + b"\r\n" for part in PAGES),
        b"".join(part + b"\r\n\r\n\r\n" for part in PAGES),
        PLAIN.rstrip(b"\r\n"),
    ],
    ids=[
        "plain",
        "member each",
        "one member",
        "NUL padding",
        "blank first",
        "no blank lines",
        "many blank lines",
        "bare end",
    ],
)
def test_sound_files(tmp_path: Path, data: bytes) -> None:
    found = of(tmp_path / "a.warc.gz", data)
    assert reasons(found) == {"page": 5} and ids(found) == NAMES
    assert [each.text for each in found if isinstance(each, Page)] == [f"{page_text(n)}" for n in range(5)]


def page_text(number: int) -> str:
    return f"The quick brown fox jumps over the lazy dog near the river bank, and nobody minds. Number {number}."


@pytest.mark.parametrize("writer", [Lz4Writer, ZstdWriter])
def test_other_compressions(tmp_path: Path, writer: Any) -> None:
    with writer(str(tmp_path / "a.warc"), fsspec_args=False) as out:
        for part in PAGES:
            out.write(part)
            out.finish()
    assert ids(read(tmp_path / "a.warc")) == NAMES


@pytest.mark.parametrize("writer", [Lz4Writer, ZstdWriter])
@pytest.mark.parametrize("cut", range(1, 100, 3))
def test_other_compressions_cut_anywhere(tmp_path: Path, writer: Any, cut: int) -> None:
    """FastWARC's readers end in silence."""
    with writer(str(tmp_path / "a.warc"), fsspec_args=False) as out:
        for part in PAGES:
            out.write(part)
            out.finish()
    whole = (tmp_path / "a.warc").read_bytes()
    size = len(whole) * cut // 100
    found = of(tmp_path / "b.warc", whole[:size])
    assert ids(found) == NAMES[: len(ids(found))]
    between = whole[size:].startswith(COMPRESSED)
    assert between or any(isinstance(each, RejectedRecord) for each in found)


@pytest.mark.parametrize("writer", [Lz4Writer, ZstdWriter])
def test_what_is_no_frame_after_other_compressions(tmp_path: Path, writer: Any) -> None:
    with writer(str(tmp_path / "a.warc"), fsspec_args=False) as out:
        out.write(PLAIN)
    whole = (tmp_path / "a.warc").read_bytes()
    found = of(tmp_path / "b.warc", whole + b"no frame at all")
    assert ids(found) == NAMES and any(isinstance(each, RejectedRecord) for each in found)
    skippable = b"\x5d\x2a\x4d\x18" + (9).to_bytes(4, "little") + b"x" * 9
    assert reasons(of(tmp_path / "c.warc", whole + skippable + whole + b"\x00" * 512)) == {"page": 10}


@pytest.mark.parametrize("writer", [Lz4Writer, ZstdWriter])
@pytest.mark.parametrize("place", ["magic", "inside", "length"])
def test_a_damaged_frame_costs_its_record_alone(tmp_path: Path, writer: Any, place: str) -> None:
    with writer(str(tmp_path / "a.warc"), fsspec_args=False) as out:
        for part in PAGES:
            out.write(part)
            out.finish()
    whole = (tmp_path / "a.warc").read_bytes()
    starts = [found.start() for found in compressed.MAGIC.finditer(whole)]
    assert len(starts) == 5
    at = starts[2] + {"magic": 0, "inside": 40, "length": 8}[place]
    found = of(tmp_path / "b.warc", whole[:at] + b"\xff\xff\xff" + whole[at + 3 :])
    assert {NAMES[0], NAMES[1], NAMES[3], NAMES[4]} <= set(ids(found)) and reasons(found)["broken_record"] >= 1


def test_a_dictionary_in_the_first_frame(tmp_path: Path) -> None:
    """As the specification of WARC in zstd has it, bare or compressed itself."""
    texts = [part + bytes([number]) * 50 for number, part in enumerate(PAGES * 20)]
    dictionary = zstandard.train_dictionary(4096, texts)
    maker = zstandard.ZstdCompressor(dict_data=dictionary)
    for held in (dictionary.as_bytes(), zstandard.compress(dictionary.as_bytes())):
        first = (0x184D2A5D).to_bytes(4, "little") + len(held).to_bytes(4, "little") + held
        assert ids(of(tmp_path / "a.warc.zst", first + b"".join(map(maker.compress, PAGES)))) == NAMES


def test_a_record_that_looks_like_a_skippable_frame_is_not_lost_in_silence(tmp_path: Path) -> None:
    (found,) = of(tmp_path / "a.warc", b"\x5d\x2a\x4d\x18" + PLAIN[4:])
    assert isinstance(found, RejectedRecord) and found.detail


def test_bare_line_feeds_of_headers_and_of_http(tmp_path: Path) -> None:
    block = http(b"<html><p>Some words here.</p></html>").replace(b"\r\n", b"\n")
    lines = [record("response", n, block).replace(b"\r\n", b"\n") for n in range(3)]
    found = of(tmp_path / "a.warc", b"".join(lines))
    assert reasons(found) == {"page": 3} and ids(found) == NAMES[:3]
    odd = [part.replace(b"\r\n", b"\r\r\n", 8) for part in PAGES]
    assert ids(of(tmp_path / "a.warc", b"".join(odd))) == NAMES


@pytest.mark.parametrize("cut", range(1, 100, 7))
def test_plain_file_cut_anywhere(tmp_path: Path, cut: int) -> None:
    size = len(PLAIN) * cut // 100
    found = of(tmp_path / "a.warc", PLAIN[:size])
    whole = size // len(PAGES[0])
    assert ids(found)[:whole] == NAMES[:whole]
    assert len(ids(found)) == len(set(ids(found))) <= whole + 1
    pages = [each for each in found if isinstance(each, Page)]
    assert all("truncated" not in each.metadata for each in pages[:whole])
    assert all(each.metadata["truncated"] for each in pages[whole:])
    assert any(isinstance(each, RejectedRecord) for each in found)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("cut", range(3, 100, 12))
def test_gzip_file_cut_anywhere(tmp_path: Path, cut: int, big: bool) -> None:
    noise = " ".join(str(pow(7, n, 10**9 + 7)) for n in range(9000 if big else 1))
    parts = [page(number, f"Number {number}. {noise}") for number in range(5)]
    for data, least in ((members(*parts), 1), (gzip.compress(b"".join(parts), mtime=0), 0)):
        size = len(data) * cut // 100
        found = of(tmp_path / "a.warc.gz", data[:size])
        assert ids(found) == NAMES[: len(ids(found))]
        if least:
            whole = size // len(members(parts[0]))
            assert whole <= len(ids(found)) <= whole + 1
        assert reasons(found)["broken_record"] + reasons(found)["not_warc"] == 1


def test_damage_within_a_gzip_member_costs_that_record_alone(tmp_path: Path) -> None:
    parts = [members(part) for part in PAGES]
    broken = bytearray(parts[2])
    broken[len(broken) // 2] ^= 0xFF
    found = of(tmp_path / "a.warc.gz", b"".join([*parts[:2], bytes(broken), *parts[3:]]))
    assert ids(found) == [NAMES[0], NAMES[1], NAMES[3], NAMES[4]]
    assert "gzip" in detail(found) and "after 2 records" in detail(found)


def test_members_after_bytes_that_are_no_gzip(tmp_path: Path) -> None:
    found = of(tmp_path / "a.warc.gz", members(*PAGES[:2]) + b"no gzip at all" * 1000 + members(*PAGES[2:]))
    assert ids(found) == NAMES
    assert "14000 bytes are no gzip member" in detail(found)


@pytest.mark.parametrize("tail", [b"x", b"no gzip at all" * 1000, b"\x1f\x8b", b"\x00\x00x"])
def test_tail_that_is_no_gzip(tmp_path: Path, tail: bytes) -> None:
    found = of(tmp_path / "a.warc.gz", members(*PAGES) + tail)
    assert ids(found) == NAMES
    assert "bytes are no gzip member" in detail(found)


@pytest.mark.parametrize("over", range(-22, 3, 3))
def test_record_that_begins_where_a_window_ends(tmp_path: Path, over: int) -> None:
    found = of(tmp_path / "a.warc", b"x" * (HEADER + over) + b"\n" + PLAIN)
    assert ids(found) == NAMES
    assert f"{HEADER + over + 1} bytes belong to no record" in detail(found)


def test_garbage_between_records_is_counted_once(tmp_path: Path) -> None:
    found = of(tmp_path / "a.warc", PAGES[0] + b"x" * 200_000 + b"\n" + b"".join(PAGES[1:]))
    assert ids(found) == NAMES
    assert "200001 bytes belong to no record: b'xxx" in detail(found)


def test_length_too_short_leaves_a_counted_rest(tmp_path: Path) -> None:
    block = http(b"<html><p>Some words.</p></html>" + b" " * 99 + b"<!-- rest -->")
    found = of(tmp_path / "a.warc", PAGES[0] + record("response", 1, block, length=len(block) - 13) + PAGES[2])
    assert ids(found) == NAMES[:3]
    assert "17 bytes belong to no record: b'<!-- rest -->" in detail(found)


@pytest.mark.parametrize("lie", [20, 60, 3000, 10**6])
def test_length_too_long_gives_the_next_records_back(tmp_path: Path, lie: int) -> None:
    block = http(b"<html><p>Some words.</p></html>")
    data = PAGES[0] + record("response", 1, block, length=len(block) + lie) + b"".join(PAGES[2:])
    found = of(tmp_path / "a.warc", data)
    assert ids(found) == NAMES and reasons(found) == {"page": 5}


def test_length_over_the_limit_is_passed_over_without_being_held(tmp_path: Path) -> None:
    size = 60_000_000
    with gzip.open(tmp_path / "a.warc.gz", "wb", compresslevel=1) as out:
        out.write(PAGES[0])
        out.write(record("response", 1, b"", length=size).rstrip(b"\r\n") + b"\r\n\r\n")
        for _ in range(60):
            out.write(b"0" * 1_000_000)
        out.write(b"\r\n\r\n" + PAGES[2])
    tracemalloc.start()
    found = read(tmp_path / "a.warc.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reasons(found) == {"page": 2, "too_large": 1} and ids(found) == NAMES[:3]
    assert peak < 4 * (INFLATED_BYTES + HEADER) + 2_000_000


def test_length_beyond_the_end_of_the_file(tmp_path: Path) -> None:
    found = of(tmp_path / "a.warc", PAGES[0] + record("response", 1, b"rest", length=10**12))
    assert reasons(found) == {"page": 1, "too_large": 1, "broken_record": 1}
    assert "the file ends 999999999992 bytes before the record does" in detail(found)


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\x00" * 100_000, b"<html></html>" * 10_000, b"WARC/1.0\r\n", b"WARC/1.0\r\n\r\nx", gzip.compress(b"", mtime=0),
     gzip.compress(b"no WARC", mtime=0), b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfdxx", b"\x04\x22\x4d\x18xx", b"BZh91AY&SY"],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".warc", ".warc.gz"])
def test_file_without_a_record(tmp_path: Path, data: bytes, suffix: str) -> None:
    (found,) = of(tmp_path / f"a{suffix}", data)
    assert isinstance(found, RejectedRecord) and found.reason == "not_warc" and found.detail


def test_header_without_end_or_length_is_damage(tmp_path: Path) -> None:
    endless = b"WARC/1.0\r\n" + b"X-Filler: y\r\n" * 20_000
    found = of(tmp_path / "a.warc", PAGES[0] + endless + b"\r\n" + PAGES[1])
    assert ids(found) == NAMES[:2] and reasons(found)["broken_record"] == 1
    found = of(tmp_path / "a.warc", re.sub(rb"Content-Length: \d+\r\n\r\nHTTP", b"\r\nHTTP", PAGES[0]) + PAGES[1])
    assert ids(found) == [NAMES[1]] and reasons(found)["broken_record"] == 1


def test_frames_give_every_byte_of_a_sound_file_back(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(PLAIN)
    found = list(frames(tmp_path / "a.warc", 10**6))
    assert b"".join(each.header + each.block + b"\r\n\r\n" for each in found if isinstance(each, Frame)) == PLAIN


COMPRESSED = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x5d\x2a\x4d\x18", b"\x04\x22\x4d\x18")
SMALL = [record("response", n, http(f"<html><p>Words {n}</p></html>".encode())) for n in range(4)]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 400),
        st.binary(min_size=1, max_size=12) | st.sampled_from([b"WARC/1.0\r\n", b"\r\n\r\n", b"\x1f\x8b\x08"]),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, edits: list[tuple[str, float, int, bytes]]) -> bytes:
    for kind, share, size, piece in edits:
        at = int(share * len(data))
        if kind == "flip":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + size :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        else:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
    return data


@settings(max_examples=150)
@given(st.sampled_from([b"".join(SMALL), members(*SMALL), gzip.compress(b"".join(SMALL), mtime=0)]), EDITS)
def test_any_damage_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes, edits: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.warc.gz"
    path.write_bytes(edited(data, edits))
    found = read(path, max_body_bytes=4096)
    assert found
    assert reasons(found)["not_warc"] in (0, 1)
    again = read(path, max_body_bytes=4096)
    assert [repr(each) for each in found] == [repr(each) for each in again]


@settings(max_examples=100)
@given(EDITS)
def test_bytes_of_a_plain_file_are_in_a_frame_or_in_damage(
    tmp_path_factory: pytest.TempPathFactory, edits: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.warc"
    data = edited(b"".join(SMALL), edits)
    assume(not data.startswith(COMPRESSED))
    path.write_bytes(data)
    held = lost = 0
    for each in frames(path, 10**6):
        if isinstance(each, Frame):
            assert each.header + each.block in data
            held += len(each.header) + len(each.block)
        elif isinstance(each, Damage) and (match := re.match(r"(\d+) bytes belong", each.description)):
            lost += int(match.group(1))
    blank = len(re.findall(rb"[\r\n\t \x00]", data))
    assert held + lost <= len(data) <= held + lost + blank


def test_a_dictionary_that_is_a_bomb_or_damaged(tmp_path: Path) -> None:
    maker = zstandard.ZstdCompressor()
    held = [maker.compress(bytes(compressed.DICTIONARY + 1)), zstandard.compress(b"no dictionary " * 99)[:-3]]
    for data in held:
        first = (0x184D2A5D).to_bytes(4, "little") + len(data).to_bytes(4, "little") + data
        found = of(tmp_path / "a.warc.zst", first + maker.compress(b"".join(PAGES)))
        assert ids(found) == NAMES and reasons(found)["broken_record"] <= 1


def test_a_window_that_is_too_large_is_said_to_be(tmp_path: Path) -> None:
    how = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    engine = zstandard.ZstdCompressor(compression_params=how).compressobj()
    (found,) = of(tmp_path / "a.warc.zst", engine.compress(b"".join(PAGES)) + engine.flush())
    assert isinstance(found, RejectedRecord) and "it needs over 128 MB" in found.detail


def test_headers_that_are_passed_over_are_not_held() -> None:
    """A frame of empty blocks is nothing but headers."""
    data = bytes.fromhex("28b52ffd 00 00") + b"\0\0\0" * 1000 + b"\1\0\0"
    part = compressed.Part(io.BytesIO(data + b"next"), 0, len(data) + 4)
    assert part.magic == compressed.ZSTD
    assert part.find_end() == len(data) and not part.header_bytes and not part.wrong
