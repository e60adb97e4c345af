"""Count the listed words of every document, and ask classifiers for its probability of being toxic or adult.

Signals: `id, source, curated`, `words`, `hits` (of listed words and phrases), `terms` (different ones), `classifiers` (names) and
`probabilities` (of each one's label, in their order). A document of a language without a list is compared with those of `always` alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.toxicity.classifiers import Classifier
from crawl2llm.filters.toxicity.terms import Lists
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.labels_by_document import language_lookup

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        *((name, pa.int64()) for name in ("words", "hits", "terms")),
        ("classifiers", pa.list_(pa.string())),
        ("probabilities", pa.list_(pa.float64())),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    language_of = language_lookup(args.languages, args.documents)
    lists = Lists(settings["lists"], settings["always"], settings["ignored"])
    classifiers = [Classifier(number, entry) for number, entry in enumerate(settings["classifiers"])]
    names = [classifier.name for classifier in classifiers]
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            language = language_of(row["id"])
            words, hits = lists(row["text"], language)
            counts = {"words": words, "hits": hits.total(), "terms": len(hits)}
            probabilities = {
                "classifiers": names,
                "probabilities": [classifier(row["text"]) for classifier in classifiers],
            }
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **counts, **probabilities})
            progress.add()
    manifest.count_all_kept(progress.done)
    notes = []
    if not settings["lists"] and not classifiers:
        notes.append("toxicity.score names neither lists nor classifiers: nothing was compared.")
    manifest.summary = {
        "without_list": dict(sorted((+lists.documents_without_list).items())) if settings["lists"] else {},
        "notes": notes,
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "toxicity.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE}"
        " --languages results/main/language/score/00000.manifest.json --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    parser.add_argument("--languages", required=True, type=Path, help="manifest of the same language.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
