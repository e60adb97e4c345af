"""The files of a step that measures one model: its numbers, and a line for each thing that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import json_lines, pretty_json, task_of, write_atomically

Row = dict[str, Any]


def write_model_files(manifest: Path, kind: str, result: Row, rows_by_kind: Mapping[str, Iterable[Row]]) -> list[Path]:
    """Write `<model>.<kind>.json` with the result, and `<model>.<kind of rows>.jsonl` for each kind of rows, beside the manifest."""
    texts = {f"{kind}.json": pretty_json(result)}
    texts |= {f"{row_kind}.jsonl": json_lines(rows) for row_kind, rows in rows_by_kind.items()}
    files = [manifest.with_name(f"{task_of(manifest)}.{ending}") for ending in texts]
    for file, text in zip(files, texts.values(), strict=True):
        write_atomically(file, text)
    return files
