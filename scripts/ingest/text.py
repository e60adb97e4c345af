"""Reads plain text and JSON Lines, bare or compressed (.gz, .zst) or in a tar, as documents."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
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
    """(name, stream) of the file itself, or of each regular file in a tar, in the tar's order."""
    with opened(path) as stream:
        if ".tar" not in path.suffixes and path.suffix != ".tgz":
            yield path.name, stream
            return
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    # A name in another encoding than UTF-8 comes with lone surrogates.
                    yield Path(member.name).name.encode("utf-8", "replace").decode(), content


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


class TextReader:
    """Plain text files: `source` may set `unwrap` (join hard-wrapped lines) and `chunk_words`."""

    def __init__(self, source: dict[str, Any], settings: dict[str, Any]) -> None:
        self.source, self.settings = source, settings

    def __call__(self, path: Path) -> Iterator[Page | Rejected]:
        """Every piece of every text in the file."""
        name = ""
        try:
            for name, stream in members(path):
                raw = stream.read(self.settings["max_body_bytes"] + 1)
                if len(raw) > self.settings["max_body_bytes"]:
                    yield Rejected("too_large", name, f"file:{name}", f"over {self.settings['max_body_bytes']} bytes")
                    continue
                text = raw.decode("utf-8-sig", "replace")
                text = unwrapped(text) if self.source.get("unwrap") else tidy(text)
                for row, piece in enumerate(chunks(text, self.source.get("chunk_words", 0))):
                    # `piece` says that the document is a part of its file (scripts/common/split.py).
                    part = {"piece": row} if self.source.get("chunk_words", 0) else {}
                    yield self.page(name, row, piece, {"title": Path(name).stem, **part})
        except BROKEN as error:
            yield Rejected("broken_file", name, f"file:{path.name}", str(error)[:300])

    def page(self, name: str, row: int, text: str, facts: dict[str, Any]) -> Page | Rejected:
        """One document; its id comes from (source, file name, row), its URL is `file:<name>#<row>`."""
        key = f"{name}#{row}"
        if len(text) < self.settings["min_characters"]:
            return Rejected("no_text", key, f"file:{key}", f"{len(text)} characters")
        facts = {**facts, "file": name}
        url = str(facts.pop("url", "") or f"file:{key}")
        return Page(document_id(self.source["name"], name, str(row)), text, url, facts.pop("date", None), facts)


class JsonLinesReader(TextReader):
    """JSON Lines: the text is under `text_key` (default `text`); `url`, `title` and `date` are taken where present."""

    def __call__(self, path: Path) -> Iterator[Page | Rejected]:
        """Every line of every file."""
        key, limit = self.source.get("text_key", "text"), self.settings["max_body_bytes"]
        name = ""
        try:
            for name, stream in members(path):
                row = -1
                while line := stream.readline(limit + 1):
                    row += 1
                    if len(line) > limit:
                        while line and not line.endswith(b"\n"):
                            line = stream.readline(limit + 1)
                        yield Rejected("too_large", f"{name}#{row}", f"file:{name}#{row}", f"a line over {limit} bytes")
                        continue
                    if line.strip():
                        yield self.line(name, row, line, key)
        except BROKEN as error:
            yield Rejected("broken_file", name, f"file:{path.name}", str(error)[:300])

    def line(self, name: str, row: int, line: bytes, key: str) -> Page | Rejected:
        """One line as a Page or a Rejected."""
        here = f"{name}#{row}"
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Rejected("broken_record", here, f"file:{here}", str(error)[:300])
        text = body.get(key) if isinstance(body, dict) else None
        if not isinstance(text, str):
            return Rejected("no_text", here, f"file:{here}", f"no string under {key!r}")
        facts = {k: tidy(str(body[k])) for k in ("url", "title", "date") if isinstance(body.get(k), str | int)}
        return self.page(name, row, tidy(text), facts)
