"""Looks at a sample of files with the readers, the language model and the heuristics of the workflow itself.

A sample is the beginning of some of the files, evenly spread over their list: a few megabytes, read in a bounded time.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.heuristics.measures import Limits, measure
from scripts.heuristics.rules import rules
from scripts.heuristics.select import judge
from scripts.heuristics.stop_words import tables
from scripts.ingest.extract import reader
from scripts.ingest.sources import expand
from scripts.ingest.warc import Page
from scripts.language.score import Identifier, model_path
from scripts.workflow import config as configuration
from scripts.workflow.console import Progress
from scripts.workflow.errors import InputError

FILES = 16  # most files of the sample
BOOK = 100_000  # bytes from which on a text file is cut into pieces
PREFIX = 2_000_000  # most bytes read of each, as they lie on the disk
SECONDS = 30.0  # after which no further file is begun
NAMES = {"warc": "web", "text": "texts", "jsonl": "records"}
TEXT_KEYS = ("text", "content", "raw_content", "body")


@dataclass
class Source:
    """Files of one kind, and JSON Lines of one text key, by the patterns that name them."""

    kind: str
    patterns: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    text_key: str = "text"
    name: str = ""
    books: bool = False  # long texts, of which no one document should be made

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(path.stat().st_size for path in self.files)

    def entry(self) -> dict[str, Any]:
        """The source as `ingest.extract.sources` takes it."""
        extra = {"text_key": self.text_key} if self.text_key != "text" else {}
        # Longer than 100,000 words, and the heuristics drop a text (heuristics.select.gopher_quality.words_max).
        long = {"unwrap": True, "chunk_words": 1000} if self.books else {}
        return {"name": self.name or NAMES[self.kind], "kind": self.kind, "paths": self.patterns, **extra, **long}


@dataclass
class Sampled:
    """What the sample held. `text` and `kept` are bytes of text by language, before and after the heuristics."""

    files: int = 0
    bytes: int = 0
    documents: Counter[str] = field(default_factory=Counter)
    text: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    kept_documents: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def head(path: Path, size: int = 4096) -> bytes:
    """The first decompressed bytes of a file."""
    with path.open("rb") as stream:
        start = stream.read(4)
    if start.startswith(b"\x1f\x8b"):
        with gzip.open(path) as stream:
            return stream.read(size)
    if start == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return bytes(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read(size))
    with path.open("rb") as stream:
        return stream.read(size)


def kind(path: Path) -> tuple[str, str]:
    """(kind, text key) of a file by what it holds, and where that says nothing by its name.

    Raises InputError for a file that is none of WARC, WET, JSON Lines and text, with what it looks like.
    """
    try:
        first = head(path)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    name = path.name.lower()
    if (
        first.startswith((b"WARC/", b"filedesc://"))
        or ".warc" in name
        or ".arc" in name
        or (".lz4" in name and not first.strip())
    ):
        return "warc", "text"
    if ".tar" in name or name.endswith(".tgz"):
        return "text", "text"
    line = first.split(b"\n", 1)[0].strip()
    if line.startswith(b"{"):
        try:
            row = json.loads(line) if b"\n" in first else {}
        except ValueError:
            row = {}
        found = next((key for key in TEXT_KEYS if isinstance(row.get(key), str)), None)
        if row and found is None:
            raise InputError(f"{path}: its first line has no text under {', '.join(TEXT_KEYS)}, only {', '.join(row)}")
        return "jsonl", found or "text"
    if b"\x00" in first[:1000]:
        raise InputError(f"{path} is neither WARC, WET, JSON Lines nor text: it begins with {first[:12]!r}")
    return "text", "text"


def sources(patterns: Sequence[str]) -> list[Source]:
    """The files of the patterns (paths, globs, `@list.txt`) by kind and text key, in the order of the patterns.

    Each pattern is of the kind of its first file. Raises InputError for a pattern without files.
    """
    found: dict[tuple[str, str], Source] = {}
    for pattern in patterns:
        try:
            paths = [Path(name) for name, _ in expand(pattern, ".")]
        except configuration.ConfigError as error:
            raise InputError(f"--from {pattern!r}: {error}") from error
        if not paths:
            raise InputError(f"--from {pattern!r}: no file matches (paths are relative to {Path.cwd()})")
        what, key = kind(max(paths[:50], key=lambda path: path.stat().st_size))
        another = any(known == what for known, _ in found)
        name = f"{NAMES[what]}-{key}" if another else NAMES[what]
        source = found.setdefault((what, key), Source(what, text_key=key, name=name))
        source.patterns.append(pattern)
        source.files += paths
        source.books = what == "text" and max(path.stat().st_size for path in source.files) > BOOK
    return list(found.values())


def spread(files: Sequence[Path], number: int) -> list[Path]:
    """Up to `number` of the files, evenly spread over the list, empty ones left out."""
    full = [path for path in files if path.stat().st_size]
    if len(full) <= number:
        return full
    return [full[round(index * (len(full) - 1) / (number - 1))] for index in range(number)] if number > 1 else full[:1]


def look(source: Source, seconds: float = SECONDS) -> Sampled:
    """Read a sample of the source's files: documents, languages, and what the heuristics would keep."""
    defaults = configuration.validate({})
    settings = {**defaults["ingest"]["extract"], "sources": [source.entry()]}
    read = reader(source.entry(), settings)
    identify = Identifier(model_path(defaults["language"]["score"]["model"]))
    words, limits = tables({}), Limits()
    active = rules(defaults["heuristics"]["select"])
    threshold = defaults["language"]["select"]["threshold"]
    out, start, before = Sampled(), time.monotonic(), time.process_time()
    progress = Progress(None, f"documents of {NAMES[source.kind]}")
    with tempfile.TemporaryDirectory() as folder:
        for path in spread(source.files, FILES):
            if out.files and time.monotonic() - start > seconds:
                break
            part, size = path, path.stat().st_size
            # Of text in one gzip or zstd stream only the whole file can be read; of everything else the beginning will do.
            if size > PREFIX and not (
                source.kind == "text" and path.suffix in {".gz", ".zst"} and ".tar" not in path.name
            ):
                part = Path(folder) / path.name
                with path.open("rb") as stream:
                    part.write_bytes(stream.read(PREFIX))
                size = PREFIX
            out.files, out.bytes = out.files + 1, out.bytes + size
            for page in read(part, path.name):
                progress.add()
                if not isinstance(page, Page):
                    out.rejected[page.reason] += 1
                    continue
                language, score = identify(page.text)
                language = language if score >= threshold else "unsure"
                length = len(page.text.encode())
                out.documents[language] += 1
                out.text[language] += length
                row = {"id": page.id, "curated": False, **measure(page.text, words.get(language), limits)}
                if judge(row, active)["kept"]:
                    out.kept[language] += length
                    out.kept_documents[language] += 1
    out.seconds = time.process_time() - before  # of one core: the machine may be busy with other things
    return out
