"""Reads files in zstd or LZ4 frame by frame. Damage costs its frame alone: reading continues at the next.

FastWARC's and Arrow's readers end at the first damage, in silence where a file is cut, and lose what they had read ahead. A frame's end
is found by its headers before it is decompressed. Formats: RFC 8878 (zstd), lz4_Frame_format.md of the LZ4 repository, and for WARC files
with a dictionary https://iipc.github.io/warc-specifications/specifications/warc-zstd/.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import zstandard
from fastwarc.stream_io import Lz4Reader

from scripts.ingest.files import File

PIECE = 1 << 14  # decompressed bytes at a time: what was made of a damaged piece is lost
DICTIONARY = 1 << 24  # most bytes of a dictionary
ZSTD, LZ4 = 0xFD2FB528, 0x184D2204
SKIPPABLE = range(0x184D2A50, 0x184D2A60)  # of both
WITH_DICTIONARY = 0x184D2A5D  # a skippable frame that holds the dictionary of a WARC file
MAGIC = re.compile(rb"\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|[\x50-\x5f]\x2a\x4d\x18")


UNFINISHED = "the file ends within the frame that begins at byte {at}"


@dataclass
class Damage:
    """Bytes that belong to no record, in words. unfinished: whether nothing else is wrong than that the file ends there."""

    what: str
    unfinished: bool = False


class Part(io.RawIOBase):
    """The bytes of a stream from `start` to `end`, as a stream."""

    def __init__(self, stream: IO[bytes], start: int, end: int) -> None:
        self.stream, self.start, self.end = stream, start, end
        self.at = start

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from another place."""
        return True

    def tell(self) -> int:
        """The place, from the part's start."""
        return self.at - self.start

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; returns it, from the part's start."""
        self.at = {os.SEEK_SET: self.start, os.SEEK_CUR: self.at, os.SEEK_END: self.end}[whence] + place
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; all that are left where it is negative."""
        left = max(self.end - self.at, 0)
        self.stream.seek(self.at)
        data = self.stream.read(left if size < 0 else min(size, left))
        self.at += len(data)
        return data


def decompressed(path: File) -> Iterator[bytes | Damage]:
    """The decompressed bytes of a file in pieces, with damage at its place. NUL bytes after the last frame are padding."""
    dictionary = None
    with path.open("rb") as stream:
        size, at = stream.seek(0, os.SEEK_END), 0
        while at < size:
            end, wrong = _frame(stream, at, size)
            stream.seek(at)
            magic = int.from_bytes(stream.read(4), "little")
            if magic == WITH_DICTIONARY and at == 0 and not wrong:
                dictionary = _dictionary(stream, end)
            elif magic in (ZSTD, LZ4):
                yield from _pieces(Part(stream, at, end), magic, dictionary)
            if wrong:
                end = _next(stream, at + 1, size)
                if not _padding(stream, at, end):
                    yield Damage(wrong.format(at=at, size=end - at), wrong == UNFINISHED)
            at = end


def _frame(stream: IO[bytes], at: int, size: int) -> tuple[int, str]:
    """(where the frame ends that begins at `at`, what is wrong with it, or "")."""
    stream.seek(at)
    try:
        if not _skip_frame(stream):
            return size, "{size} bytes from byte {at} on are no frame of zstd or LZ4"
        end = stream.tell()
    except EOFError:
        end = size + 1
    return (end, "") if end <= size else (size, UNFINISHED)


def _pieces(part: Part, magic: int, dictionary: zstandard.ZstdCompressionDict | None) -> Iterator[bytes | Damage]:
    try:
        reader = _reader(part, magic, dictionary)
        while piece := reader.read(PIECE):
            yield piece
    except (OSError, ValueError, zstandard.ZstdError) as error:
        yield Damage(f"the frame that begins at byte {part.start} is damaged: {error}")


def _reader(part: Part, magic: int, dictionary: zstandard.ZstdCompressionDict | None) -> Any:
    if magic == LZ4:
        return Lz4Reader(part)
    return zstandard.ZstdDecompressor(dict_data=dictionary).stream_reader(cast(IO[bytes], part), read_size=PIECE)


def _dictionary(stream: IO[bytes], end: int) -> zstandard.ZstdCompressionDict:
    """The dictionary of the skippable frame whose magic number has been read; it may be compressed itself."""
    stream.seek(4, os.SEEK_CUR)
    data = stream.read(min(end - stream.tell(), DICTIONARY))
    if data[:4] == ZSTD.to_bytes(4, "little"):
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=DICTIONARY)
    return zstandard.ZstdCompressionDict(data)


def _next(stream: IO[bytes], at: int, size: int) -> int:
    """Where the next magic number from `at` on is; the file's size where there is none."""
    while at < size:
        stream.seek(at)
        block = stream.read(1 << 20)
        if found := MAGIC.search(block):
            return at + found.start()
        at += max(len(block) - 3, 1)
    return size


def _padding(stream: IO[bytes], at: int, end: int) -> bool:
    """Whether there is nothing but NUL bytes between `at` and `end`."""
    part = Part(stream, at, end)
    return not any(block.strip(b"\x00") for block in iter(lambda: part.read(1 << 20), b""))


def _number(stream: IO[bytes], size: int) -> int:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return int.from_bytes(data, "little")


def _skip_frame(stream: IO[bytes]) -> bool:
    """Go to the end of the frame that begins here; False where none does."""
    magic = _number(stream, 4)
    if magic in SKIPPABLE:
        size = _number(stream, 4)
        stream.seek(size, os.SEEK_CUR)
        return True
    if magic == ZSTD:
        return _skip_zstd(stream)
    return magic == LZ4 and _skip_lz4(stream)


def _skip_zstd(stream: IO[bytes]) -> bool:
    flags = _number(stream, 1)
    single = flags >> 5 & 1
    window, dictionary, content = 1 - single, (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
    stream.seek(window + dictionary + content, os.SEEK_CUR)
    last = False
    while not last:
        block = _number(stream, 3)
        last, kind = bool(block & 1), block >> 1 & 3
        if kind == 3:  # reserved
            return False
        stream.seek(1 if kind == 1 else block >> 3, os.SEEK_CUR)  # 1: one byte, repeated
    stream.seek(4 * (flags >> 2 & 1), os.SEEK_CUR)  # a checksum
    return True


def _skip_lz4(stream: IO[bytes]) -> bool:
    flags = _number(stream, 1)
    if flags >> 6 != 1:  # the format's version
        return False
    stream.seek(2 + 8 * (flags >> 3 & 1) + 4 * (flags & 1), os.SEEK_CUR)
    checksum = 4 * (flags >> 4 & 1)
    while block := _number(stream, 4):
        stream.seek((block & 0x7FFFFFFF) + checksum, os.SEEK_CUR)
    stream.seek(4 * (flags >> 2 & 1), os.SEEK_CUR)
    return True


class Stream(io.RawIOBase):
    """The decompressed bytes of a file as a stream. Raises OSError where the file is damaged, after all bytes before that place."""

    def __init__(self, path: File) -> None:
        self.pieces = decompressed(path)
        self.left = b""

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer as far as the next piece goes; 0 at the end."""
        if not self.left:
            piece = next(self.pieces, b"")
            if isinstance(piece, Damage):
                raise OSError(piece.what)
            self.left = piece
        size = min(len(buffer), len(self.left))
        buffer[:size] = self.left[:size]
        self.left = self.left[size:]
        return size
