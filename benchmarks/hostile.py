"""The peak memory of ingest.extract on files that are made to need much of it, by kind: small on the disk, gigabytes when they are read.

    python -m benchmarks.hostile                 # all, about 15 minutes on one core; the table in docs/stages/ingest.md
    python -m benchmarks.hostile warc-zeros ...  # some
    python -m benchmarks.hostile --pool jsonl-line   # as two shards of one task: the largest of the pool's processes, too

Each file is made in a temporary folder, read by `python -m crawl2llm.stages.ingest.extract` in a process of its own, and removed. Printed
are the peak resident memory of that process (10⁶ bytes), of the largest process of its pool, seconds, and what became of the records.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

Made = Iterator[bytes]
Case = Callable[[Path], None]  # writes the file
MB, GB = 10**6, 10**9
BODY = 19 * MB  # within max_body_bytes
TEXT = b"The quick brown fox jumps over the lazy dog near the river bank, and nobody minds. "
LONG = BODY // len(TEXT) * TEXT
CHILD = """
import re, resource, sys
from pathlib import Path
from crawl2llm.stages.ingest.extract import main
status = main(sys.argv[1:])
own = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1))
print("PEAK", own * 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(status)
"""


def filled(size: int, of: bytes = b"\0") -> Made:
    """So many bytes, in pieces."""
    piece = of * (MB // len(of))
    while size > 0:
        yield piece[:size]
        size -= len(piece)


def header(kind: str, length: int, number: int = 1, more: str = "") -> bytes:
    """The header of a WARC record."""
    more += "Content-Type: application/http; msgtype=response\r\n" if kind == "response" else ""
    return (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{number:012d}>\r\n"
        f"WARC-Target-URI: https://example.org/{number}\r\nWARC-Date: 2024-05-01T00:00:00Z\r\n{more}Content-Length: {length}\r\n\r\n"
    ).encode()


def record(kind: str, block: bytes, number: int = 1) -> bytes:
    """A WARC record."""
    return header(kind, len(block), number) + block + b"\r\n\r\n"


def http(body: bytes, more: bytes = b"") -> bytes:
    """An HTTP response."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + more + b"\r\n" + body


def after(*pieces: Made | bytes) -> Made:
    """Pieces, and a small record behind them that must be found."""
    for each in pieces:
        yield from [each] if isinstance(each, bytes) else each
    yield record("conversion", TEXT, 999_999)


def packed(data: Made, level: int = 1) -> Made:
    """One gzip member."""
    engine = zlib.compressobj(level, wbits=31)
    for piece in data:
        yield engine.compress(piece)
    yield engine.flush()


def frame(data: Made, window: int = 0) -> Made:
    """One frame of zstd, with a window of 2^window bytes."""
    options = (
        {"compression_params": zstandard.ZstdCompressionParameters.from_level(1, window_log=window)}
        if window
        else {"level": 1}
    )
    engine = zstandard.ZstdCompressor(**options).compressobj()
    for piece in data:
        yield engine.compress(piece)
    yield engine.flush()


def command(data: Callable[[], Made], *words: str) -> Case:
    """What a program makes of the data."""

    def case(path: Path) -> None:
        with path.open("wb") as out, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out) as made:
            assert made.stdin
            for piece in data():
                made.stdin.write(piece)
            made.stdin.close()

    return case


def tar(*members: tuple[str, int, bytes]) -> Case:
    """A tar.gz of members: name, size, what they are filled with."""

    def case(path: Path) -> None:
        with (
            gzip.open(path, "wb", 1) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as made,
        ):
            for name, size, of in members:
                about = tarfile.TarInfo(name)
                about.size = size
                made.addfile(about, Pieces(filled(size, of)))

    return case


class Pieces:
    """A stream of pieces, for tarfile."""

    def __init__(self, data: Made) -> None:
        self.data, self.left = data, b""

    def read(self, size: int = 0, /) -> bytes:
        """Exactly `size` bytes, fewer at the end."""
        while len(self.left) < size and (piece := next(self.data, b"")):
            self.left += piece
        out, self.left = self.left[:size], self.left[size:]
        return out


def pax(size: int, kind: bytes) -> Made:
    """A tar whose first header announces `size` bytes of further header."""
    about = tarfile.TarInfo("x")
    about.type, about.size = kind, size
    yield about.tobuf(tarfile.USTAR_FORMAT)
    yield from filled(size, b"a")
    yield b"\0" * (-size % 512)
    file = tarfile.TarInfo("a.txt")
    file.size = len(TEXT)
    yield file.tobuf(tarfile.USTAR_FORMAT) + TEXT + b"\0" * (-len(TEXT) % 512 + 1024)


def table(cells: Callable[[], Iterator[list[str]]], group: int | None = None, **how: Any) -> Case:
    """Parquet with a column of text; cells: lists of rows. All rows are one row group where `group` is None."""

    def case(path: Path) -> None:
        schema = pa.schema([("text", pa.large_string())])
        with pq.ParquetWriter(path, schema, **{"compression": "zstd", "use_dictionary": False, **how}) as out:
            for each in [[one for part in cells() for one in part]] if group is None else cells():
                out.write_table(pa.table({"text": pa.array(each, pa.large_string())}), row_group_size=group)

    return case


def rows(number: int, size: int, distinct: bool = True) -> Callable[[], Iterator[list[str]]]:
    """So many rows of so many characters."""

    def cells() -> Iterator[list[str]]:
        text = (TEXT * (size // len(TEXT) + 1)).decode()
        yield [f"{row if distinct else 0:09d}{text}"[:size] for row in range(number)]

    return cells


def skewed() -> Iterator[list[str]]:
    """Short rows, and among them 100 of 19 MB, all one string here."""
    long = (TEXT * (BODY // len(TEXT))).decode()
    yield ["short"] * 500_000 + [long] * 100 + ["short"] * 10


def footer(path: Path) -> None:
    """Parquet with 200,000 row groups of one row."""
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), write_statistics=False) as out:
        one = pa.record_batch({"text": pa.array([TEXT.decode()])})
        for _ in range(200_000):
            out.write_batch(one)


def lines(*parts: tuple[bytes, int, bytes]) -> Made:
    """Lines of JSON: what they begin with, bytes of filling, what it is."""
    for begin, size, of in parts:
        yield begin
        yield from filled(size, of)
        yield b"0]}\n" if of.endswith(b",") else b'"}\n'
    yield b'{"text": "the last line"}\n'


def many_lines(number: int, size: int, column: bytes = b"text") -> Made:
    """Lines whose column has so many bytes."""
    for row in range(number):
        yield b'{"text": "short", "%s": "%06d' % (column, row)
        yield from filled(size, b"a")
        yield b'"}\n'


def tiny(number: int, kind: str = "conversion") -> Made:
    """So many records."""
    block = TEXT if kind == "conversion" else http(b"<p>" + TEXT)
    for start in range(0, number, 1000):
        yield b"".join(record(kind, block, row) for row in range(start, min(start + 1000, number)))


def pages(number: int, body: bytes) -> Made:
    """Records of text as large as they may be."""
    for row in range(number):
        yield record("conversion", b"%06d" % row + body, row)


def written(make: Callable[[], Made]) -> Case:
    """What `make` makes, piece by piece."""

    def case(path: Path) -> None:
        with path.open("wb") as out:
            for piece in make():
                out.write(piece)

    return case


def keys() -> Made:
    """A line of JSON with as many keys as it can have."""
    yield b'{"text": "a", "x": {'
    for start in range(0, BODY // 11, 10_000):
        yield b"".join(b'"%06x":0,' % n for n in range(start, start + 10_000))
    yield b'"z":0}}\n'


def small_members(number: int) -> Made:
    """A tar of so many members."""
    for start in range(0, number, 1000):
        out = b""
        for row in range(start, start + 1000):
            about = tarfile.TarInfo(f"folder/{row:08d}.txt")
            about.size = len(TEXT)
            out += about.tobuf(tarfile.USTAR_FORMAT) + TEXT + b"\0" * (-len(TEXT) % 512)
        yield out
    yield b"\0" * 1024


def sparse(path: Path) -> None:
    """A file of 3 GB that takes no disk."""
    with path.open("wb") as out:
        out.truncate(3 * GB)


def dictionary(path: Path) -> None:
    """A WARC in zstd whose dictionary is a bomb of 2 GB."""
    held = zstandard.ZstdCompressor(level=1, write_content_size=True).compressobj(size=2 * GB)
    data = b"".join(held.compress(piece) for piece in filled(2 * GB)) + held.flush()
    path.write_bytes(
        (0x184D2A5D).to_bytes(4, "little")
        + len(data).to_bytes(4, "little")
        + data
        + b"".join(frame(iter([record("conversion", TEXT)])))
    )


def bomb() -> bytes:
    """A gigabyte in one member of gzip."""
    return b"".join(packed(filled(GB)))


def small_gzips() -> bytes:
    """20 MB of members of gzip with two bytes each."""
    return gzip.compress(b"ab", mtime=0) * 900_000


# Name: (kind, the file's name, how it is made).
CASES: dict[str, tuple[str, str, Case]] = {
    "warc-record": ("warc", "x.warc.gz", written(lambda: packed(after(header("response", 2 * GB), filled(2 * GB), b"\r\n\r\n")))),
    "wet-record": ("warc", "x.warc.wet.gz", written(lambda: packed(
        after(header("conversion", 2 * GB), filled(2 * GB, b"a"), b"\r\n\r\n")))),
    "arc-record": ("warc", "x.arc.gz", written(lambda: packed(
        after(b"http://example.org/ 10.0.0.1 20080101000000 text/html %d\n" % (2 * GB), filled(2 * GB), b"\n")))),
    "warc-zeros": ("warc", "x.warc.gz", written(lambda: packed(filled(2 * GB)))),
    "warc-junk": ("warc", "x.warc.gz", written(lambda: packed(after(filled(2 * GB, b"WARC/"), b"\r\n\r\n")))),
    "warc-bomb": ("warc", "x.warc", written(lambda: after(record("response", http(bomb(), b"Content-Encoding: gzip\r\n"))))),
    "warc-members": ("warc", "x.warc", written(lambda: after(record("response", http(small_gzips(), b"Content-Encoding: gzip\r\n"))))),
    "warc-header": ("warc", "x.warc.gz", written(lambda: packed(
        after(b"WARC/1.1\r\nWARC-Type: response\r\n", filled(500 * MB, b"X-Filler: x\r\n"), b"Content-Length: 0\r\n\r\n")))),
    "warc-http-header": ("warc", "x.warc.gz", written(lambda: packed(
        after(record("response", http(b"<p>" + TEXT, b"a: b\r\n" * (BODY // 6))))))),
    "warc-tiny": ("warc", "x.warc.gz", written(lambda: packed(tiny(5 * MB)))),
    "warc-tiny-dropped": ("warc", "x.warc.gz", written(lambda: packed(tiny(1 * MB, "request")))),
    "warc-member": ("warc", "x.warc.gz", written(lambda: packed(pages(40, LONG)))),
    "warc-wide": ("warc", "x.warc.gz", written(lambda: packed(pages(60, "a😀".encode() + LONG[:-9])))),
    "warc-lines": ("warc", "x.warc.gz", written(lambda: packed(after(record("conversion", b"ab\n" * (BODY // 3)))))),
    "zst-frame": ("warc", "x.warc.zst", written(lambda: frame(pages(40, LONG)))),
    "zst-long": ("warc", "x.warc.zst", command(lambda: pages(40, LONG), "zstd", "-q", "--long=31", "--ultra", "-1", "-c")),
    "zst-long27": ("warc", "x.warc.zst", command(lambda: pages(40, LONG), "zstd", "-q", "--long=27", "-1", "-c")),
    "zst-dictionary": ("warc", "x.warc.zst", dictionary),
    "lz4-frame": ("warc", "x.warc.lz4", command(lambda: pages(40, LONG), "lz4", "-q", "-c", "-B7", "-BD")),
    "bz2-zeros": ("warc", "x.warc.bz2", command(lambda: filled(2 * GB), "bzip2", "-c")),
    "bz2-stream": ("warc", "x.warc.bz2", command(lambda: pages(10, LONG), "bzip2", "-9", "-c")),
    "xz-zeros": ("warc", "x.warc.xz", command(lambda: filled(2 * GB), "xz", "-0", "-c")),
    "xz-stream": ("warc", "x.warc.xz", command(lambda: pages(10, LONG), "xz", "--lzma2=preset=0,dict=64MiB", "-c")),
    "xz-large": ("warc", "x.warc.xz", command(lambda: pages(1, TEXT), "xz", "--lzma2=preset=0,dict=1536MiB", "-c")),
    "jsonl-line": ("jsonl", "x.jsonl.gz", written(lambda: packed(lines((b'{"text": "', GB, b"a"))))),
    "jsonl-deep": ("jsonl", "x.jsonl.gz", written(lambda: packed(lines((b'{"text": "a", "x": ', BODY, b"["))))),
    "jsonl-lists": ("jsonl", "x.jsonl.gz", written(lambda: packed(lines((b'{"text": "a", "x": [', BODY // 3 * 3, b"[],"))))),
    "jsonl-objects": ("jsonl", "x.jsonl.gz", written(lambda: packed(lines((b'{"text": "a", "x": [', BODY // 7 * 7, b'{"":0},'))))),
    "jsonl-floats": ("jsonl", "x.jsonl.gz", written(lambda: packed(lines((b'{"text": "a", "x": [', BODY // 4 * 4, b"1.5,"))))),
    "jsonl-keys": ("jsonl", "x.jsonl.gz", written(lambda: packed(keys()))),
    "jsonl-large": ("jsonl", "x.jsonl.gz", written(lambda: packed(many_lines(40, BODY)))),
    "jsonl-urls": ("jsonl", "x.jsonl.gz", written(lambda: packed(many_lines(40, BODY, b"url")))),
    "jsonl-zst": ("jsonl", "x.jsonl.zst", command(lambda: many_lines(40, BODY), "zstd", "-q", "--long=31", "--ultra", "-1", "-c")),
    "text": ("text", "x.txt.gz", written(lambda: packed(filled(3 * GB, b"a")))),
    "text-lines": ("text", "x.txt.gz", written(lambda: packed(filled(BODY, b"ab\n")))),
    "text-words": ("text", "x.txt.gz", written(lambda: packed(filled(BODY, b"ab ")))),
    "text-bare": ("text", "x.txt", sparse),
    "tar": ("text", "x.tar.gz", tar(*[(f"{n}.txt", 3 * GB if n == 0 else BODY, b"a") for n in range(106)])),
    "tar-pax": ("text", "x.tar.gz", written(lambda: packed(pax(2 * GB, tarfile.XHDTYPE)))),
    "tar-name": ("text", "x.tar.gz", written(lambda: packed(pax(2 * GB, tarfile.GNUTYPE_LONGNAME)))),
    "tar-tiny": ("text", "x.tar.gz", written(lambda: packed(small_members(500_000)))),
    "parquet-group": ("parquet", "x.parquet", table(rows(200_000, 10_000))),
    "parquet-large": ("parquet", "x.parquet", table(rows(40, BODY))),
    "parquet-skewed": ("parquet", "x.parquet", table(skewed)),
    "parquet-cell": ("parquet", "x.parquet", table(rows(1, 900 * MB))),
    "parquet-page": ("parquet", "x.parquet", table(rows(1, 390 * MB))),
    "parquet-value": ("parquet", "x.parquet", table(
        rows(1, 260 * MB), use_dictionary=True, dictionary_pagesize_limit=GB)),
    "parquet-repeated": ("parquet", "x.parquet", table(
        lambda: iter([["x" * BODY] * 100]), use_dictionary=True, dictionary_pagesize_limit=GB)),
    "parquet-book": ("parquet", "x.parquet", table(rows(1000, 400_000))),
    "parquet-dictionary": ("parquet", "x.parquet", table(rows(1000, 500_000), use_dictionary=True, dictionary_pagesize_limit=GB)),
    "parquet-footer": ("parquet", "x.parquet", footer),
}  # fmt: skip


def measured(name: str, folder: Path, pool: bool) -> dict[str, Any]:
    """What ingest.extract makes of a case."""
    kind, called, make = CASES[name]
    path = folder / called
    make(path)
    config, shards = folder / "config.yaml", ["00000", "00001"] if pool else ["00000"]
    config.write_text(
        f"ingest: {{extract: {{shards: {len(shards)}, sources: [{{name: x, kind: {kind}, paths: ['{path}']}}]}}}}\n"
    )
    words = ["--config", str(config), "--manifest", str(folder / f"{shards[-1]}.manifest.json")]
    if pool:
        held = [{"main": {shard: [f"x={path}"] for shard in shards}}, {"main": dict.fromkeys(shards, "")}]
        (folder / "sources.json").write_text(json.dumps(held))
        words += ["--sources", str(folder / "sources.json"), "main", "--also", shards[0], "--at-once", "2"]
    else:
        words += ["--files", f"x={path}"]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CHILD, *words], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    own, children = next((line.split()[1:] for line in done.stdout.splitlines() if line.startswith("PEAK")), (0, 0))
    try:
        said = json.loads((folder / f"{shards[-1]}.manifest.json").read_text())["counts"]
    except OSError:
        said = done.stderr.strip()[-600:]
    return {
        "case": name, "file_mb": round(path.stat().st_blocks * 512 / MB, 1), "peak_mb": round(int(own) / MB),
        "pool_mb": round(int(children) / MB), "seconds": round(seconds, 1), "status": done.returncode, "counts": said,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--pool", action="store_true", help="two shards at once, both of the same file")
    args = parser.parse_args()
    for name in args.cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(name, Path(folder), args.pool)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    main()
