"""Figures of other thresholds that need no script: a small curve of each rule, and which rules drop the same documents (UpSet).

SVG as text: matplotlib would take seconds for the curves of a run. UpSet: Lex et al. 2014, doi:10.1109/TVCG.2014.2346248.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from crawl2llm.core.console import escape_controls
from crawl2llm.stages.report.page import html_id
from crawl2llm.stages.report.scale import Axis

WIDTH, HEIGHT, EDGE = 160, 64, 4  # of a small curve, in units of its view box
ROWS, COLUMNS = 24, 15  # of an UpSet plot: rules and combinations that it draws
STEP, LABEL, BARS = 18, 7, 90  # distance of rows and columns, width of a letter, height of the bars


def _svg_element(
    width: float, height: float, name: str, title: str, description: str, inside: str, shape: str = ""
) -> Markup:
    name, title, description = html_id(name), escape_controls(title), escape_controls(description)
    title, description = html.escape(title), html.escape(description)
    head = f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{description}</desc>'
    label = f'role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
    return Markup(f'<svg viewBox="0 0 {width:g} {height:g}" {label}{shape}>{head}{inside}</svg>')  # noqa: S704 - escaped above


def rule_curve(
    step: Mapping[str, Any], rule: Mapping[str, Any], plain: Callable[[float | None], str]
) -> dict[str, Any]:
    """`key`, `now` and `svg`: documents kept over the points, from 0 to what the step gets. plain: writes a threshold."""
    total, kept, points = step["in"]["documents"]["all"], rule["kept"]["documents"]["all"], rule["points"]
    axis = Axis(points)
    x = [EDGE + (WIDTH - 2 * EDGE) * axis.position_of(value) for value in points]
    y = [HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * number / max(1, total) for number in kept]
    line = " ".join(f"{left:.1f},{top:.1f}" for left, top in zip(x, y, strict=True))
    inside = f'<path d="M{EDGE} {HEIGHT - EDGE}H{WIDTH - EDGE}" stroke="var(--grid)"/>'
    now_text = "off"
    if rule["now"] is not None:
        at = points.index(rule["now"])
        inside += f'<path d="M{x[at]:.1f} {EDGE}V{HEIGHT - EDGE}" stroke="var(--orange)" stroke-dasharray="3 2"/>'
        now_text = f"{plain(rule['now'])}, which keeps {kept[at]:,}"
    inside += f'<polyline points="{line}" fill="none" stroke="var(--blue)" stroke-width="1.6"/>'
    description = f"Documents kept of {total:,}: {kept[0]:,} at {plain(points[0])} to {kept[-1]:,} at {plain(points[-1])}. Now {now_text}."
    name = f"small-{rule['key']}"
    svg = _svg_element(WIDTH, HEIGHT, name, rule["key"], description, inside)
    return {
        "key": rule["key"],
        "short": rule["key"].removeprefix(f"{step['step']}."),
        "now": plain(rule["now"]) if rule["now"] is not None else "off",
        "first": plain(points[0]),
        "last": plain(points[-1]),
        "scale": axis.kind,
        "svg": svg,
    }


def upset_plot(step: str, overlap: Mapping[str, Any]) -> Markup:
    """The most frequent combinations of rules as columns, with a bar each; rules as rows, with what each alone drops."""
    columns: list[Mapping[str, Any]] = []
    drawn_rules = set[str]()
    for column in overlap["combinations"]:
        # A set is drawn whole or not at all: without one of its rules it would be the picture of another.
        if len(columns) < COLUMNS and len(drawn_rules | set(column["rules"])) <= ROWS:
            columns.append(column)
            drawn_rules |= set(column["rules"])
    if not columns:
        return Markup()
    rows = [row for row in overlap["rules"] if row["rule"] in drawn_rules]
    left_edge = 12 + LABEL * max(len(row["rule"]) for row in rows)
    most = max(column["documents"] for column in columns)
    width, height = left_edge + STEP * len(columns) + 8, BARS + 14 + STEP * len(rows)
    place = {row["rule"]: BARS + 14 + STEP * at + STEP / 2 for at, row in enumerate(rows)}
    inside = ""
    for at, (rule, y) in enumerate(place.items()):
        if at % 2 == 0:
            inside += f'<rect x="0" y="{y - STEP / 2:g}" width="{width}" height="{STEP}" fill="var(--raised)"/>'
        inside += (
            f'<text x="{left_edge - 8}" y="{y + 4:g}" text-anchor="end" font-size="11" fill="var(--ink)">'
            f"{html.escape(escape_controls(rule))}</text>"
        )
    for at, column in enumerate(columns):
        x, bar = left_edge + STEP * at + STEP / 2, max(1.0, (BARS - 14) * column["documents"] / most)
        inside += f'<rect x="{x - 6:g}" y="{BARS - bar:.1f}" width="12" height="{bar:.1f}" fill="var(--blue)"/>'
        number = f"{column['documents']}" if column["documents"] < 10_000 else f"{column['documents'] / 1000:.3g}k"
        inside += f'<text x="{x:g}" y="{BARS - bar - 3:.1f}" text-anchor="middle" font-size="8.5" fill="var(--muted)">{number}</text>'
        inside += "".join(f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="var(--grid)"/>' for y in place.values())
        fired_places = [place[rule] for rule in column["rules"]]
        if len(fired_places) > 1:
            inside += (
                f'<path d="M{x:g} {min(fired_places):g}V{max(fired_places):g}" stroke="var(--ink)" stroke-width="2"/>'
            )
        inside += "".join(f'<circle cx="{x:g}" cy="{y:g}" r="4.5" fill="var(--ink)"/>' for y in fired_places)
    spoken = "; ".join(f"{' and '.join(column['rules'])}: {column['documents']:,}" for column in columns)
    description = f"Of {overlap['dropped']:,} dropped documents, those on which exactly these rules fire. {spoken}."
    name = f"upset-{step}"
    shape = f' style="width:{width * 1.15:.0f}px;max-width:none"'
    return _svg_element(width, height, name, f"{step}: which rules drop the same documents", description, inside, shape)
