"""Somebody else's corpus: documents of JSON Lines, Parquet and text files, read one after the other and written again without some text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from crawl2llm.core.errors import InputError

CODECS = {".gz": "gzip", ".zst": "zstd"}
JSON_LINES, PARQUET, PLAIN = (".jsonl", ".ndjson", ".json"), (".parquet",), (".txt", ".text")
BATCH_ROWS = 1024  # of a Parquet file, in memory at a time
LONGEST_LINE = 1 << 30  # most bytes of a line, and of a text file, which is one document
# What is done with a document: (name, text) → its text as it is, another one, or None to leave it out.
Edit = Callable[[str, str], str | None]
ReadCallback = Callable[[int], None]  # bytes of the file that were read since the last call


def bare_suffix(path: Path) -> str:
    """The suffix of a file without that of its compression. Raises InputError for what is no corpus file."""
    bare = path.with_suffix("") if path.suffix in CODECS else path
    if bare.suffix not in (*JSON_LINES, *PLAIN) and path.suffix not in PARQUET:
        allowed = ", ".join((*JSON_LINES, *PLAIN))
        raise InputError(f"{path}: allowed are {allowed}, bare or as .gz or .zst, and {PARQUET[0]}")
    return bare.suffix


def corpus_files(paths: list[Path]) -> list[tuple[Path, Path]]:
    """(file, its place below a folder for results) of files and of all files in folders that are of a corpus. Raises InputError."""
    placed_files = []
    for path in paths:
        if path.is_dir():
            folder_files = []
            for file in sorted(path.rglob("*")):
                try:
                    folder_files += [(file, file.relative_to(path))] if file.is_file() and bare_suffix(file) else []
                except InputError:
                    continue
            if not folder_files:
                raise InputError(f"{path}: no file of a corpus in it")
            placed_files += folder_files
        else:
            bare_suffix(path)
            placed_files.append((path, Path(path.name)))
    places = [str(place) for _, place in placed_files]
    if repeated_place := next((place for place in places if places.count(place) > 1), None):
        raise InputError(f"two of the files are called {repeated_place}: name the folder that they lie in")
    return placed_files


@contextmanager
def _open_to_write(path: Path | None) -> Iterator[BinaryIO | None]:
    """A file to write, compressed as its name says, under a temporary name until all is written; None for none."""
    if path is None:
        yield None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with pa.output_stream(partial, compression=CODECS.get(path.suffix)) as stream:
            yield stream
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _open_to_read(path: Path) -> Iterator[tuple[Any, BinaryIO]]:
    """(what to read from, the file below it)."""
    with path.open("rb") as raw:
        codec = CODECS.get(path.suffix)
        context: AbstractContextManager[Any] = pa.CompressedInputStream(raw, codec) if codec else nullcontext(raw)
        with context as stream:
            yield stream, raw


def _read_lines(stream: Any, path: Path) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(1 << 20):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        if len(rest) > LONGEST_LINE:
            raise InputError(f"{path}: a line of more than {LONGEST_LINE:,} bytes")
        yield from (part + b"\n" for part in parts)
    if rest:
        yield rest


def edit_file(path: Path, out: Path | None, key: str, edit: Edit, on_read: ReadCallback) -> None:
    """Give every document of a file to `edit`, and write what is left of it to `out`; what is not changed as it was, byte by byte.

    key: the column of the text. Raises InputError, naming file and line or row, for a damaged file or one without that column.
    """
    try:
        if path.suffix in PARQUET:
            _edit_parquet(path, out, key, edit, on_read)
        elif bare_suffix(path) in PLAIN:
            _edit_plain_text(path, out, edit, on_read)
        else:
            _edit_json_lines(path, out, key, edit, on_read)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: {error}") from error


def _edit_json_lines(path: Path, out: Path | None, key: str, edit: Edit, on_read: ReadCallback) -> None:
    with _open_to_read(path) as (stream, raw), _open_to_write(out) as target:
        position = 0
        for number, line in enumerate(_read_lines(stream, path), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                column_names = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
                raise InputError(
                    f"{path}, line {number}: no text in {key!r}; it has {column_names}: name the column by --text-key"
                )
            text = edit(f"{path}#{number}", row[key])
            if target and text is not None:
                same = text == row[key]
                target.write(line if same else json.dumps({**row, key: text}, ensure_ascii=True).encode() + b"\n")
            on_read(raw.tell() - position)
            position = raw.tell()


def _edit_plain_text(path: Path, out: Path | None, edit: Edit, on_read: ReadCallback) -> None:
    with _open_to_read(path) as (stream, raw):
        content = stream.read(LONGEST_LINE + 1)
        size = raw.tell()
    if len(content) > LONGEST_LINE:
        raise InputError(f"{path}: more than {LONGEST_LINE:,} bytes; a text file is one document")
    try:
        original = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from error
    text = edit(str(path), original)
    on_read(size)
    if out and text is not None:
        with _open_to_write(out) as target:
            assert target is not None
            target.write(text.encode())


def _edit_parquet(path: Path, out: Path | None, key: str, edit: Edit, on_read: ReadCallback) -> None:
    with pq.ParquetFile(path) as file:
        if key not in file.schema_arrow.names:
            column_names = ", ".join(file.schema_arrow.names)
            raise InputError(f"{path}: no column {key!r}; it has {column_names}: name the column by --text-key")
        rows, size, done = max(1, file.metadata.num_rows), path.stat().st_size, 0
        partial = out.with_name(f".{out.name}.partial") if out else None
        if partial:
            partial.parent.mkdir(parents=True, exist_ok=True)
        writer = pq.ParquetWriter(partial, file.schema_arrow, compression="zstd") if partial else None
        try:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                place = batch.schema.get_field_index(key)
                originals = batch.column(place).to_pylist()
                texts = [
                    None if text is None else edit(f"{path}#{done + at}", text)
                    for at, text in enumerate(originals, start=1)
                ]
                on_read(size * (done + len(batch)) // rows - size * done // rows)
                done += len(batch)
                if writer:
                    column = pa.array(texts, batch.schema.field(place).type)
                    kept_rows = pa.array(
                        [text is not None or old is None for text, old in zip(texts, originals, strict=True)]
                    )
                    writer.write_batch(batch.set_column(place, batch.schema.field(place), column).filter(kept_rows))
            if writer and partial and out:
                writer.close()
                partial.replace(out)
        finally:
            if writer and partial:
                writer.close()
                partial.unlink(missing_ok=True)
