"""The figures of the page, each from the run's own numbers; one that has no data is None and is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crawl2llm.formats.run_records import Run, finite_number, finite_points, nested_value, training_metrics
from crawl2llm.stages.report import alignment_table, compression_table, curve, mix, topics
from crawl2llm.stages.report.candidates import candidate_probability
from crawl2llm.stages.report.figures import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    bar_chart,
    compact_number,
    histogram,
    line_chart,
)
from crawl2llm.stages.report.models import Model

LANGUAGES = 8  # bars shown; the rest is one more bar


def equal_width_bins(counts: Any) -> list[tuple[float, float, float]]:
    """(low, high, count) of bins of equal width over [0, 1]."""
    if not isinstance(counts, list):
        return []
    return [(at / len(counts), (at + 1) / len(counts), finite_number(count) or 0.0) for at, count in enumerate(counts)]


def power_of_two_bins(counts: Any) -> list[tuple[float, float, float]]:
    """(low, high, count) of bins that go from a power of two, the key, to the next."""
    bins = (
        sorted((int(low), finite_number(count) or 0.0) for low, count in counts.items())
        if isinstance(counts, dict)
        else []
    )
    return [(low, low * 2, n) for low, n in bins]


def funnel_figure(funnel: Sequence[dict[str, Any]]) -> str | None:
    """Documents kept and dropped at each stage."""
    rows = [(row["stage"], (row["kept"], row["dropped"])) for row in funnel]
    title = "Documents kept and dropped at each stage"
    return bar_chart(
        "funnel", title, "documents", rows, (("kept", BLUE), ("dropped", ORANGE)), text=lambda v: f"{v[0]:,.0f} kept"
    )


def language_figure(run: Run) -> str | None:
    """Documents by identified language, the most frequent first."""
    counts = {
        language: documents
        for language, documents in (run.summary("language.select", "languages") or {}).items()
        if finite_number(documents)
    }
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(name, (count,)) for name, count in ranked[:LANGUAGES]]
    if rest := sum(count for _, count in ranked[LANGUAGES:]):
        rows.append((f"{len(ranked) - LANGUAGES} others", (rest,)))
    return bar_chart(
        "languages", "Documents by language", "documents", rows, (("documents", BLUE),), text=lambda v: f"{v[0]:,.0f}"
    )


def training_figures(run: Run, model: Model) -> dict[str, str | None]:
    """Loss, learning rate, validation bits per byte, throughput and MFU of a model's training, over tokens (steps without)."""
    rows, name = training_metrics(run, model.step, model.task), model.anchor
    x, x_label = ("tokens", "tokens seen") if finite_points(rows, "tokens", "loss")[0] else ("step", "optimizer step")
    loss = finite_points(rows, x, "loss")
    validation_loss = finite_points(rows, x, "validation_loss")
    return {
        "loss": line_chart(
            f"{name}-loss",
            "Training and validation loss",
            x_label,
            "loss (nats per token)",
            [("training", *loss, BLUE), ("validation", *validation_loss, ORANGE)],
        ),
        "bits": line_chart(
            f"{name}-bits",
            "Bits per byte on held-out documents",
            x_label,
            "bits per byte",
            [("held-out documents", *finite_points(rows, x, "bits_per_byte"), ORANGE)],
        ),
        "rate": line_chart(
            f"{name}-rate",
            "Learning rate",
            x_label,
            "learning rate",
            [("learning rate", *finite_points(rows, x, "learning_rate"), GREEN)],
            zero=True,
        ),
        "use": line_chart(
            f"{name}-use",
            "Share of the GPU's peak",
            x_label,
            "MFU (percent of the dense bf16 peak)",
            [
                (
                    "MFU",
                    *finite_points(
                        [{**row, "mfu": 100 * row["mfu"]} for row in rows if finite_number(row.get("mfu"))], x, "mfu"
                    ),
                    PURPLE,
                )
            ],
            zero=True,
        ),
        "speed": line_chart(
            f"{name}-speed",
            "Throughput",
            x_label,
            "tokens per second",
            [("throughput", *finite_points(rows, x, "tokens_per_second"), PURPLE)],
            zero=True,
        ),
    }


def cost_figure(costs: Sequence[dict[str, Any]]) -> str | None:
    """Seconds of each step, summed over its tasks."""
    rows = [(row["step"], (row["seconds"] or 0.0,)) for row in costs]
    parts = (("wall-clock seconds", BLUE),)
    return bar_chart(
        "costs",
        "Seconds by step",
        "seconds, summed over tasks",
        rows,
        parts,
        text=lambda v: f"{compact_number(v[0])} s",
    )


def cluster_figure(run: Run) -> str | None:
    """Clusters of duplicates by the number of documents in them, as dedup.select bins them."""
    sizes = run.summary("dedup.select", "cluster_sizes") or {}
    ordered = sorted(sizes.items(), key=lambda item: int(item[0].split("-")[0]))
    rows = [(f"{name.replace('-', '–')} documents", (finite_number(count) or 0.0,)) for name, count in ordered]
    parts = (("clusters", BLUE),)
    return bar_chart("clusters", "Duplicate clusters by size", "clusters", rows, parts, text=lambda v: f"{v[0]:,.0f}")


def candidate_figure(config: dict[str, Any] | None) -> str | None:
    """The probability that a pair is a candidate, by its similarity, for the run's bands and rows."""
    bands, rows = (nested_value(config, "dedup", "signature", key) for key in ("bands", "rows"))
    if not isinstance(bands, int) or not isinstance(rows, int):
        return None
    x = [at / 100 for at in range(101)]
    proposed = (f"{bands} bands of {rows} rows", x, [candidate_probability(at, bands, rows) for at in x], BLUE)
    title, x_label = "Which pairs MinHash proposes", "Jaccard similarity of word shingles"
    return line_chart("candidates", title, x_label, "probability to be a candidate pair", [proposed])


def all_figures(
    run: Run,
    funnel: Sequence[dict[str, Any]],
    costs: Sequence[dict[str, Any]],
    models: Iterable[Model],
    config: dict[str, Any] | None,
) -> dict[str, str | dict[str, str | None] | None]:
    """Every figure by name; those of a model's training are below its anchor."""
    dedup_threshold = finite_number(nested_value(config, "dedup", "select", "threshold"))
    quality_threshold = finite_number(run.summary("quality.select", "threshold"))
    return {
        "funnel": funnel_figure(funnel),
        "languages": language_figure(run),
        "lengths": histogram(
            "lengths",
            "Length of documents",
            "characters of text",
            "documents",
            [
                (label, colour, power_of_two_bins(run.summary("corpus.write", "lengths", label)))
                for label, colour in (("kept", BLUE), ("dropped", ORANGE))
            ],
            logarithmic=True,
        ),
        "clusters": cluster_figure(run),
        "similarity": histogram(
            "similarity",
            "Similarity of candidate pairs",
            "exact Jaccard similarity of word shingles",
            "pairs",
            [("pairs", BLUE, equal_width_bins(run.summary("dedup.select", "similarity")))],
            threshold=None if dedup_threshold is None else (dedup_threshold, f"threshold {dedup_threshold:.4g}"),
        ),
        "candidates": candidate_figure(config) if run.manifests_of("dedup.select") else None,
        "quality": histogram(
            "quality",
            "Quality scores",
            "classifier score (probability of the curated class)",
            "documents",
            [("documents", BLUE, equal_width_bins(run.summary("quality.select", "histogram")))],
            threshold=None if quality_threshold is None else (quality_threshold, f"threshold {quality_threshold:.4g}"),
        ),
        **{
            model.anchor: {
                **training_figures(run, model),
                **mix.figures(run, model),
                **alignment_table.figures(run, model),
            }
            for model in models
        },
        "compressed": compression_table.figure(compression_table.compression_rows(run, list(models))),
        "curve": curve.figure(run),
        "topics": topics.topic_maps(run),
        "costs": cost_figure(costs),
    }
