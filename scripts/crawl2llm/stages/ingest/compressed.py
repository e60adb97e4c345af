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
from pathlib import Path
from typing import IO, Any, cast

import zstandard
from fastwarc.stream_io import Lz4Reader

from crawl2llm.stages.ingest.files import File, FileHead
from crawl2llm.stages.ingest.text_check import SIGNATURES

PIECE = 1 << 14  # decompressed bytes at a time: what was made of a damaged piece is lost
DICTIONARY = 1 << 24  # most bytes of a dictionary
WINDOW = 1 << 27  # most bytes that a frame of zstd may look back, which are held: zstd's own limit without --long
ZSTD, LZ4 = 0xFD2FB528, 0x184D2204
SKIPPABLE = range(0x184D2A50, 0x184D2A60)  # of both
WITH_DICTIONARY = 0x184D2A5D  # a skippable frame that holds the dictionary of a WARC file
MAGIC = re.compile(b"|".join([SIGNATURES["zstd"], SIGNATURES["LZ4"], rb"[\x50-\x5f]\x2a\x4d\x18"]))


UNFINISHED_FRAME = "the file ends within the frame that begins at byte {at}"
NO_FRAME = "{size} bytes from byte {at} on are no frame of zstd or LZ4"
MEGABYTES = WINDOW >> 20
LONG_WINDOW = f": it needs over {MEGABYTES} MB, so it was made with zstd --long=28 or more; compress it again without"


@dataclass
class Damage:
    """Bytes that belong to no record, in words. unfinished: whether nothing else is wrong than that the file ends there."""

    description: str
    unfinished: bool = False


class Part(io.RawIOBase):
    """The bytes of the frame that begins at byte `start` of a stream, as a stream that is read in order.

    Where the frame ends is found by its headers as they come: what is looked for first would be transferred twice.
    """

    def __init__(self, stream: IO[bytes], start: int, size: int) -> None:
        """size: the file's."""
        self.stream, self.start, self.size = stream, start, size
        self.at = stream.seek(start)  # of the next byte from the stream
        self.header_bytes = bytearray()  # of headers, which are yet to be handed out
        self.left = 0  # bytes behind the last header that are yet to be handed out
        self.over = False  # whether the last header was seen
        self.wrong = ""  # with the frame, in words
        self.magic = 0
        self.parts = self._block_sizes()
        self._next_header()  # what kind of frame it is

    def readable(self) -> bool:
        """It can be read."""
        return True

    def tell(self) -> int:
        """The place, from the part's start."""
        return self.at - len(self.header_bytes) - self.start

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer only at the frame's end; after a header that is wrong come all to the file's end. size: not negative."""
        out = bytearray()
        while len(out) < size and (self.header_bytes or self.left or self._next_header()):
            wanted = size - len(out)
            if self.header_bytes:
                out += self.header_bytes[:wanted]
                del self.header_bytes[:wanted]
            else:
                piece = self.stream.read(min(wanted, self.left))
                out += piece
                self.at += len(piece)
                self.left = self.left - len(piece) if piece else 0
        return bytes(out)

    def find_end(self) -> int:
        """Where the frame ends, whether it was read or not: its other headers alone are looked at. Where it is wrong, the file's size.

        What was not read by then cannot be read any more.
        """
        while not self.over:
            self._next_header()
            self.header_bytes.clear()
        return self.size if self.wrong else self.at + self.left

    def _next_header(self) -> bool:
        """Go to the next header, and read it; False if there is none. `wrong` is then what is wrong with the frame, or ""."""
        if self.over:
            return False
        if self.left:
            self.at = self.stream.seek(self.at + self.left)
        try:
            self.left = next(self.parts, -1)
            self.over = self.left < 0
            if self.at + self.left > self.size:
                raise EOFError
        except EOFError:
            self.over, self.wrong = True, UNFINISHED_FRAME
        except ValueError:
            self.over, self.wrong = True, NO_FRAME
        self.left = self.size - self.at if self.wrong else max(self.left, 0)
        return bool(self.header_bytes or self.left)

    def _block_sizes(self) -> Iterator[int]:
        """The bytes that follow each header. Raises EOFError, ValueError."""
        self.magic = self._read_number(4)
        if self.magic in SKIPPABLE:
            yield self._read_number(4)
        elif self.magic == ZSTD:
            yield from self._zstd_sizes()
        elif self.magic == LZ4:
            yield from self._lz4_sizes()
        else:
            raise ValueError(self.magic)

    def _zstd_sizes(self) -> Iterator[int]:
        flags = self._read_number(1)
        single = flags >> 5 & 1
        window, dictionary, content = 1 - single, (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
        yield window + dictionary + content
        last = False
        while not last:
            block = self._read_number(3)
            last, kind = bool(block & 1), block >> 1 & 3
            if kind == 3:
                raise ValueError("a reserved kind of block")
            yield 1 if kind == 1 else block >> 3  # 1: one byte, repeated
        yield 4 * (flags >> 2 & 1)  # a checksum

    def _lz4_sizes(self) -> Iterator[int]:
        flags = self._read_number(1)
        if flags >> 6 != 1:
            raise ValueError("another version of the format")
        yield 2 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
        checksum = 4 * (flags >> 4 & 1)
        while block := self._read_number(4):
            yield (block & 0x7FFFFFFF) + checksum
        yield 4 * (flags >> 2 & 1)

    def _read_number(self, size: int) -> int:
        data = self.stream.read(size)
        self.at += len(data)
        self.header_bytes += data
        if len(data) < size:
            raise EOFError
        return int.from_bytes(data, "little")


def decompressed_pieces(path: File) -> Iterator[bytes | Damage]:
    """The decompressed bytes of a file in pieces, with damage at its place. NUL bytes after the last frame are padding."""
    dictionary = None
    with path.open("rb") as stream:
        known_size = None if isinstance(path, Path | FileHead) else path.facts.bytes
        # To go to the end of a remote file and back is another request.
        size, at = stream.seek(0, os.SEEK_END) if known_size is None else known_size, 0
        while at < size:
            part = Part(stream, at, size)
            if part.magic == WITH_DICTIONARY and at == 0 and not part.wrong:
                try:
                    dictionary = _read_dictionary(stream, part.find_end())
                except (ValueError, zstandard.ZstdError) as error:
                    yield Damage(f"the dictionary is damaged: {error}")
            elif part.magic in (ZSTD, LZ4):
                yield from _frame_pieces(part, dictionary)
            end = part.find_end()
            if part.wrong:
                end = _find_magic(stream, at + 1, size)
                if not _is_padding(stream, at, end):
                    yield Damage(part.wrong.format(at=at, size=end - at), part.wrong == UNFINISHED_FRAME)
            at = end


def _frame_pieces(part: Part, dictionary: zstandard.ZstdCompressionDict | None) -> Iterator[bytes | Damage]:
    try:
        reader = _frame_reader(part, dictionary)
        while piece := reader.read(PIECE):
            yield piece
    except (OSError, ValueError, zstandard.ZstdError) as error:
        more = LONG_WINDOW if "too much memory" in str(error) else ""
        yield Damage(f"the frame that begins at byte {part.start} is damaged: {error}{more}")


def _frame_reader(part: Part, dictionary: zstandard.ZstdCompressionDict | None) -> Any:
    if part.magic == LZ4:
        return Lz4Reader(part)
    engine = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=WINDOW)
    return engine.stream_reader(cast(IO[bytes], part), read_size=PIECE)


def _read_dictionary(stream: IO[bytes], end: int) -> zstandard.ZstdCompressionDict:
    """The dictionary of the skippable frame that begins the file; it may be compressed itself. Raises ValueError, ZstdError."""
    stream.seek(8)
    data = stream.read(min(end - 8, DICTIONARY + 1))
    if data[:4] == ZSTD.to_bytes(4, "little"):
        # Not by `decompress`, which makes as much of it as the frame says that it holds.
        data = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(data).read(DICTIONARY + 1)
    if len(data) > DICTIONARY:
        raise ValueError(f"it has over {DICTIONARY:,} bytes")
    return zstandard.ZstdCompressionDict(data)


def _find_magic(stream: IO[bytes], at: int, size: int) -> int:
    """Where the next magic number from `at` on is; the file's size if there is none."""
    while at < size:
        stream.seek(at)
        block = stream.read(1 << 20)
        if match := MAGIC.search(block):
            return at + match.start()
        at += max(len(block) - 3, 1)
    return size


def _is_padding(stream: IO[bytes], at: int, end: int) -> bool:
    """Whether there is nothing but NUL bytes between `at` and `end`."""
    stream.seek(at)
    while at < end and (block := stream.read(min(1 << 20, end - at))):
        if block.strip(b"\x00"):
            return False
        at += len(block)
    return True
