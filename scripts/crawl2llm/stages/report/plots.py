"""The figures of the page, each from the run's own numbers; one that has no data is None and is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crawl2llm.formats.run_records import Run, dig, metrics, number, series
from crawl2llm.stages.report import alignment_table, compression_table, curve, mix, topics
from crawl2llm.stages.report.candidates import probability
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, PURPLE, bars, compact, histogram, lines
from crawl2llm.stages.report.models import Model

LANGUAGES = 8  # bars shown; the rest is one more bar


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


def training(run: Run, model: Model) -> dict[str, str | None]:
    """Loss, learning rate, validation bits per byte, throughput and MFU of a model's training, over tokens (steps without)."""
    rows, name = metrics(run, model.step, model.task), model.anchor
    x, x_label = ("tokens", "tokens seen") if series(rows, "tokens", "loss")[0] else ("step", "optimizer step")
    loss = series(rows, x, "loss")
    held = series(rows, x, "validation_loss")
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
            [("held-out documents", *series(rows, x, "bits_per_byte"), ORANGE)],
        ),
        "rate": lines(
            f"{name}-rate",
            "Learning rate",
            x_label,
            "learning rate",
            [("learning rate", *series(rows, x, "learning_rate"), GREEN)],
            zero=True,
        ),
        "use": lines(
            f"{name}-use",
            "Share of the GPU's peak",
            x_label,
            "MFU (percent of the dense bf16 peak)",
            [("MFU", *series([{**r, "mfu": 100 * r["mfu"]} for r in rows if number(r.get("mfu"))], x, "mfu"), PURPLE)],
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
    """Seconds of each step, summed over its tasks."""
    rows = [(row["step"], (row["seconds"] or 0.0,)) for row in costs]
    parts = (("wall-clock seconds", BLUE),)
    return bars(
        "costs", "Seconds by step", "seconds, summed over tasks", rows, parts, text=lambda v: f"{compact(v[0])} s"
    )


def clusters(run: Run) -> str | None:
    """Clusters of duplicates by the number of documents in them, as dedup.select bins them."""
    sizes = run.summary("dedup.select", "cluster_sizes") or {}
    ordered = sorted(sizes.items(), key=lambda item: int(item[0].split("-")[0]))
    rows = [(f"{name.replace('-', '–')} documents", (number(count) or 0.0,)) for name, count in ordered]
    parts = (("clusters", BLUE),)
    return bars("clusters", "Duplicate clusters by size", "clusters", rows, parts, text=lambda v: f"{v[0]:,.0f}")


def candidates(config: dict[str, Any] | None) -> str | None:
    """The probability that a pair is a candidate, by its similarity, for the run's bands and rows."""
    bands, rows = (dig(config, "dedup", "signature", key) for key in ("bands", "rows"))
    if not isinstance(bands, int) or not isinstance(rows, int):
        return None
    x = [at / 100 for at in range(101)]
    proposed = (f"{bands} bands of {rows} rows", x, [probability(at, bands, rows) for at in x], BLUE)
    title, x_label = "Which pairs MinHash proposes", "Jaccard similarity of word shingles"
    return lines("candidates", title, x_label, "probability to be a candidate pair", [proposed])


def all_figures(
    run: Run,
    funnel: Sequence[dict[str, Any]],
    costs: Sequence[dict[str, Any]],
    models: Iterable[Model],
    config: dict[str, Any] | None,
) -> dict[str, str | dict[str, str | None] | None]:
    """Every figure by name; those of a model's training are below its anchor."""
    same = number(dig(config, "dedup", "select", "threshold"))
    good = number(run.summary("quality.select", "threshold"))
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
        "clusters": clusters(run),
        "similarity": histogram(
            "similarity",
            "Similarity of candidate pairs",
            "exact Jaccard similarity of word shingles",
            "pairs",
            [("pairs", BLUE, equal(run.summary("dedup.select", "similarity")))],
            threshold=None if same is None else (same, f"threshold {same:.4g}"),
        ),
        "candidates": candidates(config) if run.of("dedup.select") else None,
        "quality": histogram(
            "quality",
            "Quality scores",
            "classifier score (probability of the curated class)",
            "documents",
            [("documents", BLUE, equal(run.summary("quality.select", "histogram")))],
            threshold=None if good is None else (good, f"threshold {good:.4g}"),
        ),
        **{
            model.anchor: {**training(run, model), **mix.figures(run, model), **alignment_table.figures(run, model)}
            for model in models
        },
        "compressed": compression_table.figure(compression_table.rows(run, list(models))),
        "curve": curve.figure(run),
        "topics": topics.maps(run),
        "costs": cost_figure(costs),
    }
