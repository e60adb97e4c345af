"""Compare all models of a run, pairwise, on what both answered: better, worse, or no significant difference.

Writes compare.json: for each pair the difference of accuracy on every task, of the bits for each byte of a public task's right answers and
of bits per held-out byte, its standard error, its interval and the verdict. Items and documents are compared one by one, so that what is
hard for both does not count. And `slices`: what each model takes of the held-out text by source and by language.
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

from crawl2llm.chain.model_registry import BASE, UNTRAINED
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import format_quantity, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.intervals import DIGITS, LEAST_DOCUMENTS, bootstrap_interval
from crawl2llm.core.manifest import Manifest, pretty_json, task_of, write_atomically
from crawl2llm.formats.public_tasks.measures import HEADLINES
from crawl2llm.stages.evaluate.scores import BITS_PER_BYTE
from crawl2llm.stages.evaluate.settings import CompareSettings
from crawl2llm.stages.evaluate.slices import document_origins, slice_rows

TEXT = "heldout_text"
ANSWER_BITS = f".{BITS_PER_BYTE}"  # behind the name of a task: of its right answers


def result_rows(manifest: Manifest, kind: str) -> list[dict[str, Any]]:
    """The rows of `<model>.<kind>.jsonl` of an evaluation. Raises ManifestError for a file that is missing or damaged."""
    assert manifest.path is not None  # it was read
    name = f"{task_of(manifest.path)}.{kind}.jsonl"
    return manifest.rows(name)


def interval_verdict(low: float, high: float, lower_is_better: bool) -> str:
    """`better`, `worse` or `unclear`: whether the interval of a difference is on one side of 0."""
    if low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == lower_is_better else "worse"


def compare_scores(
    name: str, rows: Iterable[tuple[str, float, float, float]], settings: CompareSettings, salt: str
) -> dict[str, Any] | None:
    """One measure of a second model less that of a first; None if they have nothing in common.

    rows: (document, what the first and the second score, size) of each item; a measure is sum(scores) / sum(sizes).
    """
    documents: dict[str, list[float]] = {}
    for document, first, second, size in rows:
        sums = documents.setdefault(document, [0.0, 0.0, 0.0])
        for place, value in enumerate((first, second, size)):
            sums[place] += value
    if not documents:
        return None
    table = np.array([documents[name] for name in sorted(documents)])
    first_sum, second_sum, size = (float(value) for value in table.sum(axis=0))
    fields: dict[str, Any] = {
        "first": first_sum / size,
        "second": second_sum / size,
        "difference": (second_sum - first_sum) / size,
    }
    if len(table) >= LEAST_DOCUMENTS:
        gains = table[:, 1] - table[:, 0]
        seed = [settings.seed, zlib.crc32(salt.encode())]
        stderr, low, high = bootstrap_interval(gains, table[:, 2], settings.resamples, settings.confidence, seed)
        fields |= {"stderr": stderr, "low": low, "high": high}
    rounded = {key: round(value, DIGITS) for key, value in fields.items()}
    is_loss = name == TEXT or name.endswith(ANSWER_BITS)
    verdict = interval_verdict(fields["low"], fields["high"], is_loss) if "low" in fields else "unclear"
    return {"measure": name, **rounded, "verdict": verdict, "documents": len(table)}


def text_difference(first: Manifest, second: Manifest, settings: CompareSettings, salt: str) -> dict[str, Any] | None:
    """Bits per byte of the held-out documents that both scored."""
    first_rows = {row["document"]: row for row in result_rows(first, "heldout")}
    both = [
        (first_rows[row["document"]], row) for row in result_rows(second, "heldout") if row["document"] in first_rows
    ]
    rows = (
        (first_row["document"], first_row["nats"] / math.log(2), second_row["nats"] / math.log(2), first_row["bytes"])
        for first_row, second_row in both
        if first_row["bytes"]
    )
    return compare_scores(TEXT, rows, settings, salt)


def task_differences(first: Manifest, second: Manifest, settings: CompareSettings, salt: str) -> list[dict[str, Any]]:
    """Accuracy on the items of each task that both answered, and how many only one of them has right; and where it is known how many bits
    for each byte of the right answer each took.
    """
    first_rows = {(row["task"], row["id"]): row for row in result_rows(first, "items")}
    both: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for row in result_rows(second, "items"):
        if (row["task"], row["id"]) in first_rows:
            both.setdefault(row["task"], []).append((first_rows[row["task"], row["id"]], row))
    comparisons = []
    for task in sorted(both, key=lambda task: list(HEADLINES).index(task) if task in HEADLINES else len(HEADLINES)):
        rows = (
            (first_row["document"], float(first_row["right"]), float(second_row["right"]), 1.0)
            for first_row, second_row in both[task]
        )
        more = {
            "items": len(both[task]),
            "only_first": sum(a["right"] > b["right"] for a, b in both[task]),
            "only_second": sum(b["right"] > a["right"] for a, b in both[task]),
        }
        comparisons.append({**(compare_scores(task, rows, settings, f"{salt} {task}") or {}), **more})
        if all(BITS_PER_BYTE in row for pair in both[task] for row in pair):
            name = f"{task}{ANSWER_BITS}"
            bits = ((a["document"], a[BITS_PER_BYTE], b[BITS_PER_BYTE], 1.0) for a, b in both[task])
            comparisons.append(
                {**(compare_scores(name, bits, settings, f"{salt} {name}") or {}), "items": len(both[task])}
            )
    return comparisons


def answer_differences(first: Manifest, second: Manifest, settings: CompareSettings, salt: str) -> list[dict[str, Any]]:
    """ROUGE-L and chrF of the answers that both gave to the same questions, question by question; chrF as a share of 1."""
    first_rows = {row["id"]: row for row in result_rows(first, "answers")}
    both = [(first_rows[row["id"]], row) for row in result_rows(second, "answers") if row["id"] in first_rows]
    comparisons = []
    for name, scale in (("rougeL", 1.0), ("chrf", 100.0)):
        rows = (
            (first_row["document"], first_row[name] / scale, second_row[name] / scale, 1.0)
            for first_row, second_row in both
        )
        if comparison := compare_scores(f"answers.{name}", rows, settings, f"{salt} {name}"):
            comparisons.append({**comparison, "items": len(both)})
    return comparisons


def score_differences(first: Manifest, second: Manifest, settings: CompareSettings, salt: str) -> list[dict[str, Any]]:
    """The judge's scores of the answers that it gave both models one for, as shares of its scale."""
    low, high = first.summary["scale"]
    first_rows = {row["id"]: row for row in result_rows(first, "scores") if row["score"] is not None}
    both = [
        (first_rows[row["id"]], row)
        for row in result_rows(second, "scores")
        if row["id"] in first_rows and row["score"] is not None
    ]
    rows = (
        (first_row["document"], *((row["score"] - low) / (high - low) for row in (first_row, second_row)), 1.0)
        for first_row, second_row in both
    )
    comparison = compare_scores("judge", rows, settings, f"{salt} judge")
    return [{**comparison, "items": len(both)}] if comparison else []


def check_same_text(rows_by_model: dict[str, list[dict[str, Any]]]) -> None:
    """Raise InputError for models whose held-out rows are not of the same documents: their bits per byte say nothing of each other."""
    texts = {name: {row["document"]: row["bytes"] for row in rows} for name, rows in rows_by_model.items()}
    first = next(iter(texts), "")
    for name, sizes in texts.items():
        if sizes != texts[first]:
            raise InputError(
                f"evaluate.model scored {first} on {describe_text(texts[first])} and {name} on {describe_text(sizes)}, not the same: "
                "remove the manifests of evaluate.model, and run again"
            )


def describe_text(sizes: dict[str, int]) -> str:
    """How many documents and bytes. sizes: in bytes, by document."""
    return f"{format_quantity(len(sizes), 'held-out document')} of {sum(sizes.values()):,} bytes"


def body(args: argparse.Namespace, settings: CompareSettings, manifest: Manifest) -> list[Path]:
    evaluations = {task_of(path): Manifest.read(path) for path in args.evaluations}
    public = {task_of(path): Manifest.read(path) for path in args.public}
    generations = {task_of(path): Manifest.read(path) for path in args.generated}
    judgements = {task_of(path): Manifest.read(path) for path in args.judged}
    documents = {name: int(evaluation.counts.get("kept", 0)) for name, evaluation in evaluations.items()}
    check_same_text({name: result_rows(evaluation, "heldout") for name, evaluation in evaluations.items()})
    evaluations.pop(UNTRAINED, None)  # what any training is better than
    names = sorted(evaluations, key=lambda name: (name != BASE, name))  # whatever order the config has them in
    pairs = []
    for first, second in combinations(names, 2):
        salt = f"{first} {second}"
        text = text_difference(evaluations[first], evaluations[second], settings, salt)
        measures = [
            *([text] if text else []),
            *task_differences(evaluations[first], evaluations[second], settings, salt),
        ]
        if first in public and second in public:
            measures += task_differences(public[first], public[second], settings, salt)
        if first in generations and second in generations:
            measures += answer_differences(generations[first], generations[second], settings, salt)
        if first in judgements and second in judgements:
            measures += score_differences(judgements[first], judgements[second], settings, salt)
        pairs.append({"first": first, "second": second, "measures": measures})
        for comparison in measures:
            log.info(
                "%s and %s, %s: %+.4f, %s",
                second,
                first,
                comparison["measure"],
                comparison["difference"],
                comparison["verdict"],
            )
    heldout_rows = {name: result_rows(evaluation, "heldout") for name, evaluation in evaluations.items()}
    origins = document_origins(
        {row["document"] for model_rows in heldout_rows.values() for row in model_rows}, args.tokens, args.languages
    )
    slices = {name: slice_rows(of, origins, settings) for name, of in heldout_rows.items()}
    result = {
        "pairs": pairs,
        "slices": slices,
        "confidence": settings.confidence,
        "resamples": settings.resamples,
    }
    out = args.manifest.parent / "compare.json"
    write_atomically(out, pretty_json(result))
    untrained_documents = documents.get(UNTRAINED, 0)
    manifest.counts = {
        "in": sum(documents.values()),
        "kept": sum(documents.values()) - untrained_documents,
        "dropped": {UNTRAINED: untrained_documents} if untrained_documents else {},
    }
    manifest.summary = result
    return [out]


main = Program("evaluate.compare", __doc__, CompareSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
