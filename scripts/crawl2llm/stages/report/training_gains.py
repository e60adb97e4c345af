"""The tiles of what training moved: held-out text, the task that is furthest from what needs no training, and held-out answers."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.formats.run_records import finite_number, nested_value
from crawl2llm.stages.report.models import words_of_model
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent, format_significant
from crawl2llm.stages.report.tasks import COMPRESSORS, NAMES, NGRAMS, accuracy_text

Tile = tuple[str, str, str, str]  # name, value, unit, what it was measured on


def baseline_text(counts: dict[str, Any]) -> str:
    """`; untrained 4.055, bigram 2.415, xz 1.944`: bits per byte of the same text without training; "" if none is known."""
    bits_by_name = nested_value(counts, "beside", "heldout_text", "bits_per_byte") or {}
    values = [(UNTRAINED, nested_value(counts, "beside", UNTRAINED, "heldout_text", "bits_per_byte"))]
    values += [(name, bits_by_name.get(name)) for name in (NGRAMS[-1], COMPRESSORS[0])]
    parts = [f"{name} {format_significant(value)}" for name, value in values if finite_number(value) is not None]
    return f"; {', '.join(parts)}" if parts else ""


def baseline_accuracies(counts: dict[str, Any], task: str, result: dict[str, Any]) -> list[tuple[str, float]]:
    """(name, accuracy) of what answers a task without training, or by counting pairs: a guess, the bigram model, an untrained model."""
    accuracies = [
        ("chance", result.get("chance")),
        ("bigram", nested_value(counts, "beside", "tasks", task, "baselines", "bigram", "accuracy")),
        (UNTRAINED, nested_value(counts, "beside", UNTRAINED, "items", task, "accuracy")),
    ]
    return [(name, float(value)) for name, value in accuracies if finite_number(value) is not None]


def distance_from_baseline(counts: dict[str, Any], task: str, result: dict[str, Any]) -> float:
    """Standard errors between an accuracy and the best of `baseline_accuracies`; without an error, the difference alone."""
    best = max((value for _, value in baseline_accuracies(counts, task, result)), default=0.0)
    return float((result["accuracy"] - best) / (finite_number(result.get("stderr")) or 1.0))


def task_tiles(counts: dict[str, Any]) -> list[Tile]:
    """The tile of the first model's task that is furthest from what needs no training; none if no task was asked."""
    first = counts["models"][0]
    results = {name: of for name, of in (nested_value(first, "evaluation", "items") or {}).items() if name in NAMES}
    if not results:
        return []
    name = max(results, key=lambda name: (distance_from_baseline(counts, name, results[name]), name))
    of = results[name]
    words = [f"{baseline} {format_percent(value)}" for baseline, value in baseline_accuracies(counts, name, of)]
    return [
        (
            f"{NAMES[name]}: right answers",
            accuracy_text(of),
            "",
            f"{words_of_model(first['name'])}; {'; '.join(words)}; {format_integer(of['items'])} items",
        )
    ]


def answer_tiles(tuned: dict[str, Any] | None) -> list[Tile]:
    """The tile of a fine-tuned model's loss on held-out answers, before and after; none if it was not measured."""
    before = finite_number(nested_value(tuned, "training", "heldout_loss_before"))
    after = finite_number(nested_value(tuned, "training", "heldout_loss_after"))
    if tuned is None or before is None or after is None:
        return []
    value = f"{before:.2f} → {after:.2f}"
    return [(f"Held-out answers, {tuned['name']}", value, "nats per token", "loss before and after fine-tuning")]


def gain_tiles(counts: dict[str, Any], tuned: dict[str, Any] | None, choice: str) -> list[Tile]:
    """What moved. choice: why `tuned` is the one of several models that is shown, or ""."""
    tuned_tiles = [(*tile[:3], "; ".join(filter(None, (tile[3], choice)))) for tile in answer_tiles(tuned)]
    return [*(tile for tile in task_tiles(counts) if tile[1] != NOTHING), *tuned_tiles]
