"""The tiles of what training moved: held-out text, the task that is furthest from what needs no training, and held-out answers."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.model_registry import BASE, UNTRAINED
from crawl2llm.formats.run_records import dig, number
from crawl2llm.stages.report.page import NOTHING, integer, percent, significant
from crawl2llm.stages.report.tasks import COMPRESSORS, NAMES, NGRAMS, share

Tile = tuple[str, str, str, str]  # name, value, unit, what it was measured on


def text_beside(counts: dict[str, Any]) -> str:
    """`; untrained 4.055, bigram 2.415, xz 1.944`: bits per byte of the same text without training; "" where none is known."""
    others = dig(counts, "beside", "heldout_text", "bits_per_byte") or {}
    found = [(UNTRAINED, dig(counts, "beside", UNTRAINED, "heldout_text", "bits_per_byte"))]
    found += [(name, others.get(name)) for name in (NGRAMS[-1], COMPRESSORS[0])]
    said = [f"{name} {significant(value)}" for name, value in found if number(value) is not None]
    return f"; {', '.join(said)}" if said else ""


def beside(counts: dict[str, Any], task: str, of: dict[str, Any]) -> list[tuple[str, float]]:
    """(name, accuracy) of what answers a task without training, or by counting pairs: a guess, the bigram model, an untrained model."""
    found = [
        ("chance", of.get("chance")),
        ("bigram", dig(counts, "beside", "tasks", task, "baselines", "bigram", "accuracy")),
        (UNTRAINED, dig(counts, "beside", UNTRAINED, "items", task, "accuracy")),
    ]
    return [(name, float(value)) for name, value in found if number(value) is not None]


def distance(counts: dict[str, Any], task: str, of: dict[str, Any]) -> float:
    """Standard errors between an accuracy and the best of what stands `beside` it; without an error, the difference alone."""
    best = max((value for _, value in beside(counts, task, of)), default=0.0)
    return float((of["accuracy"] - best) / (number(of.get("stderr")) or 1.0))


def task(counts: dict[str, Any]) -> list[Tile]:
    """The tile of the base model's task that is furthest from what needs no training; none where no task was asked."""
    base = next((model["evaluation"] for model in counts["models"] if model["name"] == BASE), None)
    asked = {name: of for name, of in (dig(base, "items") or {}).items() if name in NAMES}
    if not asked:
        return []
    name = max(asked, key=lambda name: (distance(counts, name, asked[name]), name))
    of = asked[name]
    words = [f"{other} {percent(value)}" for other, value in beside(counts, name, of)]
    return [
        (
            f"{NAMES[name]}: right answers",
            share(of),
            "",
            f"base model; {'; '.join(words)}; {integer(of['items'])} items",
        )
    ]


def answers(tuned: dict[str, Any] | None) -> list[Tile]:
    """The tile of a fine-tuned model's loss on held-out answers, before and after; none where it was not measured."""
    before, after = (number(dig(tuned, "training", f"heldout_loss_{when}")) for when in ("before", "after"))
    if tuned is None or before is None or after is None:
        return []
    value = f"{before:.2f} → {after:.2f}"
    return [(f"Held-out answers, {tuned['name']}", value, "nats per token", "loss before and after fine-tuning")]


def tiles(counts: dict[str, Any], tuned: dict[str, Any] | None, choice: str) -> list[Tile]:
    """What moved. choice: why `tuned` is the one of several models that is shown, or ""."""
    found = [(*one[:3], "; ".join(filter(None, (one[3], choice)))) for one in answers(tuned)]
    return [*(one for one in task(counts) if one[1] != NOTHING), *found]
