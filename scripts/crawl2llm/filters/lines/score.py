"""Find the lines of every document that the rules of C4 and RefinedWeb take out, and count what is left.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies. Signals: `id,
source, curated, lines` (taken out), `sentences` and `characters` (left), `flagged` (share of the words that are on lines that were taken
out or cut).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line, config_schema
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.lines import rules
from crawl2llm.formats import spans, surviving_texts
from crawl2llm.formats.documents import Writer, shard_of

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        *((name, pa.int64()) for name in ("lines", "sentences", "characters")),
        ("flagged", pa.float64()),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    settings = config_schema.fill_defaults("lines.score", settings)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    spans_file = spans.file_of(args.manifest)
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    spans_by_rule: dict[str, int] = {}
    with Writer(out, SIGNAL) as writer, Writer(spans_file, spans.SCHEMA) as places:
        for row in surviving_texts.texts(
            args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True
        ):
            # The text of a curated source, or of one that skips this filter, stays as it is.
            is_untouched = row["curated"] or row["source"] in settings["skipped_by"]
            removed_spans = [] if is_untouched else list(rules.removed_spans(row["text"], settings))
            for span in removed_spans:
                places.add(spans.original_row(row, span))
                spans_by_rule[span.rule] = spans_by_rule.get(span.rule, 0) + 1
            left = spans.EditedText(row["text"], removed_spans).text
            lines = sum(span.rule not in rules.RULES_INSIDE_LINES for span in removed_spans)
            counts: dict[str, float]
            counts = {"lines": lines, "sentences": rules.count_sentences(left), "characters": len(left.strip())}
            counts["flagged"] = rules.flagged_share(row["text"], removed_spans)
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **counts})
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"taken": spans_by_rule}
    return [out, spans_file]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "lines.score", __doc__, f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json"
    )
    surviving_texts.add_options(parser)
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
