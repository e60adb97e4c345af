"""Question and answer pairs from files of instructions or conversations: `finetune.pairs.files`.

JSON Lines, JSON (one array), CSV and TSV, bare or as .gz or .zst. Layouts: `alpaca` (instruction, input, output; Stanford Alpaca), `chat`
(OpenAI's `messages` of role and content, ShareGPT's `conversations` of from and value), `columns` (any, by templates). Every answer in
a conversation makes a pair; its question holds what was said before.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.errors import InputError
from crawl2llm.training.pair_layouts import COLUMNS, KEY, Row, RowError, row_reader
from crawl2llm.training.pair_settings import PairsFile
from crawl2llm.training.template import Template, has_special_token

COMPRESSION_SUFFIXES = (".gz", ".zst")
FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
ARRAY = 1 << 30  # most bytes of a JSON array, which is read whole
BUFFER = 1 << 20
LINE = 1 << 26  # most characters of a line, or of a cell of a table


def rows(path: Path, names: list[str] | None, dropped: Counter[str]) -> Iterator[Row]:
    """Every row of a file; what is no row is counted in `dropped`. names: of the columns of a table without a line of them.

    Raises InputError for a file that is missing, damaged, or of another format.
    """
    kind = (path.with_suffix("") if path.suffix in COMPRESSION_SUFFIXES else path).suffix
    try:
        with pa.input_stream(path, compression="detect", buffer_size=BUFFER) as raw:  # an error where a stream is cut
            stream = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="" if kind in (".csv", ".tsv") else None)
            if kind == ".json":
                yield from _json_array_rows(path, stream, dropped)
            elif kind in (".csv", ".tsv"):
                yield from _table_rows(stream, csv.excel if kind == ".csv" else Tabs, names, dropped)
            elif kind in FORMATS:
                yield from _json_lines_rows(stream, dropped)
            else:
                raise InputError(f"{path}: {KEY} takes files {', '.join(FORMATS)}, bare or as .gz or .zst")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 near byte {error.start} of a block: {error.reason}") from error
    except (OSError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error


def _json_lines_rows(stream: io.TextIOWrapper, dropped: Counter[str]) -> Iterator[Row]:
    while line := stream.readline(LINE):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        else:
            dropped["broken_row"] += 1


def _json_array_rows(path: Path, stream: io.TextIOWrapper, dropped: Counter[str]) -> Iterator[Row]:
    whole = stream.read(ARRAY + 1)
    if len(whole) > ARRAY:
        raise InputError(
            f"{path}: over {ARRAY:,} characters of JSON, which is read whole; write it as JSON Lines (.jsonl)"
        )
    try:
        parsed = json.loads(whole)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error} (a row a line is .jsonl)") from error
    for row in parsed if isinstance(parsed, list) else [parsed]:
        if isinstance(row, dict):
            yield row
        else:
            dropped["broken_row"] += 1


class Tabs(csv.excel_tab):
    """A tab separates; quotes are text."""

    quoting = csv.QUOTE_NONE


def _table_rows(
    stream: io.TextIOWrapper, kind: type[csv.Dialect], names: list[str] | None, dropped: Counter[str]
) -> Iterator[Row]:
    csv.field_size_limit(LINE)
    for row in csv.DictReader(stream, names, dialect=kind):
        if None in row or None in row.values():
            dropped["broken_row"] += 1  # more or fewer cells than columns
        else:
            yield row


def pairs(number: int, entry: PairsFile, template: Template, dropped: Counter[str]) -> Iterator[tuple[str, str, str]]:
    """(first question of the conversation, question, answer) of every answer in an entry's file.

    What is dropped is counted in `dropped`. Raises InputError as `rows` and `layout`, and where no row is a pair.
    """
    path, read, has_pair, names = Path(entry.path), row_reader(number, entry), False, set[str]()
    reasons = Counter[str]()
    for row in rows(path, entry.columns, reasons):
        names = names or set(row)
        try:
            system, turns = read(row)
        except RowError as error:
            reasons[str(error)] += 1
            continue
        for at, (question, answer) in enumerate(turns):
            if not question or not answer:
                reasons["empty"] += 1
                continue
            if has_special_token(system, *(part for turn in turns[: at + 1] for part in turn)):
                reasons["special_token"] += 1
                continue
            has_pair = True
            yield turns[0][0], template.conversation(system, turns[:at], question), answer
    dropped.update(reasons)
    if not has_pair:
        raise InputError(
            f"{KEY}[{number}]: no row of {path} is a pair by layout {entry.layout or COLUMNS!r}"
            + (f"; the first row has {', '.join(sorted(map(str, names)))}" if names else "; the file has no row")
        )
