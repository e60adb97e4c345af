"""Score every document of a shard by its perplexity under KenLM language models: those of quality.lm, and ready ones by language.

Signals: `id, source, curated, language` and a column for each scorer; low is good. Null for a document whose language has no model, and
for one without a line of text.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.formats import filtered
from scripts.formats.documents import Writer, data, shard_of, survivors, verdict_file
from scripts.quality import sidecars
from scripts.quality.lm import languages
from scripts.quality.perplexity import Models
from scripts.quality.scorers import ANY, LM, models
from scripts.workflow import cli, pinned
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest, scratch


def folders(args: argparse.Namespace, settings: dict[str, Any]) -> dict[str, dict[str, Path]]:
    """Scorer → its models by language."""
    found = {
        entry["name"]: models(
            Path(pinned.path_with_its_digest(entry["path"], f"quality.kenlm.models: {entry['name']}"))
        )
        for entry in settings["models"]
    }
    for path in args.lm:
        trained = Manifest.read(path)
        found[LM] = {Path(name).stem: trained.file(name) for name in trained.files if name.endswith(".bin")}
    return found


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    known, limit = languages(args.languages, shard_of(args.documents)), settings["max_characters"]
    paths = folders(args, settings)
    number = filtered.number(args.documents, args.verdicts)
    progress = Progress(number * len(paths), "perplexities")
    found: dict[str, dict[str, float]] = {}
    for name, own in paths.items():
        # Without the filter language every document is asked of the one model that there is.
        lone = next(iter(own)) if len(own) == 1 else ANY
        texts = filtered.texts(args.documents, args.verdicts, args.edits, [])
        documents = ((row["id"], known.get(row["id"], lone), row["text"][:limit]) for row in texts)
        with scratch(args.manifest.with_name(f".{shard_of(args.documents)}.{name}")) as folder:
            found[name] = Models(own).perplexities(documents, folder, progress.add)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    with Writer(out, sidecars.schema(list(paths), language=True)) as writer:
        shard = shard_of(args.documents)
        for row in survivors(data(args.documents), verdict_file(args.verdicts, shard), ["id", "source", "curated"]):
            scores = {name: each.get(row["id"]) for name, each in found.items()}
            writer.add({**row, "language": known.get(row["id"]), **scores})
    manifest.counts = {"in": number, "kept": number, "dropped": {}}
    trained = [{"name": LM}] if args.lm else []
    manifest.summary = {
        "scorers": sidecars.described([*settings["models"], *trained], "kenlm", better="low"),
        "without_model": {name: number - len(each) for name, each in found.items()},
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "quality.kenlm",
        __doc__,
        f"--config config.yaml {filtered.EXAMPLE} --lm results/main/quality/lm/manifest.json --manifest /tmp/00000.manifest.json",
    )
    filtered.options(parser)
    parser.add_argument(
        "--languages", type=Path, nargs="*", default=[], help="manifest of language.score, where it is used before"
    )
    parser.add_argument("--lm", type=Path, nargs="*", default=[], help="manifest of quality.lm, where it is used")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
