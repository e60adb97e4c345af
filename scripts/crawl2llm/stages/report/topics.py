"""Topics on the page: their share before and after each filter, what a filter takes more of than of others, and a map of the sample."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from crawl2llm.chain.filter_order import FIRST_VERDICTS
from crawl2llm.chain.step import stage_of
from crawl2llm.core.topic_names import ALL, MAP, PARTS
from crawl2llm.formats.documents import open_parquet, rows
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, figure_svg
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent, format_signed
from crawl2llm.stages.report.topic_differences import Difference, topic_difference

TRAIN, COUNT = "topics.train", "topics.count"
MOST = 40  # rows of the table, the topics with most documents
TERMS = 5  # of a topic, shown
DIFFERENCES_SHOWN = 30  # differences shown, the largest
COLOURS, MARKS = (BLUE, ORANGE, GREEN, PURPLE), "os^Dv"
COUNT_COLUMNS = ("documents", "bytes", "dropped", "dropped_bytes")

Counts = dict[str, npt.NDArray[np.int64]]  # step → [topics, parts, COUNT_COLUMNS]


def topic_counts(run: Run) -> tuple[list[str | None], Counts]:
    """The topics, by name (None: of what language.score did not see), and by step what topics.count counted, over all shards."""
    places: dict[str | None, int] = {}
    counts_by_step: Counts = {}
    for path in run.files(COUNT, ".parquet"):
        with run.guard_reading(path), open_parquet(path) as file:
            table = file.read().to_pydict()
            for step, topic, part, *numbers in zip(
                *(table[name] for name in ("step", "topic", "part", *COUNT_COLUMNS)), strict=True
            ):
                place = places.setdefault(topic, len(places))
                step_counts = counts_by_step.get(step, np.zeros((0, PARTS, len(COUNT_COLUMNS)), np.int64))
                if len(step_counts) <= place:
                    step_counts = np.concatenate(
                        [step_counts, np.zeros((place + 1 - len(step_counts), PARTS, len(COUNT_COLUMNS)), np.int64)]
                    )
                step_counts[place, part] += numbers
                counts_by_step[step] = step_counts
    for step, step_counts in counts_by_step.items():
        padding = np.zeros((len(places) - len(step_counts), PARTS, len(COUNT_COLUMNS)), np.int64)
        counts_by_step[step] = np.concatenate([step_counts, padding])
    return list(places), {
        step: counts_by_step[step] for step in sorted(counts_by_step, key=lambda step: step_order(run, step))
    }


def step_order(run: Run, step: str) -> int:
    """The place of a step that judges documents among those of the run."""
    return [FIRST_VERDICTS, *(f"{name}.select" for name in run.filters), step].index(step)


def topic_differences(
    names: list[str | None], counts_by_step: Counts, topic_facts: dict[str, Any]
) -> list[tuple[str, str, Difference]]:
    """(step, topic, difference) of every topic at every step that can be compared with the others of its model."""
    out = []
    for step, step_counts in counts_by_step.items():
        for model in sorted({facts["model"] for facts in topic_facts.values()}):
            model_places = [
                place for place, name in enumerate(names) if name in topic_facts and topic_facts[name]["model"] == model
            ]
            documents, dropped = step_counts[model_places][:, :, 0], step_counts[model_places][:, :, 2]
            for number, place in enumerate(model_places):
                if (difference := topic_difference(documents, dropped, number)) is not None:
                    out.append((step, str(names[place]), difference))
    return out


def topic_label(name: str | None, topic_facts: dict[str, Any]) -> str:
    """A topic's terms, or what it stands for instead."""
    if name is None:
        return "not seen by language.score"
    return (
        ", ".join(topic_facts[name]["terms"][:TERMS])
        if name in topic_facts
        else "too few documents of their language, or no known term"
    )


def step_label(step: str) -> str:
    """A filter's name; that of ingest.check, which is none, in full."""
    return step if step == FIRST_VERDICTS else stage_of(step)


def share_text(part: int, whole: int) -> str:
    """A share in percent."""
    return format_percent(part / whole) if whole else NOTHING


def table(run: Run) -> dict[str, Any] | None:
    """`about`; `steps` that dropped documents, and `idle`, those that dropped none; `rows`: name, terms, documents, and of each step
    (share of documents, share of bytes) after it; `differences`: step, topic, terms, dropped, others, difference; `compared`: what was
    looked at, in words. None without topics.
    """
    topic_facts = run.fact(TRAIN, "topics")
    if topic_facts is None:
        return None
    names, counts_by_step = topic_counts(run)
    before = [next(iter(counts_by_step.values()))[:, :, :2].sum(axis=1)] if counts_by_step else []
    dropping = {step: step_counts for step, step_counts in counts_by_step.items() if step_counts[:, :, 2].any()}
    after = [(step_counts[:, :, :2] - step_counts[:, :, 2:]).sum(axis=1) for step_counts in dropping.values()]
    places = list(range(len(names))) if before else []
    places.sort(key=lambda place: (-int(before[0][place, 0]), names[place] or ""))
    table_rows = [
        {
            "name": names[place] or NOTHING,
            "terms": topic_label(names[place], topic_facts),
            "documents": format_integer(int(before[0][place, 0])),
            "shares": [
                tuple(share_text(int(totals[place, kind]), int(totals[:, kind].sum())) for kind in (0, 1))
                for totals in [*before, *after]
            ],
        }
        for place in places[:MOST]
    ]
    differences = topic_differences(names, counts_by_step, topic_facts)
    certain = [entry for entry in differences if abs(entry[2].excess_share) > entry[2].half_width(len(differences))]
    certain.sort(key=lambda entry: (-abs(entry[2].excess_share), entry[0], entry[1]))
    models = nested_value(run.fact(TRAIN), "documents") or {}
    model_words = (
        ""
        if list(models) in ([], [ALL])
        else f" in {', '.join(f'{name} ({format_integer(of)})' for name, of in models.items())}"
    )
    sample = f"{format_integer(sum(models.values()))} documents{model_words}, chosen by hash"
    return {
        "about": f"{format_integer(len(topic_facts))} topics of {sample}. A topic is named by the terms that its documents have more "
        "of than others.",
        "steps": [step_label(step) for step in dropping],
        "idle": ", ".join(step_label(step) for step in counts_by_step if step not in dropping),
        "rows": table_rows,
        "more": len(places) - len(table_rows),
        "differences": [
            {
                "step": step_label(step),
                "topic": topic,
                "terms": topic_label(topic, topic_facts),
                "dropped": f"{format_integer(difference.dropped)} of {format_integer(difference.documents)}",
                "share": format_percent(difference.share),
                "other": format_percent(difference.other),
                "difference": f"{format_signed(100 * difference.excess_share, 1)} ± {100 * difference.half_width():.1f}",
            }
            for step, topic, difference in certain[:DIFFERENCES_SHOWN]
        ],
        "compared": f"{format_integer(len(certain))} of {format_integer(len(differences))} comparisons"
        + (f", the largest {DIFFERENCES_SHOWN} of them here" if len(certain) > DIFFERENCES_SHOWN else ""),
    }


def topic_maps(run: Run) -> dict[str, str | None]:
    """A figure of each language that has a map, by its name (ALL: of all documents)."""
    topic_facts, points = run.fact(TRAIN, "topics") or {}, dict[str, list[dict[str, Any]]]()
    for path in run.files(TRAIN, MAP):
        with run.guard_reading(path):
            for row in rows(path):
                points.setdefault(row["model"], []).append(row)
    return {name: topic_map(name, model_points, topic_facts) for name, model_points in points.items()}


def topic_map(name: str, points: list[dict[str, Any]], topic_facts: dict[str, Any]) -> str:
    """The map of one model: a mark for each document, and the number of each topic in the middle of its documents."""
    topics = sorted({point["topic"] for point in points})

    def draw(axes: Axes) -> None:
        for number, topic in enumerate(topics):
            coordinates = np.array([(point["x"], point["y"]) for point in points if point["topic"] == topic])
            colour, mark = COLOURS[number % len(COLOURS)], MARKS[number // len(COLOURS) % len(MARKS)]
            axes.scatter(coordinates[:, 0], coordinates[:, 1], s=9, color=colour, marker=mark, linewidths=0, alpha=0.7)
        for topic in topics:
            middle = np.median([(point["x"], point["y"]) for point in points if point["topic"] == topic], axis=0)
            axes.text(
                float(middle[0]),
                float(middle[1]),
                topic.rpartition("-")[2],
                ha="center",
                va="center",
                fontsize=11,
                fontweight="bold",
                color=INK,
            )
        axes.set_axis_off()

    counted = Counter(point["topic"] for point in points)
    labels = "; ".join(f"{topic}, {topic_label(topic, topic_facts)}: {counted[topic]}" for topic in topics)
    title = "Map of the sample" if name == ALL else f"Map of the sample: {name}"
    return figure_svg(f"topics-{name}", title, f"{len(points)} documents by topic. {labels}.", draw, height=3.6)
