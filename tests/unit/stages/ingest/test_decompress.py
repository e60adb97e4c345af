"""Files of any compression, told by their first bytes: records of WARC as in gzip, damage at its place, memory bounded."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.stages.ingest.decompress import Damage, Stream, decompressed_pieces, is_tar
from crawl2llm.stages.ingest.files import FileHead
from crawl2llm.stages.ingest.warc import RejectedRecord, WarcReader
from tests.unit.stages.ingest.servers import Server
from tests.unit.stages.ingest.test_remote import opened
from tests.unit.stages.ingest.warcs import SETTINGS, ids, name, page, read, reasons, record, source_of

PAGES = [page(number) for number in range(5)]
NAMES = [name(number) for number in range(5)]
PACKS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress, "xz": lzma.compress, "gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}  # fmt: skip
BYTES = random.Random(4).randbytes(300_000)  # noqa: S311 - test bytes


def taken(path: Path) -> tuple[bytes, list[Damage]]:
    pieces = list(decompressed_pieces(path))
    return b"".join(piece for piece in pieces if isinstance(piece, bytes)), [
        piece for piece in pieces if isinstance(piece, Damage)
    ]


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("suffix", ["", ".warc.{}", ".WARC.{}", ".of-another-name"])
def test_records_in_any_compression(tmp_path: Path, pack: str, suffix: str) -> None:
    path = tmp_path / f"a{suffix.format(pack.upper() if suffix.isupper() else pack)}"
    path.write_bytes(PACKS[pack](b"".join(PAGES)))
    assert ids(read(path)) == NAMES
    path.write_bytes(b"".join(map(PACKS[pack], PAGES)) + bytes(512))
    assert ids(read(path)) == NAMES, "a member each, and padding"
    path.write_bytes(PACKS[pack](record("conversion", 1, b"Some words of a text.")))
    assert reasons(read(path)) == {"page": 1}


@pytest.mark.parametrize("pack", PACKS)
def test_damage_in_a_member_costs_that_member_alone(tmp_path: Path, pack: str) -> None:
    parts = list(map(PACKS[pack], PAGES))
    middle = len(parts[2]) // 2
    parts[2] = parts[2][:middle] + b"\xff" * 16 + parts[2][middle + 16 :]
    (tmp_path / f"a.warc.{pack}").write_bytes(b"".join(parts))
    found = read(tmp_path / f"a.warc.{pack}")
    assert [each for each in ids(found) if each != NAMES[2]] == [*NAMES[:2], *NAMES[3:]]
    assert reasons(found)["broken_record"] >= 1
    (tmp_path / f"a.warc.{pack}").write_bytes(b"damage" + b"".join(map(PACKS[pack], PAGES)))
    found = read(tmp_path / f"a.warc.{pack}")
    assert ids(found) == NAMES and reasons(found)["broken_record"] == 1, "a suffix says what is looked for"


@settings(max_examples=60)
@given(st.sampled_from(list(PACKS)), st.integers(0, 10**6), st.booleans())
def test_a_file_cut_anywhere_gives_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, pack: str, cut: int, several: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / f"a.{pack}"
    make = PACKS[pack]
    whole = make(BYTES[:9000]) + make(BYTES[9000:]) if several else make(BYTES)
    path.write_bytes(whole[: cut % len(whole)])
    out, damage = taken(path)
    assert BYTES.startswith(out)
    assert len(out) == 9000 or not out or (damage and damage[-1].unfinished)
    path.write_bytes(whole)
    assert taken(path) == (BYTES, [])


@pytest.mark.parametrize("pack", ["bz2", "xz"])
def test_what_is_no_member_is_damage(tmp_path: Path, pack: str) -> None:
    path = tmp_path / f"a.{pack}"
    for data in (b"no " * 3000, PACKS[pack](b"words") + b"noise", b"noise" + PACKS[pack](b"words")):
        path.write_bytes(data)
        out, damage = taken(path)
        assert len(damage) == 1 and "are no" in damage[0].description and not damage[0].unfinished
        assert out in (b"", b"words")
    path.write_bytes(b"WARC/1.1\r\n" + b"no " * 300)
    assert taken(path) == (path.read_bytes(), []), "a WARC file that is not compressed after all"


def test_the_first_bytes_of_a_larger_file(tmp_path: Path) -> None:
    for pack in ("bz2", "xz"):
        (tmp_path / "a").write_bytes(b"".join(map(PACKS[pack], PAGES)))
        first = FileHead(tmp_path / "a", len(PACKS[pack](PAGES[0])) + 100)
        found = list(WarcReader(source_of({"name": "web"}), SETTINGS)(first))
        assert ids(found) == NAMES[:1] and reasons(found) == {"page": 1}, "what the cut cuts is no damage"


def test_a_dictionary_that_is_too_large_is_said_to_be(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 3 * 2**29}]
    made = subprocess.run(
        [sys.executable, "-c", f"import lzma,sys;sys.stdout.buffer.write(lzma.compress(b'words',filters={filters!r}))"],
        capture_output=True,
        check=False,
    ).stdout
    if not made:
        pytest.skip("too little memory to make such a file")
    (tmp_path / "a.warc.xz").write_bytes(made)
    out, damage = taken(tmp_path / "a.warc.xz")
    assert not out and "over 128 MB, so compress it again with a smaller dictionary" in damage[0].description
    (found,) = read(tmp_path / "a.warc.xz")
    assert isinstance(found, RejectedRecord) and found.reason == "not_warc" and "128 MB" in found.detail


@pytest.mark.parametrize("pack", ["bz2", "xz"])
def test_a_bomb_takes_no_memory(tmp_path: Path, pack: str) -> None:
    (tmp_path / "a.warc").write_bytes(PACKS[pack](bytes(50_000_000)))
    tracemalloc.start()
    (found,) = read(tmp_path / "a.warc")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, RejectedRecord) and found.reason == "not_warc" and peak < 20_000_000


def test_a_stream_of_small_reads_is_linear(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    stream, size = Stream(tmp_path / "a.gz"), 0
    while part := stream.read(4096):
        size += len(part)
    assert size == 20_000_000 and resource.getrusage(resource.RUSAGE_SELF).ru_utime - began < 3


def test_a_tar_is_told_by_its_name() -> None:
    for named in ("a.tar", "a.TAR", "a.tar.bz2", "a.Tar.XZ", "a.tgz", "a.TBZ2", "a.txz", "b/a.1.tar.zst"):
        assert is_tar(Path(named)), named
    assert not any(is_tar(Path(named)) for named in ("tar", "a.target.gz", "a.txt.gz", "a.xz"))


@pytest.mark.parametrize("pack", ["bz2", "xz"])
def test_a_remote_file_is_transferred_once(server: Server, pack: str) -> None:
    url = server.put(f"x.warc.{pack}", PACKS[pack](BYTES))
    out, damage = taken(opened(url))
    assert (out, damage) == (BYTES, []) and [asked for _, _, asked in server.asked] == [""]
