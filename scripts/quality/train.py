"""Train the quality classifier: fastText supervised, curated documents against random pages of the crawl.

Positives are the documents of curated sources, negatives a random sample of the rest, both after deduplication. A share of
each is held out and never trained on; ROC-AUC is measured on it. Hyper-parameters follow DCLM (Li et al. 2024, arXiv:2406.11794,
section 4.4) and CCNet. Without curated documents no model is trained, and later steps keep everything.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from scripts.common import cli
from scripts.common.console import Progress, log
from scripts.common.documents import data, shard_of, survivors, uniform
from scripts.common.manifest import Manifest, scratch
from scripts.quality.classifier import NEGATIVE, POSITIVE, Classifier, one_line


def roc_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Area under the ROC curve of scores, ties counted half (Mann-Whitney U). NaN where a side is empty."""
    if not len(positive) or not len(negative):
        return float("nan")
    ranks = rankdata(np.concatenate([positive, negative]))
    wins = ranks[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(wins / (len(positive) * len(negative)))


def rates(shards: list[tuple[Path, Path]], settings: dict[str, Any]) -> tuple[dict[bool, int], dict[bool, float]]:
    """How many candidates each side (curated: True, crawl: False) has, and the share to sample of each."""
    found = {True: 0, False: 0}
    for documents, verdicts in shards:
        for row in survivors(documents, verdicts, ["id", "curated"]):
            found[row["curated"]] += 1
    wanted = {True: settings["max_positives"], False: settings["max_negatives"]}
    return found, {side: min(1.0, wanted[side] / max(found[side], 1)) for side in found}


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shards = [(data(path), data(args.verdicts, shard_of(path))) for path in args.documents]
    seed = settings["seed"]
    found, share = rates(shards, settings)
    if not found[True] or not found[False]:
        missing = "curated documents" if not found[True] else "documents of the crawl"
        log.info("no %s reached this step: no classifier is trained and every document stays", missing)
        manifest.summary = {"trained": False, "positives": found[True], "negatives": found[False]}
        return []

    out = args.manifest.with_name("model.bin")
    counts = {"train": {True: 0, False: 0}, "heldout": {True: 0, False: 0}}
    with scratch(args.manifest.with_name(".examples")) as folder:
        examples, heldout = folder / "train.txt", folder / "heldout.txt"
        progress = Progress(sum(found.values()), "documents read")
        with examples.open("w", encoding="utf-8") as train, heldout.open("w", encoding="utf-8") as held:
            for documents, verdicts in shards:
                for row in survivors(documents, verdicts, ["id", "curated", "text"]):
                    progress.add()
                    if uniform(seed, row["id"], "sample") >= share[row["curated"]]:
                        continue
                    aside = uniform(seed, row["id"], "heldout") < settings["heldout_fraction"]
                    counts["heldout" if aside else "train"][row["curated"]] += 1
                    label = POSITIVE if row["curated"] else NEGATIVE
                    (held if aside else train).write(f"{label} {one_line(row['text'])}\n")
        for side, name in ((True, "curated"), (False, "crawl")):
            if not counts["train"][side]:
                raise cli.InputError(
                    f"quality.train: no {name} document is left to train on out of {found[side]}; add some, or lower "
                    f"quality.train.heldout_fraction ({settings['heldout_fraction']})"
                )
        log.info("training on %s curated and %s crawl documents", *(counts["train"][side] for side in (True, False)))
        classifier = Classifier.train(examples, settings)
        classifier.save(out)
        scores: dict[bool, list[float]] = {True: [], False: []}
        with heldout.open(encoding="utf-8") as held:
            for line in held:
                label, _, text = line.partition(" ")
                scores[label == POSITIVE].append(classifier(text))
    auc = roc_auc(np.array(scores[True]), np.array(scores[False]))
    log.info("ROC-AUC %.4f on %s held-out documents", auc, len(scores[True]) + len(scores[False]))
    manifest.summary = {
        "trained": True,
        "positives": counts["train"][True],
        "negatives": counts["train"][False],
        "heldout": {"positives": counts["heldout"][True], "negatives": counts["heldout"][False]},
        "roc_auc": None if np.isnan(auc) else round(auc, 6),
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "quality.train",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/*.manifest.json "
        "--verdicts results/main/dedup/select/manifest.json --manifest /tmp/quality/manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, nargs="+", help="manifests of ingest.extract")
    parser.add_argument("--verdicts", required=True, type=Path, help="manifest of dedup.select")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
