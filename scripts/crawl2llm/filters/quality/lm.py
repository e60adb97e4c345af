"""Train KenLM language models on curated documents, one for each language that has enough of them.

Modified Kneser-Ney n-grams by lmplz (Heafield et al. 2013), over words as filters/quality/perplexity.py writes them. The documents are
those of curated sources, or of `sources`; a share is held out by origin and never learnt from (heldout.parquet), so that
quality.calibrate can say how well the models tell curated documents from the crawl.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.scorers import ANY
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.filters.quality import tools
from crawl2llm.filters.quality.perplexity import lines, words
from crawl2llm.formats import labels_by_document, surviving_texts
from crawl2llm.formats.documents import Writer, data, shard_of, survivors, uniform, verdict_file
from crawl2llm.text.group_split import COLUMNS, Split

SIDE = ["source", "curated"]


def languages(manifests: list[Path], shard: str) -> dict[str, str]:
    """id → language of a shard's documents by language.score; empty where no filter `language` comes before."""
    if not manifests:
        return {}
    return labels_by_document.languages([surviving_texts.of_shard(manifests, shard)])


def taken(row: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether to learn from a document: of `sources`, or of a curated one where these are none; never of one that skips this filter."""
    wanted = row["source"] in settings["sources"] if settings["sources"] else row["curated"]
    return wanted and row["source"] not in settings["skipped_by"]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    before = {path: surviving_texts.of_shard(args.verdicts, shard_of(path)) for path in args.documents}
    split = Split(settings["heldout_fraction"], settings["seed"], "origin")
    for path, verdicts in before.items():
        for row in survivors(data(path), verdict_file(verdicts, shard_of(path)), [*COLUMNS, *SIDE]):
            if taken(row, settings):
                split.add(row)
    split.decide("documents of the language models")
    share = min(1.0, settings["max_documents"] / max(split.documents, 1))
    out, made, counts = args.manifest.with_name("models"), [], Counter[str]()
    with scratch(args.manifest.with_name(".text")) as folder:
        (folder / "sort").mkdir()
        files: dict[str, Any] = {}
        held = args.manifest.with_name("heldout.parquet")
        progress = Progress(split.documents, "documents read")
        with Writer(held, pa.schema([("id", pa.string())])) as aside:
            for path, verdicts in before.items():
                known = languages(args.languages, shard_of(path))
                for row in surviving_texts.texts(path, verdicts, args.edits, [*COLUMNS, *SIDE]):
                    if not taken(row, settings):
                        continue
                    progress.add()
                    if split.holds(row):
                        aside.add({"id": row["id"]})
                    elif uniform(settings["seed"], row["id"], "sample") < share:
                        name = known.get(row["id"], ANY) if args.languages else ANY
                        if name not in files:
                            files[name] = (folder / f"{name}.txt").open("w", encoding="utf-8")
                        counts[name] += 1
                        files[name].writelines(f"{line}\n" for line in lines(row["text"], words))
        for file in files.values():
            file.close()
        enough = sorted(name for name, number in counts.items() if number >= settings["min_documents"])
        out.mkdir(exist_ok=True)
        for name in enough:
            log.info("training on %s documents, language %s", counts[name], name)
            model = folder / f"{name}.bin"
            tools.train(folder / f"{name}.txt", model, settings["order"], settings["prune"], args.memory_mb)
            made.append(model.rename(out / model.name))
    notes = list(split.notes)
    if not made:
        notes.append(
            f"No language model was trained: no language has {settings['min_documents']} documents to learn from "
            "(quality.lm.min_documents). Perplexity says nothing on any document."
        )
    manifest.summary = {
        "documents": {name: counts[name] for name in enough},
        "left_out": {name: number for name, number in sorted(counts.items()) if name not in enough},
        "split": split.summary,
        "notes": notes,
    }
    return [*made, held]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "quality.lm",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/lm/manifest.json",
    )
    surviving_texts.options(parser, all_shards=True)
    parser.add_argument(
        "--languages", type=Path, nargs="*", default=[], help="manifests of language.score, where it is used before"
    )
    command_line.placement(parser, "quality.lm")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
