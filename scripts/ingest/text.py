"""Reads plain text and JSON Lines, bare or compressed (.gz, .zst) or in a tar, as documents."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa

from scripts.common.documents import document_id
from scripts.ingest.warc import Page, Rejected, tidy

# What reading a file that is cut, damaged or not what its suffix says raises.
BROKEN = (OSError, EOFError, tarfile.TarError, zlib.error, pa.ArrowException)


def opened(path: Path) -> BinaryIO:
    """A stream of the file's bytes, decompressed by its suffix."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix in {".zst", ".zstd"}:
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"), 1 << 20)
    return path.open("rb")


def members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """(member, stream) of each regular file in a tar, in the tar's order; the file itself has no member name.

    A name that a tar holds again is told apart by its number: `a.txt`, `a.txt (2)`.
    """
    with opened(path) as stream:
        if ".tar" not in path.suffixes and path.suffix != ".tgz":
            yield "", stream
            return
        seen: dict[str, int] = {}
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every member of a long tar
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    # A name in another encoding than UTF-8 comes with lone surrogates.
                    yield (
                        _once(member.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), seen),
                        content,
                    )


def _once(name: str, seen: dict[str, int]) -> str:
    """The name, with a number where it was there before: `a.txt (2)`."""
    found = name
    while found in seen:
        seen[name] += 1
        found = f"{name} ({seen[name]})"
    seen[found] = 1
    return found


def unwrapped(text: str) -> str:
    """Text with hard-wrapped lines joined: a single line end becomes a space, a blank line stays a paragraph's end."""
    paragraphs = (" ".join(part.split()) for part in tidy(text).split("\n\n"))
    return "\n\n".join(part for part in paragraphs if part)


def chunks(text: str, words: int) -> Iterator[str]:
    """The text in pieces of about `words` words, cut between paragraphs; 0 leaves it whole."""
    if not words:
        yield text
        return
    piece: list[str] = []
    size = 0
    for paragraph in text.split("\n\n"):
        piece.append(paragraph)
        size += len(paragraph.split())
        if size >= words:
            yield "\n\n".join(piece)
            piece, size = [], 0
    if piece:
        yield "\n\n".join(piece)


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


class TextReader:
    """Plain text files: `source` may set `unwrap` (join hard-wrapped lines) and `chunk_words`."""

    def __init__(self, source: dict[str, Any], settings: dict[str, Any]) -> None:
        self.source, self.settings = source, settings

    def __call__(self, path: Path, file: str = "") -> Iterator[Page | Rejected]:
        """Every piece of every text in the file. file: its name below the source's root."""
        place = Place(self.source["name"], file or path.name)
        limit, words = self.settings["max_body_bytes"], self.source.get("chunk_words", 0)
        try:
            for member, stream in members(path):
                place.member = member
                raw = stream.read(limit + 1)
                if len(raw) > limit:
                    yield Rejected("too_large", place.key, place.url, f"over {limit} bytes")
                    continue
                text = raw.decode("utf-8-sig", "replace")
                text = unwrapped(text) if self.source.get("unwrap") else tidy(text)
                for row, piece in enumerate(chunks(text, words)):
                    # `piece` says that the document is a part of its file.
                    part = {"piece": row} if words else {}
                    yield self.page(place, row, piece, {"title": Path(member or place.file).stem, **part})
        except BROKEN as error:
            yield Rejected("broken_file", place.key, place.url, str(error)[:300])

    def page(self, place: Place, row: int, text: str, facts: dict[str, Any]) -> Page | Rejected:
        """One document; its id comes from (source, file, member, row), its URL is `file:<source>/<file>[!/<member>]#<row>`."""
        key, url = f"{place.key}#{row}", f"{place.url}#{row}"
        if len(text) < self.settings["min_characters"]:
            return Rejected("no_text", key, url, f"{len(text)} characters")
        facts |= {"member": place.member} if place.member else {}
        name = document_id(place.source, place.file, place.member, str(row))
        return Page(name, text, str(facts.pop("url", "") or url), facts.pop("date", None), facts)


class JsonLinesReader(TextReader):
    """JSON Lines: the text is under `text_key` (default `text`); `url`, `title` and `date` are taken where present."""

    def __call__(self, path: Path, file: str = "") -> Iterator[Page | Rejected]:
        """Every line of every file. file: its name below the source's root."""
        key, limit = self.source.get("text_key", "text"), self.settings["max_body_bytes"]
        place = Place(self.source["name"], file or path.name)
        try:
            for member, stream in members(path):
                place.member, row = member, -1
                while line := stream.readline(limit + 1):
                    row += 1
                    if len(line) > limit:
                        while line and not line.endswith(b"\n"):
                            line = stream.readline(limit + 1)
                        yield self.rejected("too_large", place, row, f"a line over {limit} bytes")
                        continue
                    if line.strip():
                        yield self.line(place, row, line, key)
        except BROKEN as error:
            yield Rejected("broken_file", place.key, place.url, str(error)[:300])

    def rejected(self, reason: str, place: Place, row: int, detail: str) -> Rejected:
        """A line as a Rejected."""
        return Rejected(reason, f"{place.key}#{row}", f"{place.url}#{row}", detail)

    def line(self, place: Place, row: int, line: bytes, key: str) -> Page | Rejected:
        """One line as a Page or a Rejected."""
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            return self.rejected("broken_record", place, row, str(error)[:300])
        text = body.get(key) if isinstance(body, dict) else None
        if not isinstance(text, str):
            return self.rejected("no_text", place, row, f"no string under {key!r}")
        facts = {k: tidy(str(body[k])) for k in ("url", "title", "date") if isinstance(body.get(k), str | int)}
        return self.page(place, row, tidy(text), facts)
