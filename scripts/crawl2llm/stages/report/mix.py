"""The mix of the base model's training, for the page: what each group was to give, what it gave as the training read it, and when."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.chain.steps import MIX
from crawl2llm.formats.run_records import Run, dig, metrics
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, PURPLE, lines
from crawl2llm.stages.report.models import Model
from crawl2llm.stages.report.page import integer, percent, short, significant

ROW = "tokens_by_group"  # in a row of losses.jsonl
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)  # of the groups that the figure shows, those that are read most
POINTS = 40  # parts of a training in the figure
MOST = 30  # rows of the table; the others are one
KINDS = {"source": "Source", "language": "Language", "quality": "Quality", "topic": "Topic"}


def table(run: Run, model: Model) -> dict[str, Any] | None:
    """Of the base model of a run with a mix: `kind`, `phases` (steps of each), `rows` (name, cells, note) and `deviation`; else None."""
    found = run.fact(MIX)
    if model.step != BASE_STEP or not found:
        return None
    read = dig(run.fact(BASE_STEP), "by_group") or {}
    groups = sorted(found["groups"].items(), key=lambda item: (-item[1]["trained"], item[0]))
    rows = []
    for name, facts in groups[:MOST]:
        own = read.get(name, {})
        asked = [phase["groups"][name] for phase in found["phases"]]
        rows.append(
            {
                "name": name,
                "tokens": short(facts["tokens"]),
                "shares": [percent(phase["share"], 2) for phase in asked],
                "read": short(own.get("tokens")),
                "share": percent(own.get("share"), 2),
                "epochs": significant(own.get("epochs"), 3),
                "held": name in found["held"],
            }
        )
    return {
        "kind": KINDS[found["by"]],
        "phases": [
            f"{integer(first)} to {integer(last)}" for first, last in (phase["steps"] for phase in found["phases"])
        ],
        "rows": rows,
        "more": len(groups) - len(rows),
        "deviation": percent(found["deviation"]["largest"], 2),
        "after": integer(found["deviation"]["after_steps"]),
    }


def figures(run: Run, model: Model) -> dict[str, str | None]:
    """The share of each group in what the training read, over the tokens seen: of the base model of a run with a mix."""
    rows = [row for row in metrics(run, model.step, model.task) if ROW in row] if model.step == BASE_STEP else []
    total: dict[str, int] = {}
    for row in rows:
        for name, number in row[ROW].items():
            total[name] = total.get(name, 0) + number
    shown = sorted(total, key=lambda name: (-total[name], name))[: len(COLOURS)]
    own = np.array([[row[ROW].get(name, 0) for name in shown] for row in rows], float).reshape(len(rows), len(shown))
    whole, x, y = np.array([float(sum(row[ROW].values())) for row in rows]), list[float](), list[np.ndarray]()
    for part in np.array_split(np.arange(len(rows)), min(POINTS, len(rows)) or 1):
        if len(part):
            x.append(float(whole[: part[-1] + 1].sum()))
            y.append(100 * own[part].sum(axis=0) / whole[part].sum())
    curves = [(name, x, [float(point[n]) for point in y], COLOURS[n]) for n, name in enumerate(shown)]
    drawn = lines(
        f"{model.anchor}-mix",
        "What the training reads",
        "tokens seen",
        "share of the tokens (percent)",
        curves,
        zero=True,
    )
    return {"mix": drawn if rows else None}
