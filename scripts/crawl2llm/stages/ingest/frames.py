"""Cuts a WARC, WET or ARC file into its records, so that every byte belongs to a record or to damage that is reported.

What a record says is read by FastWARC; where it begins and ends is found here. FastWARC's iterator stops at the first damage or, in
quirks mode, steps over it in silence, and it finds nothing in a small gzip file that is cut. After damage, reading continues
at the next member or frame (stages/ingest/decompress.py), or first line of a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from crawl2llm.stages.ingest.compressed import Damage
from crawl2llm.stages.ingest.decompress import decompressed_pieces
from crawl2llm.stages.ingest.files import File

HEADER = 1 << 16  # longest record header in bytes
VERSION = rb"WARC/\d\.\d{1,2}[ \t\r]*\n"
# A record of ARC begins with one line: URL, IP address, date, MIME type, in version 2 status, checksum, location, offset and file,
# and the length (https://archive.org/web/researcher/ArcFileFormat.php).
LINE = rb"[a-z][a-z0-9+.-]{1,20}:[^\n]{0,8192} [^ \n]{1,256} \d{12,18} [^\n]{1,2560} \d{1,18}[ \t\r]*\n"
BLANK = re.compile(rb"[\r\n\t \x00]+")
END = re.compile(rb"\n\r*\n")  # some writers end lines with \n, \r\r\n
LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*(\d{1,18})[ \t\r]*$", re.IGNORECASE | re.MULTILINE)


class Grammar:
    """How records of a format begin and end. longest: bytes of a first line, as far as it is needed to tell one."""

    longest = 32

    def __init__(self, begin: bytes, between: bytes) -> None:
        self.first = re.compile(begin)
        self.next = re.compile(rb"\n" + begin)
        self.within = re.compile(between + rb"(?=" + begin + rb")")  # in a block whose length is too long

    def may_begin_record(self, sample: bytes, size: int) -> bool:
        """Whether bytes at the end of a file may be the beginning of a record. sample: the first of them. size: how many they are."""
        return b"WARC/".startswith(sample[:5])

    def parse_header(self, data: bytearray) -> tuple[int, int] | None:
        """(bytes of the record header at the beginning of `data`, length of its block), or None if there is no whole one."""
        end = END.search(data, 0, HEADER) if self.first.match(data) else None
        length = LENGTH.search(data, 0, end.end()) if end else None
        return (end.end(), int(length.group(1))) if end and length else None


class ArcGrammar(Grammar):
    """The same of ARC, whose header is one line."""

    longest = 12_000

    def may_begin_record(self, sample: bytes, size: int) -> bool:
        """As of WARC; a line of ARC begins with any address."""
        return size <= self.longest

    def parse_header(self, data: bytearray) -> tuple[int, int] | None:
        """See Grammar."""
        line = self.first.match(data, 0, HEADER)
        return (line.end(), int(line.group().split()[-1])) if line else None


WARC = Grammar(VERSION, rb"(?<!\r)(?:\r*+\n){2}")
ARC = ArcGrammar(LINE, rb"(?<!\r)\r*+\n")


@dataclass
class Frame:
    """A record's bytes: its header with the blank line after it (ARC: its line), and its block.

    The block is shorter than `length` where the file is cut, and empty if it would be larger than the limit.
    `offset`: its first byte in the decompressed file.
    """

    offset: int
    header: bytes
    block: bytes
    length: int
    arc: bool = False


class Window:
    """The part of a stream that is looked at, `data`. Damage in the stream is a wall that nothing is read across."""

    def __init__(self, pieces: Iterator[bytes | Damage]) -> None:
        self.pieces = pieces
        self.data = bytearray()
        self.at = 0  # of the first byte in `data`, in the stream
        self.wall: Damage | None = None
        self.ended = False

    def fill(self, size: int) -> bool:
        """Have `size` bytes in `data`; False if the stream ends or is damaged before."""
        while len(self.data) < size and not self.wall and not self.ended:
            piece = next(self.pieces, None)
            if isinstance(piece, Damage):
                self.wall = piece
            elif piece is None:
                self.ended = True
            else:
                self.data += piece
        return len(self.data) >= size

    def drop(self, size: int) -> int:
        """Let go of up to `size` bytes, read as they come; returns how many there were."""
        gone = 0
        while gone < size and self.fill(1):
            part = min(size - gone, len(self.data))
            self._drop_bytes(part)
            gone += part
        return gone

    def drop_blank(self) -> None:
        """Let go of line ends, blanks and NUL padding."""
        while self.fill(1) and (blank := _skip_blank(self.data)):
            self._drop_bytes(blank)

    def _drop_bytes(self, size: int) -> None:
        del self.data[:size]
        self.at += size


def _skip_blank(data: bytearray, at: int = 0) -> int:
    """Where the blank bytes from `at` on end."""
    match = BLANK.match(data, at)
    return match.end() if match else at


def _find_grammar(data: bytearray) -> Grammar:
    """The grammar of a file that begins so; damage may come before the first record."""
    if WARC.first.match(data) or WARC.next.search(data):
        return WARC
    return ARC if ARC.first.match(data) or ARC.next.search(data) or data.startswith(b"filedesc:") else WARC


def frames(path: File, limit: int) -> Iterator[Frame | Damage]:
    """The records of a file in order, and the damage between them. A block over `limit` bytes is skipped, not kept in memory."""
    window = Window(decompressed_pieces(path))
    lost, sample = 0, b""  # skipped bytes that belong to no record, and the first of them
    grammar = None
    while True:
        window.drop_blank()
        whole = window.fill(HEADER)
        grammar = grammar or _find_grammar(window.data)
        sizes = grammar.parse_header(window.data)
        if window.data and not sizes:
            following = grammar.next.search(window.data)
            # A first line may begin in the last bytes of a window that is not the last.
            size = following.start() + 1 if following else len(window.data) - (grammar.longest if whole else 0)
            sample = sample or bytes(window.data[:40])
            lost += window.drop(size)
            continue
        if lost:
            ended = not sizes and (window.wall is None or window.wall.unfinished)
            yield Damage(
                f"{lost} bytes belong to no record: {sample!r}...", ended and grammar.may_begin_record(sample, lost)
            )
            lost, sample = 0, b""
        if not sizes:
            if window.wall is None:
                return
            yield window.wall
            window.wall = None
            continue

        start, length = sizes
        offset = window.at
        if length > limit:
            header = bytes(window.data[:start])
            window.drop(start)
            missing = length - window.drop(length)
            yield Frame(offset, header, b"", length, grammar is ARC)
        else:
            window.fill(start + length + 64)
            end = min(start + length, len(window.data))
            missing = start + length - end
            after = _skip_blank(window.data, end)
            if missing or not (after == len(window.data) or grammar.first.match(window.data, after)):
                # The length is wrong. Too long, it takes in the next record, which is given back.
                within = grammar.within.search(window.data, start, end + 16)
                if within and within.start() < end:
                    end, missing = within.start(), 0
            block = bytes(window.data[start:end])
            yield Frame(offset, bytes(window.data[:start]), block, len(block) + missing, grammar is ARC)
            window.drop(end)
        if missing and not window.wall:
            yield Damage(f"the file ends {missing} bytes before the record does", unfinished=True)
