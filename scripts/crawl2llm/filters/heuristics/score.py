"""Measure every document that got here under four families of heuristics.

Families: Gopher quality, Gopher repetition, C4, FineWeb (filters/heuristics/measures.py). All are measured on every document, so
that heuristics.select can tell what only one rule drops. Signals: `id`, `source`, `curated` and one column a measure, named
`<family>_<measure>`; null where a measure does not apply. The text itself is never edited.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core import language_codes
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.heuristics.measures import MEASURES, Limits, measure_document
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.labels_by_document import language_lookup
from crawl2llm.text.stop_words import stop_words_by_language

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        *((name, pa.int64() if kind == "count" else pa.float64()) for name, kind in MEASURES.items()),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    language_of = language_lookup(args.languages, args.documents)
    stop_words = stop_words_by_language(settings["stop_words"])
    limits = Limits(**{field.name: settings[field.name] for field in fields(Limits)})
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    characters = 0
    without_list: Counter[str] = Counter()
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            language = language_of(row["id"])
            words = language_codes.lookup_label(stop_words, language)
            if words is None:
                without_list[language] += 1
            identity = {key: row[key] for key in ("id", "source", "curated")}
            writer.add({**identity, **measure_document(row["text"], words, limits)})
            characters += len(row["text"])
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"characters": characters, "without_stop_words": dict(without_list)}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "heuristics.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE}"
        " --languages results/main/language/score/00000.manifest.json --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    parser.add_argument("--languages", required=True, type=Path, help="manifest of the same language.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
