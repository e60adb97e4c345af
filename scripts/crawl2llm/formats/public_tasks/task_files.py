"""The files of public tasks that a config names: JSON Lines in folders and tar archives, found by name, read row by row."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.core.content_hash import files_below
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json

KEY = "evaluate.public.data"
LINES = (".jsonl", ".ndjson")
COMPRESSED = (".zst", ".gz")
ARCHIVES = (".tar", ".tar.zst", ".tar.gz", ".tgz")
Row = dict[str, Any]
Allowed = tuple[str, Callable[[Any, Row], bool]]  # what a column may hold, in words; whether a row's value is that
Columns = dict[str, Allowed]


def json_lines_stem(name: str) -> str:
    """`piqa_validation` of `piqa_validation.jsonl.zst`, in lower case; "" of a file that is not JSON Lines."""
    for end in COMPRESSED:
        name = name.removesuffix(end)
    return next((name.removesuffix(end).lower() for end in LINES if name.endswith(end)), "")


def decompress_member(data: bytes, name: str) -> bytes:
    """The bytes of a member of an archive, which may be compressed itself."""
    codec = {".zst": "zstd", ".gz": "gzip"}.get(Path(name).suffix)
    return pa.CompressedInputStream(pa.BufferReader(data), codec).read() if codec else data


class TaskFiles:
    """The files of some names below paths, in memory: a task's data takes some megabytes.

    Raises InputError for a path that is no folder, archive or JSON Lines, or that cannot be read.
    """

    def __init__(self, paths: Iterable[str], names: Iterable[str]) -> None:
        self.names, self.files = {name.lower() for name in names}, dict[str, list[tuple[str, bytes]]]()
        for path in map(Path, paths):
            try:
                for file in files_below(path):
                    display_name = f"{path.name}/{file.relative_to(path)}" if path.is_dir() else path.name
                    if file.name.endswith(ARCHIVES):
                        self._read_archive(file, display_name)
                    elif json_lines_stem(file.name) in self.names:
                        with pa.input_stream(file, compression="detect") as stream:
                            self._keep_file(file.name, display_name, stream.read())
                    elif not path.is_dir() and not json_lines_stem(file.name):
                        allowed = f"a folder, {', '.join(LINES)} (bare or as {' or '.join(COMPRESSED)}), {', '.join(ARCHIVES)}"
                        raise InputError(f"{KEY}: {path} is not one of: {allowed}")
            except (OSError, tarfile.TarError) as error:
                raise InputError(f"{KEY}: {path}: {error}") from error

    def _keep_file(self, name: str, display_name: str, data: bytes) -> None:
        self.files.setdefault(json_lines_stem(name), []).append((display_name, data))

    def _read_archive(self, path: Path, display_name: str) -> None:
        kind = "gzip" if path.suffix == ".tgz" else "detect"
        with pa.input_stream(path, compression=kind) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and json_lines_stem(name) in self.names:
                    data = archive.extractfile(member)
                    assert data is not None  # it is a file
                    self._keep_file(name, f"{display_name}/{member.name}", decompress_member(data.read(), name))

    def files_named(self, names: Iterable[str]) -> list[tuple[str, bytes]]:
        """(name to show, bytes) of the files of these names, in the order of `names` and then of `paths`."""
        return [file for name in names for file in self.files.get(name.lower(), [])]


def numbered_rows(display_name: str, data: bytes) -> Iterator[tuple[int, Row]]:
    """(number from 1, row) of every line. Raises InputError, naming file and line, for one that is no JSON object."""
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            canonical_json(row).encode()  # half of a surrogate pair, which JSON may hold, cannot be written
        except UnicodeEncodeError as error:
            raise InputError(
                f"{display_name}, line {number}: {_surrogate_column(row)} holds {error.object[error.start]!a}, half of a surrogate "
                "pair; it must be text that UTF-8 can hold"
            ) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{display_name}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{display_name}, line {number}: {type(row).__name__}; each line must be a JSON object")
        yield number, row


def _surrogate_column(row: Any) -> str:
    """The column of a row that cannot be written as UTF-8, or its name."""
    for name, value in row.items() if isinstance(row, dict) else ():
        try:
            canonical_json([name, value]).encode()
        except UnicodeEncodeError:
            return f"column {name!a}"
    return "the line"


def check_row(display_name: str, number: int, row: Row, columns: Columns) -> None:
    """Raise InputError, naming file, line and column, for a row without one of `columns`, or with something else in it."""
    for name, (allowed, holds) in columns.items():
        if name not in row:
            raise InputError(f"{display_name}, line {number}: no column {name!r}; it has {', '.join(sorted(row))}")
        try:
            right = holds(row[name], row)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError):
            right = False
        if not right:
            raise InputError(
                f"{display_name}, line {number}: column {name!r} is {_short_json(row[name])}; it must be {allowed}"
            )


def _short_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


# What columns may hold.
def _is_text_list(value: Any, row: Row) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(choice, str) and choice.strip() for choice in value)
    )


TEXT: Allowed = ("text", lambda value, row: isinstance(value, str))
FILLED: Allowed = ("text that is not empty", lambda value, row: isinstance(value, str) and bool(value.strip()))
TEXTS: Allowed = ("a list of two texts or more", _is_text_list)
TRUTH: Allowed = ("true, false, 1 or 0", lambda value, row: value in (0, 1))
LABELED: Allowed = (
    "{text: [two texts or more], label: [as many]}",
    lambda value, row: (
        _is_text_list(value["text"], row)
        and len(value["text"]) == len(value["label"])
        and all(isinstance(label, str) for label in value["label"])
    ),
)
LABEL: Allowed = ("one of choices.label", lambda value, row: value.strip() in row["choices"]["label"])


def one_of(*values: Any) -> Allowed:
    """One of these values."""
    return f"one of {', '.join(map(repr, values))}", lambda value, row: not isinstance(value, bool) and value in values


def at_most_texts(number: int) -> Allowed:
    """A list of at most so many texts."""
    return f"a list of two to {number} texts", lambda value, row: _is_text_list(value, row) and len(value) <= number


def place_in(column: str) -> Allowed:
    """The place, from 0, of an entry of the list in another column; text that is a number counts."""
    return (
        f"a place in {column}, from 0",
        lambda value, row: (
            not isinstance(value, bool) and 0 <= int(value) < len(row[column]) and float(value) == int(value)
        ),
    )


def exactly_texts(number: int) -> Allowed:
    """A list of so many texts."""
    return f"a list of {number} texts", lambda value, row: _is_text_list(value, row) and len(value) == number
