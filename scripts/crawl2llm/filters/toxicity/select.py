"""Drop the documents with listed words, or that a classifier says are toxic; those of curated sources and of sources that skip it stay.

Rules: `terms` (more different listed words than `terms_max`), `share` (hits by words above `share_max`, of at least `share_terms_min`
different ones) and `classifier` (a probability above its threshold; `detail` names the classifier).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row


def failed_rules(row: dict[str, Any], settings: dict[str, Any]) -> list[FailedRule]:
    """What drops a document. row: of signals. settings: `toxicity.select`."""
    out = []
    if settings["terms_max"] is not None and row["terms"] > settings["terms_max"]:
        out.append(FailedRule("terms", row["terms"], settings["terms_max"]))
    share = row["hits"] / row["words"] if row["words"] else 0.0
    if (
        settings["share_max"] is not None
        and share > settings["share_max"]
        and row["terms"] >= settings["share_terms_min"]
    ):
        out.append(FailedRule("share", share, settings["share_max"]))
    for name, probability in zip(row["classifiers"], row["probabilities"], strict=True):
        threshold = settings["thresholds"].get(name, settings["threshold"])
        if probability > threshold and "classifier" not in (failure.rule for failure in out):
            out.append(FailedRule("classifier", probability, threshold, name))
    return out


def judge_document(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row."""
    return verdict_row(row["id"], failed_rules(row, settings), stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judge_row = partial(judge_document, settings=settings)
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "toxicity.select",
        __doc__,
        "--config config.yaml --signals results/main/toxicity/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same toxicity.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
