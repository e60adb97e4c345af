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

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.quality import tools
from crawl2llm.filters.quality.perplexity import spaced_words, spelled_lines
from crawl2llm.filters.quality.scorers import ANY_LANGUAGE
from crawl2llm.filters.quality.settings import LmSettings
from crawl2llm.formats import labels_by_document, surviving_texts
from crawl2llm.formats.documents import Writer, parquet_file, shard_of, surviving_documents, uniform_hash, verdict_file
from crawl2llm.text.group_split import COLUMNS, Split

SIDE = ["source", "curated"]


class Task(LmSettings, SkippedBy):
    """The arguments of the program."""


def language_by_id(manifests: list[Path], shard: str) -> dict[str, str]:
    """id → language of a shard's documents by language.score; empty if no filter `language` comes before."""
    if not manifests:
        return {}
    return labels_by_document.languages_by_id([surviving_texts.manifest_of_shard(manifests, shard)])


def learns_from(row: dict[str, Any], settings: Task) -> bool:
    """Whether to learn from a document: of `sources`, or of a curated one where these are none; never of one that skips this filter."""
    is_learnt_source = row["source"] in settings.sources if settings.sources else row["curated"]
    return is_learnt_source and row["source"] not in settings.skipped_by


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    verdicts_by_documents = {
        path: surviving_texts.manifest_of_shard(args.verdicts, shard_of(path)) for path in args.documents
    }
    split = Split(settings.heldout_fraction, settings.seed, "origin")
    for path, verdicts in verdicts_by_documents.items():
        for row in surviving_documents(parquet_file(path), verdict_file(verdicts, shard_of(path)), [*COLUMNS, *SIDE]):
            if learns_from(row, settings):
                split.add(row)
    split.decide("documents of the language models")
    share = min(1.0, settings.max_documents / max(split.documents, 1))
    out, model_files, counts = args.manifest.with_name("models"), [], Counter[str]()
    with scratch_folder(args.manifest.with_name(".text")) as folder:
        (folder / "sort").mkdir()
        files: dict[str, Any] = {}
        heldout_file = args.manifest.with_name("heldout.parquet")
        progress = Progress(split.documents, "documents read")
        with Writer(heldout_file, pa.schema([("id", pa.string())])) as heldout_writer:
            for path, verdicts in verdicts_by_documents.items():
                languages = language_by_id(args.languages, shard_of(path))
                for row in surviving_texts.texts(path, verdicts, args.edits, [*COLUMNS, *SIDE]):
                    if not learns_from(row, settings):
                        continue
                    progress.add()
                    if split.is_held_out(row):
                        heldout_writer.add({"id": row["id"]})
                    elif uniform_hash(settings.seed, row["id"], "sample") < share:
                        name = languages.get(row["id"], ANY_LANGUAGE) if args.languages else ANY_LANGUAGE
                        if name not in files:
                            files[name] = (folder / f"{name}.txt").open("w", encoding="utf-8")
                        counts[name] += 1
                        files[name].writelines(f"{line}\n" for line in spelled_lines(row["text"], spaced_words))
        for file in files.values():
            file.close()
        trained_languages = sorted(name for name, number in counts.items() if number >= settings.min_documents)
        out.mkdir(exist_ok=True)
        for name in trained_languages:
            log.info("training on %s documents, language %s", counts[name], name)
            model = folder / f"{name}.bin"
            tools.train_model(folder / f"{name}.txt", model, settings.order, settings.prune, settings.memory_mb)
            model_files.append(model.rename(out / model.name))
    notes = list(split.notes)
    if not model_files:
        notes.append(
            f"No language model was trained: no language has {settings.min_documents} documents to learn from "
            "(quality.lm.min_documents). Perplexity says nothing on any document."
        )
    manifest.summary = {
        "documents": {name: counts[name] for name in trained_languages},
        "left_out": {name: number for name, number in sorted(counts.items()) if name not in trained_languages},
        "split": split.summary,
        "notes": notes,
    }
    return [*model_files, heldout_file]


main = Program("quality.lm", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
