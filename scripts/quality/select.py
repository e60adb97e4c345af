"""Keep the documents with the highest scores of the quality classifier, and all curated documents.

`method: fraction` keeps the top `keep_fraction` of the crawl's documents. `method: pareto` keeps a document with score s when a
Pareto(alpha) draw exceeds 1 - s, so that some noise stays (Brown et al. 2020, arXiv:2005.14165, appendix A); the draw
is a hash of (seed, id).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.formats.documents import batches, data, select_signals, uniform
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest

BINS = 20  # of the histogram of scores over [0, 1]


def crawl_scores(paths: list[Path]) -> np.ndarray:
    """The scores of all documents that are not curated, 8 bytes each; nulls (no classifier) are left out."""
    parts = [np.empty(0)]
    for path in paths:
        for batch in batches(path, ["curated", "score"], size=1 << 16):
            scores = batch.column("score").to_numpy(zero_copy_only=False).astype(float)
            parts.append(scores[~batch.column("curated").to_numpy(zero_copy_only=False) & ~np.isnan(scores)])
    return np.concatenate(parts)


def cut(scores: np.ndarray, fraction: float) -> float:
    """The score at or above which the top `fraction` of the scores lies; 0 where there are none."""
    if not len(scores) or fraction >= 1:
        return 0.0
    drop = len(scores) - round(len(scores) * fraction)
    return float(np.partition(scores, drop)[drop]) if drop < len(scores) else float(np.nextafter(scores.max(), 2))


def pareto(seed: int, identifier: str, alpha: float) -> float:
    """A draw from NumPy's Pareto II (Lomax) distribution, from the hash of (seed, id) by its inverse."""
    return float((1.0 - uniform(seed, identifier, "pareto")) ** (-1.0 / alpha) - 1.0)


def judge(row: dict[str, Any], settings: dict[str, Any], threshold: float) -> dict[str, Any]:
    """The verdict on one signals row; `threshold` is what `cut` found."""
    score = row["score"]
    if score is None or row["curated"]:
        failed = False
    elif settings["method"] == "pareto":
        threshold = 1.0 - pareto(settings["seed"], row["id"], settings["alpha"])
        failed = score <= threshold
    else:
        failed = score < threshold
    rule = settings["method"]
    return {
        "id": row["id"],
        "kept": not failed,
        "rule": rule if failed else None,
        "value": score if failed else None,
        "threshold": threshold if failed else None,
        "rules": [rule] if failed else [],
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    scores = crawl_scores([data(path) for path in args.signals])
    threshold = cut(scores, settings["keep_fraction"])
    judged = partial(judge, settings=settings, threshold=threshold)
    files = select_signals(args.signals, args.manifest.parent, judged, manifest)
    histogram = np.histogram(scores, bins=BINS, range=(0.0, 1.0))[0].tolist()
    manifest.summary |= {
        "scored": len(scores),
        "method": settings["method"],
        "threshold": threshold if settings["method"] == "fraction" and len(scores) else None,
        "histogram": histogram,
    }
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "quality.select",
        __doc__,
        "--config config.yaml --signals results/main/quality/score/*.manifest.json --manifest /tmp/select/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of quality.score")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
