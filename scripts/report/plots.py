"""The figures of the page, each from the run's own numbers; one that has no data is None and is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.report.figures import BLUE, GREEN, ORANGE, PURPLE, bars, compact, histogram, lines
from scripts.report.records import Run, dig, metrics, number, series

LANGUAGES = 12  # bars shown; the rest is one more bar


def bins(value: Any) -> list[tuple[float, float, float]]:
    """(low, high, count) from a histogram of a summary.

    Understood: {edges: n + 1 numbers, counts: n numbers}, a list of [low, high, count], and {low edge: count}, whose last bin is as wide as
    the one before it.
    """
    if isinstance(value, dict) and isinstance(dig(value, "edges"), list) and isinstance(dig(value, "counts"), list):
        edges, counts = value["edges"], value["counts"]
        return [(a, b, n) for a, b, n in zip(edges, edges[1:], counts, strict=False)]
    if isinstance(value, list):
        return [(row[0], row[1], row[2]) for row in value if isinstance(row, list | tuple) and len(row) == 3]
    if isinstance(value, dict):
        try:
            found = sorted((float(key), number(count) or 0.0) for key, count in value.items())
        except ValueError:
            return []
        lows = [low for low, _ in found]
        last = lows[-1] - lows[-2] if len(lows) > 1 else 1.0
        return [
            (low, high, n) for (low, n), high in zip(found, [*lows[1:], (lows[-1] if lows else 0) + last], strict=True)
        ]
    return []


def equal(counts: Any) -> list[tuple[float, float, float]]:
    """(low, high, count) of bins of equal width over [0, 1]."""
    if not isinstance(counts, list):
        return []
    return [(at / len(counts), (at + 1) / len(counts), number(n) or 0.0) for at, n in enumerate(counts)]


def powers(counts: Any) -> list[tuple[float, float, float]]:
    """(low, high, count) of bins that go from a power of two, the key, to the next."""
    found = sorted((int(low), number(n) or 0.0) for low, n in counts.items()) if isinstance(counts, dict) else []
    return [(low, low * 2, n) for low, n in found]


def funnel_figure(funnel: Sequence[dict[str, Any]]) -> str | None:
    """Documents kept and dropped at each stage."""
    rows = [(row["stage"], (row["kept"], row["dropped"])) for row in funnel]
    title = "Documents kept and dropped at each stage"
    return bars(
        "funnel", title, "documents", rows, (("kept", BLUE), ("dropped", ORANGE)), text=lambda v: f"{v[0]:,.0f} kept"
    )


def languages(run: Run) -> str | None:
    """Documents by identified language, the most frequent first."""
    counts = {k: n for k, n in (run.summary("language.select", "languages") or {}).items() if number(n)}
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(name, (count,)) for name, count in ranked[:LANGUAGES]]
    if rest := sum(count for _, count in ranked[LANGUAGES:]):
        rows.append((f"{len(ranked) - LANGUAGES} others", (rest,)))
    return bars(
        "languages", "Documents by language", "documents", rows, (("documents", BLUE),), text=lambda v: f"{v[0]:,.0f}"
    )


def training(run: Run, step: str, name: str) -> dict[str, str | None]:
    """Loss, learning rate, validation bits per byte and throughput of a training step, over tokens (steps without)."""
    rows = metrics(run, step)
    x, x_label = ("tokens", "tokens seen") if series(rows, "tokens", "loss")[0] else ("step", "optimizer step")
    validation = [row for row in rows if number(row.get("validation_loss")) is not None]
    # A validation row may give only its step; the training row of that step knows the tokens.
    seen = {row["step"]: row["tokens"] for row in rows if number(row.get("tokens")) is not None}
    if x == "tokens":
        validation = [{**row, "tokens": row.get("tokens", seen.get(row["step"]))} for row in validation]
    loss = series(rows, x, "loss")
    held = series(validation, x, "validation_loss")
    return {
        "loss": lines(
            f"{name}-loss",
            "Training and validation loss",
            x_label,
            "loss (nats per token)",
            [("training", *loss, BLUE), ("validation", *held, ORANGE)],
        ),
        "bits": lines(
            f"{name}-bits",
            "Bits per byte on held-out documents",
            x_label,
            "bits per byte",
            [("held-out documents", *series(validation, x, "bits_per_byte"), ORANGE)],
        ),
        "rate": lines(
            f"{name}-rate",
            "Learning rate",
            x_label,
            "learning rate",
            [("learning rate", *series(rows, x, "learning_rate"), GREEN)],
            zero=True,
        ),
        "speed": lines(
            f"{name}-speed",
            "Throughput",
            x_label,
            "tokens per second",
            [("throughput", *series(rows, x, "tokens_per_second"), PURPLE)],
            zero=True,
        ),
    }


def cost_figure(costs: Sequence[dict[str, Any]]) -> str | None:
    """Seconds and CPU-seconds of each step, summed over its tasks."""
    rows = [(row["step"], (row["seconds"] or 0.0, row["cpu_seconds"] or 0.0)) for row in costs]
    parts = (("wall-clock seconds", BLUE), ("CPU-seconds", ORANGE))
    return bars(
        "costs",
        "Seconds by step",
        "seconds, summed over tasks",
        rows,
        parts,
        stacked=False,
        text=lambda v: f"{compact(v[0])} s, {compact(v[1])} CPU-s",
    )


def all_figures(
    run: Run, funnel: Sequence[dict[str, Any]], costs: Sequence[dict[str, Any]]
) -> dict[str, str | dict[str, str | None] | None]:
    """Every figure by name; `pretrain` and `finetune` hold four each."""
    threshold = number(run.summary("quality.select", "threshold"))
    return {
        "funnel": funnel_figure(funnel),
        "languages": languages(run),
        "lengths": histogram(
            "lengths",
            "Length of documents",
            "characters of text",
            "documents",
            [
                (label, colour, powers(run.summary("corpus.write", "lengths", label)))
                for label, colour in (("kept", BLUE), ("dropped", ORANGE))
            ],
            logarithmic=True,
        ),
        "clusters": histogram(
            "clusters",
            "Duplicate clusters by size",
            "documents in the cluster",
            "clusters",
            [("clusters", BLUE, bins(run.summary("dedup.select", "clusters")))],
        ),
        "similarity": histogram(
            "similarity",
            "Similarity of candidate pairs",
            "exact Jaccard similarity of word shingles",
            "pairs",
            [("pairs", BLUE, bins(run.summary("dedup.select", "similarity")))],
        ),
        "quality": histogram(
            "quality",
            "Quality scores",
            "classifier score (probability of the curated class)",
            "documents",
            [("documents", BLUE, equal(run.summary("quality.select", "histogram")))],
            threshold=None if threshold is None else (threshold, f"threshold {threshold:.4g}"),
        ),
        "pretrain": training(run, "pretrain.train", "pretrain"),
        "finetune": training(run, "finetune.train", "finetune"),
        "costs": cost_figure(costs),
    }
