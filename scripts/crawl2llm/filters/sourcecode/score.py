"""Measure the documents that are code: line lengths, letters, encoded data, what their head says.

Signals: `id, source, curated, extension` (null: the document is no code, and all that follows is null), `data` (a language of long
lines) and the measures of filters/sourcecode/measures.py. A document is code where its source is one of `sources`, or its path ends in one
of `extensions`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.sourcecode.measures import COUNTS, DATA_EXTENSIONS, SHARES, TEXTS, file_extension, measure_file
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of

PATHS = ("path", "max_stars_repo_path", "file_path", "filename")  # of what a row says beside its text
SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        ("extension", pa.string()),
        ("data", pa.bool_()),
        *((name, pa.int64()) for name in COUNTS),
        *((name, pa.float64()) for name in SHARES),
        *((name, pa.string()) for name in TEXTS),
    ]
)


def path_of(row: dict[str, Any]) -> str:
    """Where a document's file lies, as its metadata or its URL says."""
    metadata = json.loads(row["metadata"] or "{}")
    fields = {name.rpartition(".")[2]: value for name, value in metadata.get("fields", {}).items()}
    path = next((fields[name] for name in PATHS if isinstance(fields.get(name), str)), "")
    return str(path or row["url"] or "")


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    sources, extensions = frozenset(settings["sources"]), frozenset(settings["extensions"])
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    by_extension: dict[str, dict[str, int]] = {}
    columns = ["source", "curated", "url", "metadata"]
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, columns):
            identity = {key: row[key] for key in ("id", "source", "curated")}
            ending = file_extension(path_of(row)) if sources or extensions else ""
            if row["source"] in sources or ending in extensions:
                writer.add(
                    {**identity, "extension": ending, "data": ending in DATA_EXTENSIONS, **measure_file(row["text"])}
                )
                counts = by_extension.setdefault(ending, {"documents": 0, "bytes": 0})
                counts["documents"] += 1
                counts["bytes"] += len(row["text"].encode())
            else:
                writer.add(identity)
            progress.add()
    manifest.count_all_kept(progress.done)
    notes = []
    if not sources and not extensions:
        notes.append("sourcecode.score names neither sources nor extensions: no document counts as code.")
    manifest.summary = {"by_extension": dict(sorted(by_extension.items())), "notes": notes}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "sourcecode.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
