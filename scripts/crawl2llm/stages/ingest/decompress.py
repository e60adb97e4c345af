"""Decompresses a file of any kind in pieces, told by its first bytes: gzip, bzip2, xz, zstd or LZ4; anything else comes as it is.

After damage, reading continues at the next member: of gzip, stream of bzip2 or xz, frame of zstd or LZ4 (stages/ingest/compressed.py).
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import IO, Any

from crawl2llm.stages.ingest import compressed
from crawl2llm.stages.ingest.compressed import Damage
from crawl2llm.stages.ingest.files import File
from crawl2llm.stages.ingest.text_check import SIGNATURES

PIECE = 8192  # compressed bytes that go in at a time: what was made of a damaged piece is lost
INFLATED_BYTES = 1 << 20  # most decompressed bytes held of a piece
PLAIN = 1 << 16  # bytes of a file that is not compressed read at a time
# Most bytes that xz may take, most of it for what it looks back: xz -9 needs 65 MB.
MEMORY = compressed.WINDOW + (1 << 20)
RECORD = re.compile(b"WARC/|filedesc:")  # begins a file that is not compressed, whatever its suffix says
SMALLER_DICTIONARY = f": it needs over {compressed.WINDOW >> 20} MB, so compress it again with a smaller dictionary"


@dataclass(frozen=True)
class Coding:
    """A format of members that begin alike. begin: how, in `length` bytes; signature: as many of these as are always the same."""

    name: str
    suffixes: tuple[str, ...]
    begin: re.Pattern[bytes]
    length: int
    signature: bytes
    make: Callable[[], Any]  # what has decompress, eof and unused_data, of one member
    errors: tuple[type[Exception], ...]


CODINGS = (
    Coding("gzip", (".gz", ".tgz"), re.compile(SIGNATURES["gzip"]), 3, b"\x1f\x8b\x08", lambda: zlib.decompressobj(31), (zlib.error,)),
    Coding(
        "bzip2", (".bz2", ".tbz", ".tbz2"), re.compile(SIGNATURES["bzip2"]), 10, b"BZh", bz2.BZ2Decompressor, (OSError,)
    ),
    Coding(
        "xz", (".xz", ".txz"), re.compile(SIGNATURES["xz"]), 6, b"\xfd7zXZ\x00",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY), (lzma.LZMAError,),
    ),
)  # fmt: skip
FRAME_SUFFIXES = (".zst", ".zstd", ".tzst", ".lz4")
TARS = {".tgz", ".tbz", ".tbz2", ".txz", ".tzst"}  # short for .tar and the other suffix
SUFFIXES = {*FRAME_SUFFIXES, *(suffix for coding in CODINGS for suffix in coding.suffixes)}


def decompressed_pieces(path: File) -> Generator[bytes | Damage, None, None]:
    """The bytes of a file in pieces, with damage at its place. A file whose first bytes are damaged is read by its suffix."""
    suffix = path.suffix.lower()
    with path.open("rb") as stream:
        head = stream.read(64)
        stream.seek(0)
        by_suffix = not RECORD.search(head)
        framed = bool(compressed.MAGIC.match(head))
        coding = next((coding for coding in CODINGS if coding.begin.match(head)), None)
        if not coding and not framed and by_suffix:
            coding = next((coding for coding in CODINGS if suffix in coding.suffixes), None)
            framed = suffix in FRAME_SUFFIXES
        if coding:
            yield from _member_pieces(stream, coding)
            return
        while not framed and (piece := stream.read(PLAIN)):
            yield piece
    if framed:
        yield from compressed.decompressed_pieces(path)


def is_tar(path: File) -> bool:
    """Whether a file is a tar, compressed or not, by its name."""
    return not {".tar", *TARS}.isdisjoint(suffix.lower() for suffix in path.suffixes)


def _member_pieces(stream: IO[bytes], coding: Coding) -> Iterator[bytes | Damage]:
    """The decompressed bytes of a file of any number of members, with damage at its place. NUL bytes between members are padding."""
    engine: Any = None
    data = fed = b""
    skipped = 0  # bytes between members
    while True:
        if len(data) < coding.length if engine is None else not data and getattr(engine, "needs_input", True):
            more = stream.read(PIECE)
            if not more:
                break
            data += more
        if engine is None:
            begin = coding.begin.search(data)
            before = data[: begin.start()] if begin else data[: 1 - coding.length]
            data = data[len(before) :]
            skipped += len(before.strip(b"\x00"))
            if not begin:
                continue
            if skipped:
                yield Damage(f"{coding.name}: {skipped} bytes are no {coding.name} member")
            engine, skipped = coding.make(), 0
        fed = data or fed
        try:
            out = engine.decompress(data, INFLATED_BYTES)
        except coding.errors as error:
            yield Damage(f"{coding.name}: {error}{SMALLER_DICTIONARY if 'Memory usage limit' in str(error) else ''}")
            engine, data = None, fed[1:]
            continue
        data = engine.unused_data if engine.eof else getattr(engine, "unconsumed_tail", b"")
        engine = None if engine.eof else engine
        if out:
            yield out
    skipped += 0 if engine else len(data.strip(b"\x00"))
    if skipped:
        begun = coding.signature.startswith(data[: len(coding.signature)])
        yield Damage(
            f"{coding.name}: {skipped} bytes are no {coding.name} member", unfinished=len(data) == skipped and begun
        )
    elif engine:
        yield Damage(f"{coding.name}: the file ends within a member", unfinished=True)


class Stream(io.RawIOBase):
    """The decompressed bytes of a file as a stream. Raises OSError if the file is damaged, after all bytes before that place."""

    def __init__(self, path: File) -> None:
        self.pieces = decompressed_pieces(path)
        self.left = memoryview(b"")

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer as far as the next piece goes; 0 at the end."""
        if not self.left:
            piece = next(self.pieces, b"")
            if isinstance(piece, Damage):
                raise OSError(piece.description)
            self.left = memoryview(piece)
        size = min(len(buffer), len(self.left))
        buffer[:size] = self.left[:size]
        self.left = self.left[size:]
        return size

    def close(self) -> None:
        """Let go of the file."""
        self.pieces.close()
        super().close()
