"""Real inputs of steps, made for a test: documents, verdicts, and the `--config` that the workflow would pass."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core import pinned_names
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.columns import Columns
from crawl2llm.filters.framework.select import judge_documents
from crawl2llm.formats import spans
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer, parquet_file, rows, shard_of


def config(step: str, skipped_by: Sequence[str] = (), **settings: Any) -> str:
    """The fingerprint of a step whose settings are the defaults with `settings` laid over them.

    skipped_by: sources that skip its filter.
    """
    stage, name = step.split(".")
    sources = [{"name": source, "kind": "crawl", "skip_filters": [stage]} for source in skipped_by]
    ingest = {"ingest": {"extract": {"sources": sources}}} if sources else {}
    return fingerprint(step, configuration.validate({**ingest, stage: {name: settings}}))


def verdict(
    filter_: str, row: dict[str, Any], settings: dict[str, Any] | Settings, language: str = ""
) -> dict[str, Any]:
    """The verdict on a document by the rules that a filter declares. row: its signals; settings: of the filter's `select`."""
    columns = Columns([pa.Table.from_pylist([row])], np.zeros(1, np.int64), [language])
    typed = settings_class(f"{filter_}.select").model_validate(settings)
    rules = import_module(f"crawl2llm.filters.{filter_}.select").rules(typed)
    return judge_documents(rules, columns, typed)[0]


def document(name: str, text: str, **more: Any) -> dict[str, Any]:
    """A row of documents."""
    row = {"source": "web", "curated": False, "url": f"https://example.org/{name}", "date": None, "metadata": "{}"}
    return {"id": name, "text": text, **row, **more}


def documents(folder: Path, rows: list[dict[str, Any]], shard: str = "00000") -> Path:
    """Documents as ingest.extract writes them; returns the manifest's path."""
    path = folder / f"{shard}.parquet"
    with Writer(path, DOCUMENT) as writer:
        for row in rows:
            writer.add(row)
    made = Manifest("ingest.extract", "test", {"in": len(rows), "kept": len(rows), "dropped": {}})
    made.write(folder / f"{shard}.manifest.json", [path])
    return folder / f"{shard}.manifest.json"


def verdicts(
    folder: Path, shards: dict[str, list[str]], drop: Callable[[str], bool] = lambda _: False, step: str = "some.select"
) -> Path:
    """Verdicts of a one-task step on the ids of every shard, in order; `drop(id)` says which it drops."""
    files = []
    for shard, ids in shards.items():
        with Writer(folder / f"{shard}.parquet", VERDICT) as writer:
            for name in ids:
                out = drop(name)
                row = {"rule": "short", "value": 1.0, "threshold": 2.0, "rules": ["short"]} if out else {"rules": []}
                writer.add({"id": name, "kept": not out, **row})
        files.append(folder / f"{shard}.parquet")
    Manifest(step, "test").write(folder / "manifest.json", files)
    return folder / "manifest.json"


def judged(
    folder: Path, shards: dict[str, list[str]], drop: Callable[[str], bool] = lambda _: False, step: str = "some.select"
) -> list[Path]:
    """The same of a step that judges shard by shard, with counts; the manifests' paths."""
    made = []
    for shard, ids in shards.items():
        path = verdicts(folder, {shard: ids}, drop, step)
        read, gone = Manifest.read(path), sum(map(drop, ids))
        read.counts = {"in": len(ids), "kept": len(ids) - gone, "dropped": {"short": gone} if gone else {}}
        read.write(folder / f"{shard}.manifest.json", [read.file(name) for name in read.files])
        Manifest.remove_with_copy(path)
        made.append(read.path or path)
    return made


def checked(folder: Path, *documents: Path) -> Path:
    """The verdicts of ingest.check on these documents (manifests), none of which is repeated; returns the manifest's path."""
    shards = {shard_of(path): [row["id"] for row in rows(parquet_file(path), ["id"])] for path in documents}
    return verdicts(folder, shards, step="ingest.check")


def edits(
    folder: Path, made: list[tuple[str, int, int, str, str]], step: str = "lines.score", shard: str = "00000"
) -> Path:
    """Spans (id, start, end, replacement, rule) as a step that edits writes them; returns the manifest's path."""
    path = folder / f"{shard}.manifest.json"
    with Writer(spans.file_of(path), spans.SCHEMA) as writer:
        for row in made:
            writer.add(dict(zip(spans.SCHEMA.names, row, strict=True)))
    Manifest(step, "test").write(path, [spans.file_of(path)])
    return path


def spans_of(folder: Path, edits: dict[str, list[tuple[int, int, str]]], shard: str = "00000") -> Path:
    """What a step that edits writes: (start, end, replacement) by document; returns the manifest's path."""
    manifest = folder / f"{shard}.manifest.json"
    with Writer(spans.file_of(manifest), spans.SCHEMA) as writer:
        for name, places in edits.items():
            for start, end, replacement in places:
                writer.add({"id": name, "start": start, "end": end, "replacement": replacement, "rule": "some"})
    Manifest("some.score", "test").write(manifest, [spans.file_of(manifest)])
    return manifest


def folder_digest(folder: Path) -> str:
    """The SHA-256 of a folder, as the shell prints it."""
    command = ["sh", "-c", pinned_names.folder_command(str(folder))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
