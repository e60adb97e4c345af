"""Train the quality classifier: fastText supervised, curated documents against random pages of the crawl.

Positives are the documents of curated sources, negatives a random sample of the rest, both after deduplication; documents of
sources that skip this filter are neither. A share of
each is held out by origin (text/group_split.py) and never trained on; ROC-AUC is measured on it. Hyper-parameters follow
DCLM (Li et al. 2024, arXiv:2406.11794, section 4.4) and CCNet. With fewer than `min_examples` on a side no model is trained,
and later steps keep everything.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE, Classifier, one_line
from crawl2llm.filters.quality.settings import TrainSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import parquet_file, shard_of, surviving_documents, uniform_hash, verdict_file
from crawl2llm.text.group_split import COLUMNS, Split


def roc_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Area under the ROC curve of scores, ties counted half (Mann-Whitney U). NaN if a side is empty."""
    if not len(positive) or not len(negative):
        return float("nan")
    ranks = rankdata(np.concatenate([positive, negative]))
    wins = ranks[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(wins / (len(positive) * len(negative)))


SIDES = {True: "curated documents", False: "documents of the crawl"}
SIDE = ["source", "curated"]  # what decides a document's side
Shards = list[tuple[Path, Path]]  # Parquet files of documents and of their verdicts


class Task(TrainSettings, SkippedBy):
    """The arguments of the program."""


def eligible_documents(documents: Iterable[dict[str, Any]], settings: Task) -> Iterator[dict[str, Any]]:
    """The documents that are on a side: those of sources that skip this filter are on none, curated or not."""
    return (row for row in documents if row["source"] not in settings.skipped_by)


def sampling_rates(shards: Shards, settings: Task) -> tuple[dict[bool, int], dict[bool, float]]:
    """How many candidates each side (curated: True, crawl: False) has, and the share to sample of each."""
    counts = {True: 0, False: 0}
    for documents, verdicts in shards:
        for row in eligible_documents(surviving_documents(documents, verdicts, ["id", *SIDE]), settings):
            counts[row["curated"]] += 1
    limits = {True: settings.max_positives, False: settings.max_negatives}
    return counts, {side: min(1.0, limits[side] / max(counts[side], 1)) for side in counts}


def sampled_documents(
    documents: Iterable[dict[str, Any]], share: dict[bool, float], settings: Task
) -> Iterator[dict[str, Any]]:
    """The documents of the sample."""
    candidates, seed = eligible_documents(documents, settings), settings.seed
    return (row for row in candidates if uniform_hash(seed, row["id"], "sample") < share[row["curated"]])


def splits_by_side(shards: Shards, share: dict[bool, float], settings: Task) -> dict[bool, Split]:
    """Which documents of the sample are held out, of each side."""
    splits = {side: Split(settings.heldout_fraction, settings.seed, settings.split_by) for side in SIDES}
    documents = (row for pair in shards for row in surviving_documents(*pair, [*COLUMNS, *SIDE]))
    for row in sampled_documents(documents, share, settings):
        splits[row["curated"]].add(row)
    for side, split in splits.items():
        split.decide(SIDES[side])
    return splits


def too_few_note(splits: dict[bool, Split], min_examples: int) -> str | None:
    """Why no classifier can be trained, as a sentence for the report; None if it can."""
    train = {side: split.documents - split.summary["heldout"]["documents"] for side, split in splits.items()}
    if min(train.values()) >= min_examples:
        return None
    counts = " and ".join(f"{number:,} {SIDES[side]}" for side, number in train.items())
    return (
        f"No quality classifier was trained: there are {counts} to train on, and quality.train.min_examples is {min_examples}. "
        "Quality selection keeps every document."
    )


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    verdicts_by_documents = {
        path: surviving_texts.manifest_of_shard(args.verdicts, shard_of(path)) for path in args.documents
    }
    shards = [
        (parquet_file(path), verdict_file(verdicts, shard_of(path))) for path, verdicts in verdicts_by_documents.items()
    ]
    candidates, share = sampling_rates(shards, settings)
    split = splits_by_side(shards, share, settings)
    if note := too_few_note(split, settings.min_examples):
        log.info("%s", note)
        manifest.summary = {
            "trained": False,
            "positives": candidates[True],
            "negatives": candidates[False],
            "notes": [note],
        }
        return []

    columns = [*COLUMNS, *SIDE]
    documents = (
        row
        for path, verdicts in verdicts_by_documents.items()
        for row in surviving_texts.texts(path, verdicts, args.edits, columns)
    )
    out = args.manifest.with_name("model.bin")
    counts = {"train": {True: 0, False: 0}, "heldout": {True: 0, False: 0}}
    with scratch_folder(args.manifest.with_name(".examples")) as folder:
        lines, heldout = folder / "train.txt", folder / "heldout.txt"
        progress = Progress(sum(part.documents for part in split.values()), "documents read")
        with lines.open("w", encoding="utf-8") as train, heldout.open("w", encoding="utf-8") as heldout_stream:
            for row in sampled_documents(documents, share, settings):
                progress.add()
                is_held_out = split[row["curated"]].is_held_out(row)
                counts["heldout" if is_held_out else "train"][row["curated"]] += 1
                label = POSITIVE if row["curated"] else NEGATIVE
                (heldout_stream if is_held_out else train).write(f"{label} {one_line(row['text'])}\n")
        log.info("training on %s curated and %s crawl documents", *(counts["train"][side] for side in SIDES))
        classifier = Classifier.train(lines, settings)
        classifier.save(out)
        scores: dict[bool, list[float]] = {True: [], False: []}
        with heldout.open(encoding="utf-8") as heldout_stream:
            for line in heldout_stream:
                label, _, text = line.partition(" ")
                scores[label == POSITIVE].append(classifier(text))
    auc = roc_auc(np.array(scores[True]), np.array(scores[False]))
    log.info("ROC-AUC %.4f on %s held-out documents", auc, len(scores[True]) + len(scores[False]))
    manifest.summary = {
        "trained": True,
        "positives": counts["train"][True],
        "negatives": counts["train"][False],
        "heldout": {"positives": counts["heldout"][True], "negatives": counts["heldout"][False]},
        "split": {"positives": split[True].summary, "negatives": split[False].summary},
        "roc_auc": None if np.isnan(auc) else round(auc, 6),
        "notes": [*split[True].notes, *split[False].notes],
    }
    return [out]


main = Program("quality.train", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
