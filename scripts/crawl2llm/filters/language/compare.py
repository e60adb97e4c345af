"""What other models say of every document's language, whether they agree, and whether its script fits.

Signals: `id`, `labels` and `scores` (of each model of `models`, in their order), `agreement` (the share of all models, that of
language.score among them, that find its language; languages are compared under one code), `script` (of most characters, ISO 15924)
and `script_share` (of characters in a script of the language). Null: there is nothing to compare. A model takes as long as
language.score.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core import language_codes
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.labels_by_document import language_lookup
from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.text import unicode_scripts

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("agreement", pa.float64()),
        ("script", pa.string()),
        ("script_share", pa.float64()),
    ]
)


def agreement_share(first: str, other_labels: list[str]) -> float | None:
    """The share of models that find the language of the first; None where there is no other, or the first found none."""
    code = language_codes.language_code(first)
    if not other_labels or code == "und":
        return None
    return (1 + sum(language_codes.language_code(label) == code for label in other_labels)) / (1 + len(other_labels))


def language_signals(text: str, first: str, models: list[Identifier], script: bool) -> dict[str, Any]:
    """The signals of a text, which language.score found to be `first`."""
    label_scores = [model(text) for model in models]
    labels = [label for label, _ in label_scores]
    counts = unicode_scripts.letters_by_script(text) if script else {}
    return {
        "labels": labels,
        "scores": [score for _, score in label_scores],
        "agreement": agreement_share(first, labels),
        "script": unicode_scripts.majority_script(counts),
        "script_share": unicode_scripts.script_share(counts, unicode_scripts.scripts_of_language(first))
        if script
        else None,
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    models = [
        Identifier(model_path(name, "language.compare.models"), "language.compare.models")
        for name in settings["models"]
    ]
    language_of = language_lookup(args.languages, args.documents)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    agreement_counts: dict[str, int] = {}
    script_counts: dict[str, int] = {}
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, []):
            signals = language_signals(row["text"], language_of(row["id"]), models, settings["script"])
            writer.add({"id": row["id"], **signals})
            share = "none" if signals["agreement"] is None else f"{signals['agreement']:.2f}"
            agreement_counts[share] = agreement_counts.get(share, 0) + 1
            script_counts[signals["script"] or "none"] = script_counts.get(signals["script"] or "none", 0) + 1
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"agreement": agreement_counts, "scripts": script_counts}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "language.compare",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE}"
        " --languages results/main/language/score/00000.manifest.json --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    parser.add_argument("--languages", required=True, type=Path, help="manifest of the same language.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
