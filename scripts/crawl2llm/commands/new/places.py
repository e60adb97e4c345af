"""What `--from` names: files here, at URLs, or of a crawl of Common Crawl, as sources of one kind each.

A kind is told by the first bytes of a file. Remote files are asked for their lengths, and nothing is copied to the disk.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crawl2llm.chain import file_lists, urls
from crawl2llm.chain import sources as ingest
from crawl2llm.commands.new import columns
from crawl2llm.core.console import log
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.stages.ingest.files import File, FileHead
from crawl2llm.stages.ingest.transfer_errors import TransferError

if TYPE_CHECKING:  # it imports a network's libraries, which files here do not need
    from crawl2llm.stages.ingest.list import ListedFile
    from crawl2llm.stages.ingest.remote import Access

BOOK_BYTES = 100_000  # bytes from which on a text file is cut into pieces
PREFIX = 2_000_000  # most bytes read of each file of the sample, as they lie there
KIND_BYTES = 2**18  # bytes of a file, decompressed, that tell its kind
LENGTHS = 1000  # most remote files that are asked for their lengths
PATIENCE = 20.0  # seconds to wait for a server that is busy or gone
NAMES = {"warc": "web", urls.COMMON_CRAWL: "web", "text": "texts", "jsonl": "records", "parquet": "records"}
CRAWL_NAME = re.compile(r"CC-MAIN-[0-9]{4}(-[0-9]{2,4})?")  # as the schema has it
FROM_OPTION = "--from"

T = TypeVar("T")


@dataclass(frozen=True)
class SourceOptions:
    """What the command line says beside the patterns.

    files, format, base: of a crawl. options: of fsspec's file system, for remote files. text_key: the column of the text.
    """

    files: int | None = None
    format: str = ""
    base: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    text_key: str = ""


@dataclass
class Source:
    """Files of one kind and of one layout, all here or all at URLs, by the patterns that name them."""

    kind: str
    patterns: list[str] = field(default_factory=list)
    files: Sequence[File] = ()
    keys: dict[str, Any] = field(default_factory=dict)  # more keys of the source
    name: str = ""
    books: bool = False  # long texts, of which no one document should be made
    follows_links: bool = False  # a pattern finds symbolic links out of its folder, as Hugging Face's cache has them

    @property
    def is_remote(self) -> bool:
        """Whether its files come over a network."""
        return bool(self.files) and not isinstance(self.files[0], Path)

    @property
    def unknown_lengths(self) -> int:
        """The number of files whose length is not known: the server does not tell it, or was not asked."""
        return sum(file_length(file) is None for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files. One of unknown length counts as the mean of the others; if none is known, as what is read of it."""
        known_sizes = [size for file in self.files if (size := file_length(file)) is not None]
        mean = sum(known_sizes) / len(known_sizes) if known_sizes else PREFIX
        return sum(known_sizes) + round(mean * (len(self.files) - len(known_sizes)))

    def config_entry(self) -> dict[str, Any]:
        """The source as `ingest.extract.sources` takes it."""
        paths = {} if self.kind == urls.COMMON_CRAWL else {"paths": self.patterns}
        # Longer than 100,000 words, and the heuristics drop a text (heuristics.select.gopher_quality.words_max).
        long = {"unwrap": True, "chunk_words": 1000} if self.books else {}
        links = {"follow_links": True} if self.follows_links else {}
        return {"name": self.name or NAMES[self.kind], "kind": self.kind, **paths, **self.keys, **links, **long}


def file_length(file: File) -> int | None:
    """The bytes of a file; None if that is not known."""
    if isinstance(file, Path):
        return file.stat().st_size
    return file_length(file.file) if isinstance(file, FileHead) else file.facts.bytes


def first_bytes(file: File) -> bytes:
    """The first bytes of a file, decompressed. Raises OSError, ValueError, TransferError."""
    from crawl2llm.stages.ingest import (
        decompress,  # the libraries of readers, which an import of this module does not need
    )

    out = b""
    with contextlib.closing(decompress.decompressed_pieces(file)) as pieces:
        for piece in pieces:
            if isinstance(piece, decompress.Damage):
                if not out:
                    raise ValueError(piece.description)
                break
            out += piece
            if len(out) >= KIND_BYTES:
                break
    return out


def kind_and_keys(file: File, text_key: str = "") -> tuple[str, dict[str, str]]:
    """(kind, keys) of a file by what it holds, and where that says nothing by its name; keys: `preset` or `text_key`, where needed.

    text_key: the column of the text, where a person named it. Raises InputError for a file that is of no kind that can be read, with what
    it looks like, and for one that cannot be had.
    """
    from crawl2llm.stages.ingest.decompress import is_tar
    from crawl2llm.stages.ingest.text_check import is_text

    try:
        first = first_bytes(file)
        if first.startswith(b"PAR1"):
            return "parquet", columns.source_keys(parquet_columns(file), text_key, str(file))
    except TransferError as error:
        raise InputError(str(error)) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    name = file.name.lower()
    if (
        first.startswith((b"WARC/", b"filedesc://"))
        or ".warc" in name
        or ".arc" in name
        or (".lz4" in name and not first.strip())
    ):
        return "warc", {}
    if is_tar(file):
        return "text", {}
    if first.lstrip().startswith(b"{"):
        row_columns = columns.of_lines(first)
        return "jsonl", columns.source_keys(row_columns, text_key, str(file)) if row_columns else {}
    if not is_text(first):
        raise InputError(
            f"{file} is neither WARC, WET, ARC, JSON Lines, Parquet nor text: it begins with {first[:12]!r}"
        )
    return "text", {}


def parquet_columns(file: File) -> columns.Columns:
    """The columns of a Parquet file. Raises OSError, ValueError, TransferError."""
    import pyarrow.parquet as pq

    with file.open("rb", 0) as stream, pq.ParquetFile(stream) as opened:
        return columns.of_schema(opened.schema_arrow)


def take_evenly(items: Sequence[T], number: int) -> list[T]:
    """Up to `number` of the items, evenly spread over them."""
    if len(items) <= number:
        return list(items)
    return [items[round(at * (len(items) - 1) / (number - 1))] for at in range(number)] if number > 1 else [*items[:1]]


def find_sources(patterns: Sequence[str], source_options: SourceOptions = SourceOptions()) -> list[Source]:
    """The files of the patterns (paths, globs, URLs, lists, crawls) by kind and layout, in the order of the patterns.

    Each pattern is of the kind of its first file, or of its largest. Raises InputError for one without files, or that cannot be read.
    """
    patterns = list(dict.fromkeys(patterns))
    crawls = [pattern for pattern in patterns if CRAWL_NAME.fullmatch(pattern)]
    crawl_options = [f"--{name}" for name in ("files", "format", "base") if getattr(source_options, name)]
    if crawl_options and not crawls:
        raise InputError(
            f"{', '.join(crawl_options)}: of a crawl, such as --from CC-MAIN-2026-08, and {FROM_OPTION} names none"
        )
    source_by_layout: dict[Any, Source] = {}
    for pattern in patterns:
        try:
            is_remote = pattern not in crawls and file_lists.is_remote(pattern, ".")
            new_source = (
                crawl_source(pattern, source_options)
                if pattern in crawls
                else (remote_source if is_remote else local_source)(pattern, source_options)
            )
        except (TransferError, ConfigError) as error:
            raise InputError(f"{FROM_OPTION} {pattern!r}: {error}") from error
        if preset := new_source.keys.get("preset"):
            log.info("%s: its columns are those of %s (preset: %s)", pattern, preset, preset)
        elif key := new_source.keys.get("text_key"):
            log.info("%s: the text is under %s (text_key: %s)", pattern, key, key)
        layout = (
            (pattern,)
            if pattern in crawls
            else (new_source.kind, new_source.is_remote, *sorted(map(repr, new_source.keys.items())))
        )
        source = source_by_layout.setdefault(layout, new_source)
        if source is not new_source:
            source.patterns += new_source.patterns
            source.files = [*source.files, *new_source.files]
            source.books = source.books or new_source.books
            source.follows_links = source.follows_links or new_source.follows_links
    if source_options.options and not any(source.keys.get("options") for source in source_by_layout.values()):
        raise InputError(f"--options: of remote files, and {FROM_OPTION} names none")
    if source_options.text_key and not any(source.keys.get("text_key") for source in source_by_layout.values()):
        raise InputError(f"--text-key: of JSON Lines and Parquet, and {FROM_OPTION} names none")
    used_names: set[str] = set()
    for source in source_by_layout.values():
        base = source.keys.get("preset") or NAMES[source.kind]
        source.name = next(name for n in range(1, 999) if (name := f"{base}-{n}" if n > 1 else base) not in used_names)
        used_names.add(source.name)
    return list(source_by_layout.values())


def local_source(pattern: str, source_options: SourceOptions) -> Source:
    """The files here of a path, a glob or a list. Raises InputError, ConfigError."""
    if pattern.startswith("@"):
        file_lists.check_list(pattern[1:], ".")
    entries = list(ingest.files_of_entry(pattern, "."))
    files: list[File] = [Path(name) for name, _ in entries]
    if not files:
        hint = "; a crawl of Common Crawl is called CC-MAIN-2026-08, or so" if pattern.startswith("CC-") else ""
        raise InputError(
            f"{FROM_OPTION} {pattern!r}: no file matches (a relative path is looked for in {Path.cwd()}){hint}"
        )
    file_kind, keys = kind_and_keys(max(files[:50], key=lambda file: file_length(file) or 0), source_options.text_key)
    links_out = ingest.is_glob(pattern) and bool(ingest.first_path_outside(entries))
    books = file_kind == "text" and _has_books(files)
    return Source(file_kind, [pattern], files, dict(keys), books=books, follows_links=links_out)


def _has_books(files: Sequence[File]) -> bool:
    return max(file_length(file) or 0 for file in files) > BOOK_BYTES


def remote_source(pattern: str, source_options: SourceOptions) -> Source:
    """The files of a URL, a pattern of a store, or a list of URLs. Raises InputError, ConfigError, TransferError."""
    from crawl2llm.stages.ingest import list as listing
    from crawl2llm.stages.ingest.remote import Access, Remote

    check_entry({"kind": "warc", "paths": [pattern], "options": source_options.options})
    access = Access(source_options.options, PATIENCE, urls=frozenset([pattern.removeprefix("@")]))
    log.info("asking for %s", pattern)
    try:
        entries = listing.files_at_paths([pattern], access)
    except InputError as error:
        raise InputError(f"{FROM_OPTION} {pattern!r}: {error}") from error
    first = max(entries[:50], key=lambda entry: (entry[2].bytes if entry[2] else 0) or 0)
    file_kind, keys = kind_and_keys(Remote(first[0], first[2] or listing.Facts(), access), source_options.text_key)
    files = with_lengths(entries, access, page=file_kind == "text")
    options = {"options": source_options.options} if source_options.options else {}
    return Source(file_kind, [pattern], files, {**keys, **options}, books=file_kind == "text" and _has_books(files))


def check_entry(entry: dict[str, Any]) -> None:
    """Raises InputError for a source that a config may not have; a URL with a secret is not repeated."""
    try:
        ingest.check_source({"name": FROM_OPTION, **entry}, ".", FROM_OPTION)
    except ConfigError as error:
        raise InputError(str(error).replace(f"{FROM_OPTION}.paths", FROM_OPTION)) from error


def crawl_source(pattern: str, source_options: SourceOptions) -> Source:
    """The chosen files of a crawl. Raises InputError, ConfigError, TransferError."""
    from crawl2llm.stages.ingest import list as listing
    from crawl2llm.stages.ingest.remote import Access

    if source_options.files is None:
        raise InputError(
            f"{FROM_OPTION} {pattern}: say how many of its files: --files 100, which are chosen by a hash of their names (a WARC file of "
            "Common Crawl has about 1 GB)"
        )
    more = {"format": source_options.format, "base": source_options.base, "options": source_options.options}
    keys = {"crawl": pattern, "files": source_options.files, **{name: value for name, value in more.items() if value}}
    entry = {"name": pattern, "kind": urls.COMMON_CRAWL, **keys}
    check_entry(entry)
    access = Access(source_options.options, PATIENCE)
    log.info("asking for the files of %s", pattern)
    entries = listing.crawl_files(listing.ListedSource.model_validate(entry), access)
    if not entries:
        raise InputError(f"{FROM_OPTION} {pattern}: its list names no file")
    return Source(urls.COMMON_CRAWL, [pattern], with_lengths(entries, access, page=False), keys)


def with_lengths(entries: list[ListedFile], access: Access, page: bool) -> list[File]:
    """The files, with what the servers say of them; of more than LENGTHS, of so many. page: whether they may be web pages."""
    from crawl2llm.stages.ingest.list import ask_servers
    from crawl2llm.stages.ingest.remote import Remote
    from crawl2llm.stages.ingest.transport import Facts

    asked_for = take_evenly([entry for entry in entries if entry[2] is None and urls.is_url(entry[0])], LENGTHS)
    answers, _ = ask_servers(asked_for, access)
    facts_by_url = {url: facts for url, _, facts in entries if facts} | {url: facts for url, _, facts in answers}
    return [
        Remote(url, facts_by_url.get(url) or Facts(), access, page) if urls.is_url(url) else Path(url)
        for url, _, _ in entries
    ]
