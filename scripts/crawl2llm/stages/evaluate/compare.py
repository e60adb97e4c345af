"""Compare all models of a run, pairwise, on what both answered: better, worse, or not to be told apart.

Writes compare.json: for each pair the difference of accuracy on every task and of bits per held-out byte, its standard error, its
interval and the verdict. Items and documents are compared one by one, so that what is hard for both does not count. And `slices`: what
each model takes of the held-out text by source and by language.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import BASE, UNTRAINED
from crawl2llm.core.console import log
from crawl2llm.core.intervals import DIGITS, LEAST, interval
from crawl2llm.core.manifest import Manifest, pretty, task_of, write_atomically
from crawl2llm.formats.public_tasks.measures import HEADLINES
from crawl2llm.stages.evaluate.slices import measured, origins

TEXT = "heldout_text"


def lines(manifest: Manifest, kind: str) -> list[dict[str, Any]]:
    """The rows of `<model>.<kind>.jsonl` of an evaluation. Raises ManifestError for a file that is missing or damaged."""
    assert manifest.path is not None  # it was read
    name = f"{task_of(manifest.path)}.{kind}.jsonl"
    return manifest.rows(name)


def verdict(low: float, high: float, lower_is_better: bool) -> str:
    """`better`, `worse` or `unclear`: whether the interval of a difference is on one side of 0."""
    if low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == lower_is_better else "worse"


def measure(
    name: str, rows: Iterable[tuple[str, float, float, float]], settings: dict[str, Any], salt: str
) -> dict[str, Any] | None:
    """One measure of a second model less that of a first; None where they have nothing in common.

    rows: (document, what the first and the second score, size) of each item; a measure is sum(scores) / sum(sizes).
    """
    documents: dict[str, list[float]] = {}
    for document, first, second, size in rows:
        held = documents.setdefault(document, [0.0, 0.0, 0.0])
        for place, value in enumerate((first, second, size)):
            held[place] += value
    if not documents:
        return None
    table = np.array([documents[name] for name in sorted(documents)])
    one, other, size = (float(value) for value in table.sum(axis=0))
    found: dict[str, Any] = {"first": one / size, "second": other / size, "difference": (other - one) / size}
    if len(table) >= LEAST:
        gains = table[:, 1] - table[:, 0]
        seed = [settings["seed"], zlib.crc32(salt.encode())]
        wide, low, high = interval(gains, table[:, 2], settings["resamples"], settings["confidence"], seed)
        found |= {"stderr": wide, "low": low, "high": high}
    rounded = {key: round(value, DIGITS) for key, value in found.items()}
    told = verdict(found["low"], found["high"], name == TEXT) if "low" in found else "unclear"
    return {"measure": name, **rounded, "verdict": told, "documents": len(table)}


def on_text(first: Manifest, second: Manifest, settings: dict[str, Any], salt: str) -> dict[str, Any] | None:
    """Bits per byte of the held-out documents that both scored."""
    own = {row["document"]: row for row in lines(first, "heldout")}
    both = [(own[row["document"]], row) for row in lines(second, "heldout") if row["document"] in own]
    rows = (
        (a["document"], a["nats"] / math.log(2), b["nats"] / math.log(2), a["bytes"]) for a, b in both if a["bytes"]
    )
    return measure(TEXT, rows, settings, salt)


def on_tasks(first: Manifest, second: Manifest, settings: dict[str, Any], salt: str) -> list[dict[str, Any]]:
    """Accuracy on the items of each task that both answered, and how many only one of them has right."""
    own = {(row["task"], row["id"]): row for row in lines(first, "items")}
    both: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for row in lines(second, "items"):
        if (row["task"], row["id"]) in own:
            both.setdefault(row["task"], []).append((own[row["task"], row["id"]], row))
    found = []
    for task in sorted(both, key=lambda task: list(HEADLINES).index(task) if task in HEADLINES else len(HEADLINES)):
        rows = ((a["document"], float(a["right"]), float(b["right"]), 1.0) for a, b in both[task])
        more = {
            "items": len(both[task]),
            "only_first": sum(a["right"] > b["right"] for a, b in both[task]),
            "only_second": sum(b["right"] > a["right"] for a, b in both[task]),
        }
        found.append({**(measure(task, rows, settings, f"{salt} {task}") or {}), **more})
    return found


def on_answers(first: Manifest, second: Manifest, settings: dict[str, Any], salt: str) -> list[dict[str, Any]]:
    """ROUGE-L and chrF of the answers that both gave to the same questions, question by question; chrF as a share of 1."""
    own = {row["id"]: row for row in lines(first, "answers")}
    both = [(own[row["id"]], row) for row in lines(second, "answers") if row["id"] in own]
    found = []
    for name, whole in (("rougeL", 1.0), ("chrf", 100.0)):
        rows = ((a["document"], a[name] / whole, b[name] / whole, 1.0) for a, b in both)
        if one := measure(f"answers.{name}", rows, settings, f"{salt} {name}"):
            found.append({**one, "items": len(both)})
    return found


def on_scores(first: Manifest, second: Manifest, settings: dict[str, Any], salt: str) -> list[dict[str, Any]]:
    """The judge's scores of the answers that it gave both models one for, as shares of its scale."""
    low, high = first.summary["scale"]
    own = {row["id"]: row for row in lines(first, "scores") if row["score"] is not None}
    both = [(own[row["id"]], row) for row in lines(second, "scores") if row["id"] in own and row["score"] is not None]
    rows = ((a["document"], *((row["score"] - low) / (high - low) for row in (a, b)), 1.0) for a, b in both)
    one = measure("judge", rows, settings, f"{salt} judge")
    return [{**one, "items": len(both)}] if one else []


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    read = {task_of(path): Manifest.read(path) for path in args.evaluations}
    public = {task_of(path): Manifest.read(path) for path in args.public}
    generated = {task_of(path): Manifest.read(path) for path in args.generated}
    judged = {task_of(path): Manifest.read(path) for path in args.judged}
    documents = {name: int(made.counts.get("kept", 0)) for name, made in read.items()}
    read.pop(UNTRAINED, None)  # what any training is better than
    names = sorted(read, key=lambda name: (name != BASE, name))  # whatever order the config has them in
    pairs = []
    for first, second in combinations(names, 2):
        salt = f"{first} {second}"
        text = on_text(read[first], read[second], settings, salt)
        measures = [*([text] if text else []), *on_tasks(read[first], read[second], settings, salt)]
        if first in public and second in public:
            measures += on_tasks(public[first], public[second], settings, salt)
        if first in generated and second in generated:
            measures += on_answers(generated[first], generated[second], settings, salt)
        if first in judged and second in judged:
            measures += on_scores(judged[first], judged[second], settings, salt)
        pairs.append({"first": first, "second": second, "measures": measures})
        for one in measures:
            log.info("%s and %s, %s: %+.4f, %s", second, first, one["measure"], one["difference"], one["verdict"])
    scored = {name: lines(made, "heldout") for name, made in read.items()}
    known = origins({row["document"] for of in scored.values() for row in of}, args.tokens, args.languages)
    slices = {name: measured(of, known, settings) for name, of in scored.items()}
    result = {
        "pairs": pairs,
        "slices": slices,
        "confidence": settings["confidence"],
        "resamples": settings["resamples"],
    }
    out = args.manifest.parent / "compare.json"
    write_atomically(out, pretty(result))
    aside = documents.get(UNTRAINED, 0)
    manifest.counts = {
        "in": sum(documents.values()),
        "kept": sum(documents.values()) - aside,
        "dropped": {UNTRAINED: aside} if aside else {},
    }
    manifest.summary = result
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "evaluate.compare",
        __doc__,
        "--config config.yaml --evaluations results/main/evaluate/model/*.manifest.json --manifest /tmp/compare/manifest.json",
    )
    parser.add_argument("--evaluations", required=True, type=Path, nargs="+", help="manifests of evaluate.model")
    parser.add_argument("--tokens", type=Path, nargs="*", default=[], help="manifests of tokenize.encode: sources")
    parser.add_argument(
        "--languages", type=Path, nargs="*", default=[], help="manifests of language.score, where it is used"
    )
    parser.add_argument("--generated", type=Path, nargs="*", default=[], help="manifests of evaluate.generate")
    parser.add_argument("--judged", type=Path, nargs="*", default=[], help="manifests of evaluate.judge")
    parser.add_argument(
        "--public", type=Path, nargs="*", default=[], help="manifests of evaluate.public, where tasks are named"
    )
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
