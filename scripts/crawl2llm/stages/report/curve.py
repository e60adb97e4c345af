"""The learning curve of the base model: bits per held-out byte and the tasks' centered scores by tokens seen, as table and figure."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.formats.run_records import Run, finite_number, training_metrics
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, line_chart
from crawl2llm.stages.report.page import NOTHING, format_integer, format_short, format_signed, format_significant
from crawl2llm.stages.report.tasks import NAMES

STEP = "evaluate.curve"
Point = dict[str, Any]


def points(run: Run) -> list[Point]:
    """By step: `step`, `tokens`, `bits` (None if no validation was), `tasks` (numbers by task; none if no checkpoint was asked)."""
    points_by_step: dict[int, Point] = {}
    tokens: dict[int, float] = {}
    for row in training_metrics(run, BASE_STEP):
        step = int(row["step"])
        if (tokens_seen := finite_number(row.get("tokens"))) is not None:
            tokens[step] = tokens_seen
        if (bits := finite_number(row.get("bits_per_byte"))) is not None:
            points_by_step[step] = {"step": step, "bits": bits, "tasks": {}}
    for point in run.summary(STEP, "points") or []:
        at_step = points_by_step.setdefault(int(point["step"]), {"step": int(point["step"]), "bits": None})
        at_step["tasks"] = point["tasks"]
        tokens[int(point["step"])] = point["tokens"]
    return [{**points_by_step[step], "tokens": tokens.get(step)} for step in sorted(points_by_step)]


def task_names(points: list[Point]) -> list[str]:
    """The tasks of any point, in the order of NAMES."""
    names = {task for point in points for task in point["tasks"]}
    return [*(name for name in NAMES if name in names), *sorted(names - NAMES.keys())]


def table(run: Run) -> dict[str, Any]:
    """`heads` and `rows` (step, tokens, cells); no row of fewer than two points."""
    curve_points = points(run)
    names = task_names(curve_points)
    rows = [
        (
            format_integer(point["step"]),
            format_short(point["tokens"]),
            [format_significant(point["bits"]), *(score_text(point["tasks"].get(name)) for name in names)],
        )
        for point in curve_points
    ]
    return {
        "heads": ["Bits per byte", *(NAMES.get(name, name) for name in names)],
        "rows": rows if len(rows) > 1 else [],
    }


def score_text(score: Any) -> str:
    """`+0.36 ± 0.04`: a centered score with its standard error."""
    if not score:
        return NOTHING
    error = finite_number(score.get("centered_stderr"))
    return format_signed(score["centered"], 2) + (f" ± {error:.2f}" if error is not None else "")


def figure(run: Run) -> str | None:
    """Centered scores by tokens seen; None with fewer than two points."""
    measured_points = [point for point in points(run) if point["tasks"] and point["tokens"]]
    if len(measured_points) < 2:
        return None
    curves = []
    for name, colour in zip(task_names(measured_points), (BLUE, ORANGE, GREEN), strict=False):
        pairs = [
            (point["tokens"], point["tasks"][name]["centered"]) for point in measured_points if name in point["tasks"]
        ]
        curves.append((NAMES.get(name, name), [x for x, _ in pairs], [y for _, y in pairs], colour))
    return line_chart("curve", "Tasks from held-out text by tokens seen", "tokens seen", "centered score", curves)
