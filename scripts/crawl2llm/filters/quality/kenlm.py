"""Score every document of a shard by its perplexity under KenLM language models: those of quality.lm, and ready ones by language.

Signals: `id, source, curated, language` and a column for each scorer; low is good. Null for a document whose language has no model, and
for one without a line of text.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.scorers import ANY, LM, models
from crawl2llm.core import pinned_names
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.lm import languages
from crawl2llm.filters.quality.perplexity import Models
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, data, shard_of, survivors, verdict_file


def folders(args: argparse.Namespace, settings: dict[str, Any]) -> dict[str, dict[str, Path]]:
    """Scorer → its models by language."""
    found = {
        entry["name"]: models(
            Path(pinned_names.path_with_its_digest(entry["path"], f"quality.kenlm.models: {entry['name']}"))
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
    number = surviving_texts.number(args.documents, args.verdicts)
    progress = Progress(number * len(paths), "perplexities")
    found: dict[str, dict[str, float]] = {}
    for name, own in paths.items():
        # Without the filter language every document is asked of the one model that there is.
        lone = next(iter(own)) if len(own) == 1 else ANY
        texts = surviving_texts.texts(args.documents, args.verdicts, args.edits, [])
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
    parser = command_line.parser(
        "quality.kenlm",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --lm results/main/quality/lm/manifest.json --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.options(parser)
    parser.add_argument(
        "--languages", type=Path, nargs="*", default=[], help="manifest of language.score, where it is used before"
    )
    parser.add_argument("--lm", type=Path, nargs="*", default=[], help="manifest of quality.lm, where it is used")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
