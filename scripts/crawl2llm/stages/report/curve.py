"""The learning curve of the base model: bits per held-out byte and the tasks' centered scores by tokens seen, as table and figure."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.formats.run_records import Run, metrics, number
from crawl2llm.stages.report.figures import BLUE, GREEN, ORANGE, lines
from crawl2llm.stages.report.page import NOTHING, integer, short, signed, significant
from crawl2llm.stages.report.tasks import NAMES

STEP = "evaluate.curve"
Point = dict[str, Any]


def points(run: Run) -> list[Point]:
    """By step: `step`, `tokens`, `bits` (None where no validation was), `tasks` (numbers by task; none where no checkpoint was asked)."""
    found: dict[int, Point] = {}
    tokens: dict[int, float] = {}
    for row in metrics(run, BASE_STEP):
        step = int(row["step"])
        if (seen := number(row.get("tokens"))) is not None:
            tokens[step] = seen
        if (bits := number(row.get("bits_per_byte"))) is not None:
            found[step] = {"step": step, "bits": bits, "tasks": {}}
    for point in run.summary(STEP, "points") or []:
        here = found.setdefault(int(point["step"]), {"step": int(point["step"]), "bits": None})
        here["tasks"] = point["tasks"]
        tokens[int(point["step"])] = point["tokens"]
    return [{**found[step], "tokens": tokens.get(step)} for step in sorted(found)]


def asked(found: list[Point]) -> list[str]:
    """The tasks of any point, in the order of NAMES."""
    there = {task for point in found for task in point["tasks"]}
    return [*(name for name in NAMES if name in there), *sorted(there - NAMES.keys())]


def table(run: Run) -> dict[str, Any]:
    """`heads` and `rows` (step, tokens, cells); no row of fewer than two points."""
    found = points(run)
    names = asked(found)
    rows = [
        (
            integer(point["step"]),
            short(point["tokens"]),
            [significant(point["bits"]), *(scored(point["tasks"].get(name)) for name in names)],
        )
        for point in found
    ]
    return {
        "heads": ["Bits per byte", *(NAMES.get(name, name) for name in names)],
        "rows": rows if len(rows) > 1 else [],
    }


def scored(of: Any) -> str:
    """`+0.36 ± 0.04`: a centered score with its standard error."""
    if not of:
        return NOTHING
    wide = number(of.get("centered_stderr"))
    return signed(of["centered"], 2) + (f" ± {wide:.2f}" if wide is not None else "")


def figure(run: Run) -> str | None:
    """Centered scores by tokens seen; None with fewer than two points."""
    found = [point for point in points(run) if point["tasks"] and point["tokens"]]
    if len(found) < 2:
        return None
    curves = []
    for name, colour in zip(asked(found), (BLUE, ORANGE, GREEN), strict=False):
        known = [(point["tokens"], point["tasks"][name]["centered"]) for point in found if name in point["tasks"]]
        curves.append((NAMES.get(name, name), [x for x, _ in known], [y for _, y in known], colour))
    return lines("curve", "Tasks from held-out text by tokens seen", "tokens seen", "centered score", curves)
