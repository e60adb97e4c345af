"""Find the language of every line of a document, and cut the lines that are in none of the wanted ones.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies; nothing is cut where
`cut` is false. Signals: `id, source, curated, languages` (of lines, the most characters first), `foreign` (the share of characters on
lines in languages that are not wanted) and `characters` (left).
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core import language_codes
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.multilingual.passages import classify_lines, foreign_characters, foreign_spans
from crawl2llm.formats import spans, surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.labels_by_document import language_lookup
from crawl2llm.formats.language_identifier import Identifier, model_path

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        ("languages", pa.list_(pa.string())),
        ("foreign", pa.float64()),
        ("characters", pa.int64()),
    ]
)


def languages_to_keep(languages: list[str], wanted_languages: list[str]) -> list[str]:
    """Of a document's languages, those that are wanted; its own, the first, where none is named."""
    return (
        [name for name in languages if language_codes.is_listed(name, wanted_languages)]
        if wanted_languages
        else languages[:1]
    )


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    key = "multilingual.score.model"
    identify = Identifier(model_path(settings["model"], key), key)
    language_of = language_lookup(args.languages, args.documents)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    spans_file = spans.file_of(args.manifest)
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    mixed_documents, spans_by_language = 0, Counter[str]()
    with Writer(out, SIGNAL) as writer, Writer(spans_file, spans.SCHEMA) as places:
        for row in surviving_texts.texts(
            args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True
        ):
            text, own_language = row["text"], language_of(row["id"])
            passages = classify_lines(text, identify, own_language, settings["characters_min"], settings["threshold"])
            counts: Counter[str] = Counter()
            for line in passages:
                counts[line.language] += len(text[line.start : line.end].strip())
            languages = sorted(filter(counts.get, counts), key=lambda name: (-counts[name], name))
            kept_languages = languages_to_keep(languages, settings["languages"])
            # The text of a curated source, or of one that skips this filter, stays as it is.
            is_untouched = row["curated"] or row["source"] in settings["skipped_by"] or not settings["cut"]
            cut = [] if is_untouched else list(foreign_spans(text, passages, kept_languages))
            for span in cut:
                places.add(spans.original_row(row, span))
                spans_by_language[span.rule] += 1
            mixed_documents += len(languages) > 1
            measures = {
                "languages": languages,
                "foreign": foreign_characters(text, passages, kept_languages) / max(counts.total(), 1),
                "characters": len(spans.EditedText(text, cut).text.strip()),
            }
            writer.add({**{name: row[name] for name in ("id", "source", "curated")}, **measures})
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"mixed": mixed_documents, "taken": dict(sorted(spans_by_language.items()))}
    return [out, spans_file]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "multilingual.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE}"
        " --languages results/main/language/score/00000.manifest.json --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    parser.add_argument("--languages", required=True, type=Path, help="manifest of the same language.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
