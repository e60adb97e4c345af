"""Topics on the page: their share before and after each filter, what a filter takes more of than of others, and a map of the sample."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from crawl2llm.chain.filter_order import FIRST
from crawl2llm.chain.steps import stage_of
from crawl2llm.core.topic_names import ALL, MAP, PARTS
from crawl2llm.formats.documents import opened, rows
from crawl2llm.formats.run_records import Run, dig
from crawl2llm.stages.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, drawn
from crawl2llm.stages.report.page import NOTHING, integer, percent, signed
from crawl2llm.stages.report.topic_differences import Difference, compared

TRAIN, COUNT = "topics.train", "topics.count"
MOST = 40  # rows of the table, the topics with most documents
TERMS = 5  # of a topic, shown
FOUND = 30  # differences shown, the largest
COLOURS, MARKS = (BLUE, ORANGE, GREEN, PURPLE), "os^Dv"
NAMED = ("documents", "bytes", "dropped", "dropped_bytes")

Counts = dict[str, npt.NDArray[np.int64]]  # step → [topics, parts, NAMED]


def counts(run: Run) -> tuple[list[str | None], Counts]:
    """The topics, by name (None: of what language.score did not see), and by step what topics.count counted, over all shards."""
    places: dict[str | None, int] = {}
    found: Counts = {}
    for path in run.files(COUNT, ".parquet"):
        with run.reading(path), opened(path) as file:
            table = file.read().to_pydict()
            for step, topic, part, *numbers in zip(
                *(table[name] for name in ("step", "topic", "part", *NAMED)), strict=True
            ):
                place = places.setdefault(topic, len(places))
                held = found.get(step, np.zeros((0, PARTS, len(NAMED)), np.int64))
                if len(held) <= place:
                    held = np.concatenate([held, np.zeros((place + 1 - len(held), PARTS, len(NAMED)), np.int64)])
                held[place, part] += numbers
                found[step] = held
    for step, held in found.items():
        more = np.zeros((len(places) - len(held), PARTS, len(NAMED)), np.int64)
        found[step] = np.concatenate([held, more])
    return list(places), {step: found[step] for step in sorted(found, key=lambda step: order(run, step))}


def order(run: Run, step: str) -> int:
    """The place of a step that judges documents among those of the run."""
    return [FIRST, *(f"{name}.select" for name in run.filters), step].index(step)


def differing(names: list[str | None], found: Counts, known: dict[str, Any]) -> list[tuple[str, str, Difference]]:
    """(step, topic, difference) of every topic at every step that can be compared with the others of its model."""
    out = []
    for step, held in found.items():
        for model in sorted({facts["model"] for facts in known.values()}):
            own = [place for place, name in enumerate(names) if name in known and known[name]["model"] == model]
            documents, dropped = held[own][:, :, 0], held[own][:, :, 2]
            for number, place in enumerate(own):
                if (one := compared(documents, dropped, number)) is not None:
                    out.append((step, str(names[place]), one))
    return out


def label(name: str | None, known: dict[str, Any]) -> str:
    """A topic's terms, or what it stands for instead."""
    if name is None:
        return "not seen by language.score"
    return (
        ", ".join(known[name]["terms"][:TERMS])
        if name in known
        else "too few documents of their language, or no known term"
    )


def short(step: str) -> str:
    """A filter's name; that of ingest.check, which is none, in full."""
    return step if step == FIRST else stage_of(step)


def share(part: int, whole: int) -> str:
    """A share in percent."""
    return percent(part / whole) if whole else NOTHING


def table(run: Run) -> dict[str, Any] | None:
    """`about`; `steps` that dropped documents, and `idle`, those that dropped none; `rows`: name, terms, documents, and of each step
    (share of documents, share of bytes) after it; `differences`: step, topic, terms, dropped, others, difference; `compared`: what was
    looked at, in words. None without topics.
    """
    known = run.fact(TRAIN, "topics")
    if known is None:
        return None
    names, found = counts(run)
    before = [next(iter(found.values()))[:, :, :2].sum(axis=1)] if found else []
    dropping = {step: held for step, held in found.items() if held[:, :, 2].any()}
    after = [(held[:, :, :2] - held[:, :, 2:]).sum(axis=1) for held in dropping.values()]
    places = (
        sorted(range(len(names)), key=lambda place: (-int(before[0][place, 0]), names[place] or "")) if before else []
    )
    shown = [
        {
            "name": names[place] or NOTHING,
            "terms": label(names[place], known),
            "documents": integer(int(before[0][place, 0])),
            "shares": [
                tuple(share(int(of[place, kind]), int(of[:, kind].sum())) for kind in (0, 1))
                for of in [*before, *after]
            ],
        }
        for place in places[:MOST]
    ]
    differences = differing(names, found, known)
    sure = [one for one in differences if abs(one[2].difference) > one[2].wide(len(differences))]
    sure.sort(key=lambda one: (-abs(one[2].difference), one[0], one[1]))
    models = dig(run.fact(TRAIN), "documents") or {}
    whose = (
        ""
        if list(models) in ([], [ALL])
        else f" in {', '.join(f'{name} ({integer(of)})' for name, of in models.items())}"
    )
    sample = f"{integer(sum(models.values()))} documents{whose}, chosen by hash"
    return {
        "about": f"{integer(len(known))} topics of {sample}. A topic is named by the terms that its documents have more of than others.",
        "steps": [short(step) for step in dropping],
        "idle": ", ".join(short(step) for step in found if step not in dropping),
        "rows": shown,
        "more": len(places) - len(shown),
        "differences": [
            {
                "step": short(step),
                "topic": topic,
                "terms": label(topic, known),
                "dropped": f"{integer(one.dropped)} of {integer(one.documents)}",
                "share": percent(one.share),
                "other": percent(one.other),
                "difference": f"{signed(100 * one.difference, 1)} ± {100 * one.wide():.1f}",
            }
            for step, topic, one in sure[:FOUND]
        ],
        "compared": f"{integer(len(sure))} of {integer(len(differences))} comparisons"
        + (f", the largest {FOUND} of them here" if len(sure) > FOUND else ""),
    }


def maps(run: Run) -> dict[str, str | None]:
    """A figure of each language that has a map, by its name (ALL: of all documents)."""
    known, points = run.fact(TRAIN, "topics") or {}, dict[str, list[dict[str, Any]]]()
    for path in run.files(TRAIN, MAP):
        with run.reading(path):
            for row in rows(path):
                points.setdefault(row["model"], []).append(row)
    return {name: figure(name, of, known) for name, of in points.items()}


def figure(name: str, points: list[dict[str, Any]], known: dict[str, Any]) -> str:
    """The map of one model: a mark for each document, and the number of each topic in the middle of its documents."""
    topics = sorted({point["topic"] for point in points})

    def draw(axes: Axes) -> None:
        for number, topic in enumerate(topics):
            own = np.array([(point["x"], point["y"]) for point in points if point["topic"] == topic])
            colour, mark = COLOURS[number % len(COLOURS)], MARKS[number // len(COLOURS) % len(MARKS)]
            axes.scatter(own[:, 0], own[:, 1], s=9, color=colour, marker=mark, linewidths=0, alpha=0.7)
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
    said = "; ".join(f"{topic}, {label(topic, known)}: {counted[topic]}" for topic in topics)
    title = "Map of the sample" if name == ALL else f"Map of the sample: {name}"
    return drawn(f"topics-{name}", title, f"{len(points)} documents by topic. {said}.", draw, height=3.6)
