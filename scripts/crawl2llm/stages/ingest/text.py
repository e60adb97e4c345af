"""Reads plain text and JSON Lines, bare or compressed (gzip, bzip2, xz, zstd, LZ4) or in a tar, as documents."""

from __future__ import annotations

import codecs
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from crawl2llm.formats.documents import document_id
from crawl2llm.stages.ingest import decompress, json_lines, layouts
from crawl2llm.stages.ingest.charsets import decode_text
from crawl2llm.stages.ingest.files import File, bytes_to_read, is_cut
from crawl2llm.stages.ingest.settings import ExtractSettings, TextSource
from crawl2llm.stages.ingest.text_check import kind_of, why_not_text
from crawl2llm.stages.ingest.warc import Page, RejectedRecord, clean_verbatim, tidy

# What reading a file that is cut, damaged or not what its suffix says raises.
DAMAGE_ERRORS = (OSError, tarfile.TarError)
# Types of a tar's headers whose content says more of the next member, and most bytes of it.
EXTENDED_TYPES = {*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE} - {
    tarfile.GNUTYPE_SPARSE
}
HEADER = 1 << 20
BUFFER = 1 << 16  # bytes that are read at a time
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_decompressed(path: File) -> BinaryIO:
    """A stream of the file's bytes, decompressed."""
    return cast(BinaryIO, io.BufferedReader(decompress.Stream(path), BUFFER))


class Member(tarfile.TarInfo):
    """A header in a tar. One that is damaged or missing is an error: tarfile takes it for the tar's end, at any place but the first."""

    @classmethod
    def fromtarfile(cls, tar: Any) -> Member:
        """The next header of `tar`. Raises ReadError for one that is none.

        `tar.ended`: whether the last one was the mark of a tar's end, after which the file may end.
        """
        at, ended, tar.ended = tar.offset, getattr(tar, "ended", False), False
        try:
            return cast(Member, super().fromtarfile(tar))
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            tar.ended = True
            raise
        except RecursionError:
            raise tarfile.ReadError(f"too many headers for a tar's member at byte {at}") from None
        except tarfile.HeaderError as error:
            if ended and isinstance(error, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
                raise
            raise tarfile.ReadError(f"no header of a tar's member at byte {at}: {error}") from error

    def _proc_member(self, tar: Any) -> Any:
        """What tarfile makes of the header, by its type. Raises ReadError for a name or an extended header that it would hold whole."""
        if self.type in EXTENDED_TYPES and self.size > HEADER:
            raise tarfile.ReadError(f"a header of a tar's member has {self.size:,} bytes, at most {HEADER:,}")
        return super()._proc_member(tar)  # type: ignore[misc]  # tarfile names it as the place for this


def file_members(path: File) -> Iterator[tuple[str, IO[bytes]]]:
    """(member, stream) of each regular file in a tar, in the tar's order; the file itself has no member name.

    A name that a tar holds again gets a number: `a.txt`, `a.txt (2)`.
    """
    with open_decompressed(path) as stream:
        if not decompress.is_tar(path):
            yield "", stream
            return
        seen: dict[str, int] = {}
        # Several tars, one after the other, are read as one.
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Member, ignore_zeros=True) as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every member of a long tar
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    # A name in another encoding than UTF-8 comes with lone surrogates.
                    yield (
                        _unique_name(
                            member.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), seen
                        ),
                        content,
                    )


def _unique_name(name: str, seen: dict[str, int]) -> str:
    """The name, with a number where it was there before: `a.txt (2)`."""
    unique = name
    while unique in seen:
        seen[name] += 1
        unique = f"{name} ({seen[name]})"
    seen[unique] = 1
    return unique


def why_binary(raw: bytes) -> str | None:
    """What a file is that is no text, by its first bytes; None for what may be text."""
    if kind := kind_of(raw):
        return f"the file is {kind}"
    return "the file has NUL bytes" if b"\x00" in raw[:4096] and raw[:2] not in UTF_16 else None


def decode_file(raw: bytes) -> tuple[str, dict[str, str]]:
    """(text, {"charset": its name} if it is not UTF-8), as pages are decoded."""
    if raw.isascii():
        return raw.decode(), {}
    text, charset, _ = decode_text(raw, None)
    return text, {} if charset == "utf-8" else {"charset": charset}


def unwrap_lines(text: str) -> str:
    """Text with hard-wrapped lines joined: a single line end becomes a space, a blank line stays a paragraph's end."""
    paragraphs = (" ".join(part.split()) for part in tidy(text).split("\n\n"))
    return "\n\n".join(part for part in paragraphs if part)


def text_chunks(text: str, words: int) -> Iterator[str]:
    """The text in pieces of about `words` words, cut between paragraphs, and in a longer one between its lines; 0 leaves it whole."""
    if not words:
        yield text
        return
    piece: list[str] = []
    size = 0
    for part, end in _paragraph_parts(text, words):
        piece.append(part)
        size += len(part.split())
        if size >= words:
            yield "".join(piece)
            piece, size = [], 0
        else:
            piece.append(end)
    if piece:
        yield "".join(piece)


def _paragraph_parts(text: str, words: int) -> Iterator[tuple[str, str]]:
    """(part, what stands behind it) of a text: paragraphs, and the lines of those with more than `words` words."""
    paragraphs = text.split("\n\n")
    for left, paragraph in zip(range(len(paragraphs) - 1, -1, -1), paragraphs, strict=True):
        *lines, last = paragraph.split("\n") if len(paragraph.split()) > words else [paragraph]
        yield from ((line, "\n") for line in lines)
        yield last, "\n\n" if left else ""


@dataclass
class Place:
    """Where a text comes from: the source, the file's name below its root, and the member where the file is a tar."""

    source: str
    file: str
    member: str = ""

    @property
    def key(self) -> str:
        """File and member in one, as in the URL of a file in a JAR."""
        return f"{self.file}!/{self.member}" if self.member else self.file

    @property
    def url(self) -> str:
        """The same with the source, as an address."""
        return f"file:{self.source}/{self.key}"


def is_empty(path: File) -> bool:
    """Whether a compressed file has no byte. That is damage, but gzip reads it as an empty text without an error."""
    return isinstance(path, Path) and path.suffix.lower() in decompress.SUFFIXES and not bytes_to_read(path)


class TextReader:
    """Plain text files: `source` may set `unwrap` (join hard-wrapped lines), `chunk_words`, and `preset: code` (texts stay as they are)."""

    def __init__(self, source: TextSource, settings: ExtractSettings) -> None:
        self.source, self.settings, self.layout = source, settings, layouts.source_layout(source)

    def __call__(self, path: File, file: str = "") -> Iterator[Page | RejectedRecord]:
        """Every piece of every text in the file. file: its name below the source's root."""
        place = Place(self.source.name, file or path.name)
        if is_empty(path):
            yield RejectedRecord("broken_file", place.key, place.url, "the file is empty")
            return
        limit, words = self.settings.max_body_bytes, self.source.chunk_words or 0
        try:
            for member, stream in file_members(path):
                place.member = member
                raw = stream.read(limit + 1)
                if len(raw) > limit:
                    yield RejectedRecord("too_large", place.key, place.url, f"over {limit} bytes")
                    continue
                if kind := why_binary(raw):
                    yield RejectedRecord("not_text", place.key, place.url, kind)
                    continue
                text, charset = decode_file(raw)
                text = self.document_text(text)
                for row, piece in enumerate(text_chunks(text, words)):
                    # `piece` says that the document is a part of its file.
                    part = {"piece": row} if words else {}
                    facts = {"title": Path(member or place.file).stem, **charset, **part}
                    yield self.page_of_text(place, row, piece, facts)
        except DAMAGE_ERRORS as error:
            yield RejectedRecord("broken_file", place.key, place.url, str(error)[:300])

    def document_text(self, text: str) -> str:
        """A text of a file as its document has it."""
        if self.source.unwrap:
            return unwrap_lines(text)
        return clean_verbatim(text) if self.layout.verbatim else tidy(text)

    def page_of_text(
        self, place: Place, row: int, text: str, facts: dict[str, Any], unreadable: tuple[str, ...] = ()
    ) -> Page | RejectedRecord:
        """One document; its id comes from (source, file, member, row), its URL is `file:<source>/<file>[!/<member>]#<row>`.

        unreadable: columns beside the text that hold what cannot be read.
        """
        key, url = f"{place.key}#{row}", f"{place.url}#{row}"
        if len(text) < self.settings.min_characters:
            return RejectedRecord("no_text", key, url, f"{len(text)} characters")
        if why := why_not_text(text):
            return RejectedRecord("not_text", key, url, why)
        facts |= {"member": place.member} if place.member else {}
        address = str(facts.pop("url", "") or "")
        if record := facts.pop("id", ""):
            # As of a WARC record: the same id and address are the same document, in whatever file.
            url = address or f"record:{place.source}/{record}"
            date = facts.pop("date", None)
            return Page(document_id(record, url), text, url, date, {**facts, "record_id": record}, unreadable)
        name = document_id(place.source, place.file, place.member, str(row))
        return Page(name, text, address or url, facts.pop("date", None), facts, unreadable)

    def rejected_row(self, reason: str, place: Place, row: int, detail: str) -> RejectedRecord:
        """A row as a RejectedRecord."""
        return RejectedRecord(reason, f"{place.key}#{row}", f"{place.url}#{row}", detail)


class JsonLinesReader(TextReader):
    """JSON Lines: text, address, date and so on by the source's layout (stages/ingest/layouts.py)."""

    def __call__(self, path: File, file: str = "") -> Iterator[Page | RejectedRecord]:
        """Every line of every file. file: its name below the source's root."""
        limit = self.settings.max_body_bytes
        place = Place(self.source.name, file or path.name)
        if is_empty(path):
            yield RejectedRecord("broken_file", place.key, place.url, "the file is empty")
            return
        try:
            for member, stream in file_members(path):
                place.member, row = member, -1
                while line := stream.readline(limit + 1):
                    row += 1
                    if len(line) > limit:
                        while line and not line.endswith(b"\n"):
                            line = stream.readline(limit + 1)
                        yield self.rejected_row("too_large", place, row, f"a line over {limit} bytes")
                        continue
                    if not line.endswith(b"\n") and is_cut(path):
                        return
                    if line.strip():
                        yield self.page_of_line(place, row, line)
        except DAMAGE_ERRORS as error:
            if not is_cut(path):
                yield RejectedRecord("broken_file", place.key, place.url, str(error)[:300])

    def page_of_line(self, place: Place, row: int, line: bytes) -> Page | RejectedRecord:
        """One line as a Page or a RejectedRecord."""
        try:
            body, lost = json_lines.parse(line)
        except (ValueError, RecursionError) as error:
            return self.rejected_row("broken_record", place, row, str(error)[:300])
        text = layouts.text_of(body, self.layout) if isinstance(body, dict) else None
        if text is None:
            if bad := [name for name in self.layout.text if layouts.is_lost(name, lost)]:
                return self.rejected_row("broken_record", place, row, f"{bad[0]} cannot be read")
            columns = " or ".join(map(repr, self.layout.text))
            return self.rejected_row("no_text", place, row, f"no string under {columns}")
        return self.page_of_text(place, row, text, *layouts.row_facts(body, self.layout, lost))
