"""Search every document for the items of the evaluation sets.

Signals, a row for each document: `id, source, curated, characters, matches, overlap` (the highest; 0 without any), `set` and `item` (of
that one). `matches/<shard>.parquet`, a row for each item in a document: `id, url, set, item, overlap, words, answered`, `start, end` in
characters of the original text, `searched_start` and `searched_end` in those of the text that is searched, `characters` long: that with
the edits of the filters before, except masks, which would hide an item. Memory: the index (filters/decontaminate/search.py), and BATCH
documents.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.decontaminate import items
from crawl2llm.filters.decontaminate.search import Index, Match, build_index
from crawl2llm.filters.decontaminate.settings import ScoreSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of, sidecar_file

BATCH = 64  # documents that are searched at once
SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        ("characters", pa.int64()),
        ("matches", pa.int64()),
        ("overlap", pa.float64()),
        ("set", pa.string()),
        ("item", pa.string()),
    ]
)
MATCH_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("set", pa.string()),
        ("item", pa.string()),
        ("overlap", pa.float64()),
        ("words", pa.int64()),
        ("answered", pa.bool_()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("searched_start", pa.int64()),
        ("searched_end", pa.int64()),
    ]
)


@cache
def load_index(manifest: Path) -> Index:
    """The index of a manifest of decontaminate.index; of all shards of a task the same."""
    searched_items, search_settings = items.read_items(manifest)
    return build_index(searched_items, search_settings)


def rows_with_matches(rows: Iterator[dict[str, Any]], index: Index) -> Iterator[tuple[dict[str, Any], list[Match]]]:
    """Each row with its matches, in characters of its `text`."""
    while batch := list(islice(rows, BATCH)):
        yield from zip(batch, index.find_matches([row["text"] for row in batch]), strict=True)


def body(args: argparse.Namespace, settings: ScoreSettings, manifest: Manifest) -> list[Path]:
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress, documents = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents"), 0
    columns = ["source", "curated", "url"]
    with Writer(out, SIGNAL) as writer, Writer(sidecar_file(args.manifest, "matches"), MATCH_SCHEMA) as places:
        texts = surviving_texts.texts(args.documents, args.verdicts, args.edits, columns, originals=True)
        for row, matches in rows_with_matches(texts, load_index(args.index)):
            for match in matches:
                start, end = row["original"](match.start, match.end)
                fields = {key: getattr(match, key) for key in ("set", "item", "overlap", "words", "answered")}
                places.add(
                    {
                        "id": row["id"],
                        "url": row["url"] or "",
                        **fields,
                        "start": start,
                        "end": end,
                        "searched_start": match.start,
                        "searched_end": match.end,
                    }
                )
            best = matches[0] if matches else None
            writer.add(
                {
                    **{key: row[key] for key in ("id", "source", "curated")},
                    "characters": len(row["text"]),
                    "matches": len(matches),
                    "overlap": best.overlap if best else 0.0,
                    "set": best.set if best else None,
                    "item": best.item if best else None,
                }
            )
            documents += bool(matches)
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"method": load_index(args.index).method, "with_matches": documents}
    return [out, sidecar_file(args.manifest, "matches")]


main = Program("decontaminate.score", __doc__, ScoreSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
