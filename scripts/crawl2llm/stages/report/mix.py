"""The mix of the base model's training, for the page: what each group was to give, what it gave as the training read it, and when."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.chain.steps import MIX
from crawl2llm.formats.run_records import Run, nested_value, training_metrics
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, PURPLE, line_chart
from crawl2llm.stages.report.models import Model
from crawl2llm.stages.report.page import format_integer, format_percent, format_short, format_significant

GROUP_TOKENS_KEY = "tokens_by_group"  # in a row of losses.jsonl
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)  # of the groups that the figure shows, those that are read most
POINTS = 40  # parts of a training in the figure
MOST = 30  # rows of the table; the others are one
KINDS = {"source": "Source", "language": "Language", "quality": "Quality", "topic": "Topic"}


def table(run: Run, model: Model) -> dict[str, Any] | None:
    """Of the base model of a run with a mix: `kind`, `phases` (steps of each), `rows` (name, cells, note) and `deviation`; else None."""
    mix = run.fact(MIX)
    if model.step != BASE_STEP or not mix:
        return None
    read = nested_value(run.fact(BASE_STEP), "by_group") or {}
    groups = sorted(mix["groups"].items(), key=lambda item: (-item[1]["trained"], item[0]))
    rows = []
    for name, facts in groups[:MOST]:
        group_facts = read.get(name, {})
        group_phases = [phase["groups"][name] for phase in mix["phases"]]
        rows.append(
            {
                "name": name,
                "tokens": format_short(facts["tokens"]),
                "shares": [format_percent(phase["share"], 2) for phase in group_phases],
                "read": format_short(group_facts.get("tokens")),
                "share": format_percent(group_facts.get("share"), 2),
                "epochs": format_significant(group_facts.get("epochs"), 3),
                "held": name in mix["held"],
            }
        )
    return {
        "kind": KINDS[mix["by"]],
        "phases": [
            f"{format_integer(first)} to {format_integer(last)}"
            for first, last in (phase["steps"] for phase in mix["phases"])
        ],
        "rows": rows,
        "more": len(groups) - len(rows),
        "deviation": format_percent(mix["deviation"]["largest"], 2),
        "after": format_integer(mix["deviation"]["after_steps"]),
    }


def figures(run: Run, model: Model) -> dict[str, str | None]:
    """The share of each group in what the training read, over the tokens seen: of the base model of a run with a mix."""
    rows = (
        [row for row in training_metrics(run, model.step, model.task) if GROUP_TOKENS_KEY in row]
        if model.step == BASE_STEP
        else []
    )
    total: dict[str, int] = {}
    for row in rows:
        for name, number in row[GROUP_TOKENS_KEY].items():
            total[name] = total.get(name, 0) + number
    shown_groups = sorted(total, key=lambda name: (-total[name], name))[: len(COLOURS)]
    group_tokens = np.array(
        [[row[GROUP_TOKENS_KEY].get(name, 0) for name in shown_groups] for row in rows], float
    ).reshape(len(rows), len(shown_groups))
    row_tokens = np.array([float(sum(row[GROUP_TOKENS_KEY].values())) for row in rows])
    tokens_seen = list[float]()
    shares = list[np.ndarray]()
    for part in np.array_split(np.arange(len(rows)), min(POINTS, len(rows)) or 1):
        if len(part):
            tokens_seen.append(float(row_tokens[: part[-1] + 1].sum()))
            shares.append(100 * group_tokens[part].sum(axis=0) / row_tokens[part].sum())
    curves = [
        (name, tokens_seen, [float(point[place]) for point in shares], COLOURS[place])
        for place, name in enumerate(shown_groups)
    ]
    chart = line_chart(
        f"{model.anchor}-mix",
        "The training text",
        "tokens seen",
        "share of the tokens (percent)",
        curves,
        zero=True,
    )
    return {"mix": chart if rows else None}
