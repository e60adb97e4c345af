"""A picture as SVG: bands, edges and boxes, styled by picture.css; by itself with its colours, light or dark as the reader's screen is."""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, STATES, UP_TO_DATE, Box, Graph
from crawl2llm.commands.plan.picture.routes import LABEL, MARGIN, PADDING, Picture, Point, Rect
from crawl2llm.core.console import format_quantity

STYLE = Path(__file__).with_name("picture.css")
CLASSES = {RUNS: "runs", MISSING: "missing", UP_TO_DATE: "fresh", LEFT_OUT: "left", "": "plain"}
# A sign for each state, so that no one needs the colours: play, plus, check mark, dash. Around (0, 0), in a disc of 8 pixels.
SIGNS = {
    RUNS: "M-2 -3.2 3.2 0 -2 3.2z",
    MISSING: "M-3.5 0h7M0 -3.5v7",
    UP_TO_DATE: "M-3.5 .3l2.4 2.5 4.6 -5",
    LEFT_OUT: "M-3 0h6",
}
ROUND = 6.0  # the corners of edges
HEAD = 34.0  # the names of the variants
ARROW = (
    '<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" '
    'orient="auto"><path d="M0 .5 8 4 0 7.5z"/></marker>'
)
RUNS_AGAIN = re.compile(r", which runs? again|^runs, (?=unless)")  # a box has no room for it, and its edges say so
NARROW, WIDE = frozenset("iljtfrI.,:;'|!()[]/ "), frozenset("mwMW→@%")


def escape_text(text: str) -> str:
    """Text escaped for XML; names of files may hold anything."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    visible = "".join(
        " " if unicodedata.category(char) in ("Cc", "Cs") or char in "\ufffe\uffff" else char for char in whole
    )
    return html.escape(visible, quote=True)


def text_width(text: str, size: float) -> float:
    """About how many pixels a text takes at a font size. Fonts differ: this is for the widest that is usual (DejaVu Sans)."""
    return size * sum(map(_character_width, text))


def _character_width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    kinds = ((NARROW, 0.36), (WIDE, 0.95))
    return next((share for chars, share in kinds if char in chars), 0.72 if char.isupper() else 0.62)


def fit_text(text: str, size: float, room: float) -> str:
    """The text, cut off with `…` where it is too long for `room` pixels at a font size."""
    if text_width(text, size) <= room:
        return text
    ends = [size * width for width in accumulate(map(_character_width, text))]
    return text[: bisect_right(ends, room - size)].rstrip() + "…"


def rounded_path(points: tuple[Point, ...]) -> str:
    """The lines between these points, with round corners."""
    words = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(ROUND, line_length(before, corner) / 2, line_length(corner, after) / 2)
        curve_start, curve_end = point_toward(corner, before, radius), point_toward(corner, after, radius)
        words.append(
            f"L{curve_start[0]:g} {curve_start[1]:g}Q{corner[0]:g} {corner[1]:g} {curve_end[0]:g} {curve_end[1]:g}"
        )
    return "".join([*words, f"L{points[-1][0]:g} {points[-1][1]:g}"])


def line_length(start: Point, end: Point) -> float:
    """Of a horizontal or vertical line."""
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def point_toward(start: Point, end: Point, far: float) -> Point:
    """The point on the line from `start` to `end`, `far` from its start."""
    share = far / (line_length(start, end) or 1)
    return round(start[0] + (end[0] - start[0]) * share, 2), round(start[1] + (end[1] - start[1]) * share, 2)


def amount_text(box: Box) -> str:
    """`2 of 4 tasks`; how its tasks are counted in a picture without a plan."""
    if not box.state:
        return box.count_note
    if box.tasks_to_run and box.tasks_to_run < box.tasks:
        return f"{box.tasks_to_run:,} of {box.tasks:,} tasks"
    return format_quantity(box.tasks, "task")


def cost_text(box: Box) -> str:
    """`1m20s · 0.40 GPU-h`; empty if nothing runs."""
    return " · ".join(filter(None, [box.about, f"{box.gpu_hours} GPU-h" if box.gpu_hours else ""]))


def reason_text(box: Box) -> str:
    """The reason that most of its tasks have, and how many others there are; its state where it has none.

    A missing result of a variant says what the variant sets otherwise: that it was never made is its sign already.
    """
    if box.state == MISSING and box.differs:
        return _first_of(box.differs)
    if not box.reasons:
        return box.state
    return _first_of([RUNS_AGAIN.sub("", words) for words, _ in box.reasons])


def _first_of(texts: Sequence[str]) -> str:
    """`a`, or `a (+2)` of three."""
    return f"{texts[0]} (+{len(texts) - 1})" if len(texts) > 1 else texts[0]


def box_description(box: Box) -> str:
    """A box in words, for those who do not see it."""
    facts = [amount_text(box), *(words for words, _ in box.reasons), *box.differs]
    if cost := cost_text(box):
        facts.append(f"about {cost}")
    where = "" if box.variant == "main" else f" of variant {box.variant}"
    return f"{box.step}{where}: {'; '.join(filter(None, [box.state, *facts]))}"


def state_sign(state: str, x: float, y: float) -> str:
    """The disc and the sign of a state."""
    return (
        f'<g transform="translate({x:g} {y:g})"><circle class="disc" r="8"/><path class="mark" d="{SIGNS[state]}"/></g>'
    )


def box_svg(box: Box, rect: Rect, name: str, role: str = "img") -> str:
    """A box. name: its id in the page; role: what it is for a screen reader."""
    inside = rect.width - 24
    words = f'<rect class="frame" width="{rect.width:g}" height="{rect.height:g}" rx="8"/>'
    if not box.state:
        words += f'<text class="name" x="12" y="20">{escape_text(fit_text(box.step, 13, inside))}</text>'
        words += f'<text class="facts" x="12" y="36">{escape_text(fit_text(box.count_note, 11, inside))}</text>'
    else:
        about = cost_text(box)
        words += state_sign(box.state, 18, 17)
        words += f'<text class="name" x="33" y="21.5">{escape_text(fit_text(box.step, 13, rect.width - 41))}</text>'
        words += f'<text class="why" x="12" y="38.5">{escape_text(fit_text(reason_text(box), 11, inside))}</text>'
        room_left = inside - text_width(about, 11)  # what the cost leaves for the number of tasks
        number = amount_text(box)
        number = number if text_width(number, 11) < room_left else number.removesuffix(" tasks")
        words += f'<text class="facts" x="12" y="54">{escape_text(fit_text(number, 11, room_left - 4))}</text>'
        if about:
            words += f'<text class="cost" x="{rect.width - 12:g}" y="54">{escape_text(about)}</text>'
    description = escape_text(box_description(box))
    return (
        f'<g class="box {CLASSES[box.state]}" id="{name}" transform="translate({rect.x:g} {rect.y:g})" role="{role}" '
        f'aria-label="{description}"><title>{description}</title>{words}</g>'
    )


def element_ids(graph: Graph) -> dict[str, str]:
    """Key → id in the page, which no name of a variant can break."""
    return {key: f"b{number}" for number, key in enumerate(graph.boxes)}


def ground_svg(graph: Graph, picture: Picture) -> Iterator[str]:
    """The bands with their stages, and the edges."""
    for stage, rect in picture.bands:
        yield f'<rect class="band" x="{rect.x:g}" y="{rect.y:g}" width="{rect.width:g}" height="{rect.height:g}" rx="10"/>'
        y, text = rect.y + PADDING + picture.high / 2 + 4.5, escape_text(fit_text(stage, 13, LABEL - 16))
        yield f'<text class="stage" x="{rect.x + 14:g}" y="{y:g}">{text}</text>'
    ids = element_ids(graph)
    for (source, target), points in picture.edges.items():
        yield f'<path class="edge" data-from="{ids[source]}" data-to="{ids[target]}" d="{rounded_path(points)}"/>'


def heading_svg(graph: Graph, picture: Picture, notes: dict[str, str]) -> Iterator[str]:
    """The names of the variants over their columns. notes: the text beside a name."""
    for variant, rect in picture.variants:
        note = notes.get(variant, "")
        name = fit_text(variant, 13, rect.width - 70 if note else rect.width)
        yield f'<text class="variant" x="{rect.x:g}" y="19">{escape_text(name)}</text>'
        if note:
            yield f'<text class="note" text-anchor="end" x="{rect.x + rect.width:g}" y="19">{escape_text(note)}</text>'
        yield f'<path class="rule" d="M{rect.x:g} 29h{rect.width:g}"/>'


def legend_svg(graph: Graph, x: float, y: float) -> Iterator[str]:
    """The states that are there, with their signs, in one line."""
    for state, words in STATES.items():
        if any(box.state == state for box in graph.boxes.values()):
            yield f'<g class="{CLASSES[state]}">{state_sign(state, x + 8, y)}</g>'
            yield f'<text class="note" x="{x + 22:g}" y="{y + 4:g}">{escape_text(words)}</text>'
            x += 44 + len(words) * 6.6


def standalone_svg(graph: Graph, picture: Picture, title: str, note: str = "") -> str:
    """A file of its own. note: a line below the title, which are both left out if there is no title."""
    style = re.sub(r"\s*\n\s*", "\n", STYLE.read_text(encoding="utf-8"))
    top = 52.0 if note else 0.0
    variants = HEAD if len(picture.variants) > 1 else 0.0
    low = 34.0 if any(box.state for box in graph.boxes.values()) else 0.0
    width, height = max(picture.width, 560), picture.height + top + variants + low
    ids = element_ids(graph)
    body: Iterable[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape_text(title)}</title><style>{style}</style><defs>{ARROW.format(name="arrow")}</defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="var(--ground)"/>',
        *([f'<text class="stage" x="{MARGIN}" y="24">{escape_text(title)}</text>'] if note else []),
        *([f'<text class="note" x="{MARGIN}" y="43">{escape_text(note)}</text>'] if note else []),
        f'<g transform="translate(0 {top:g})">',
        *(heading_svg(graph, picture, {}) if variants else []),
        f'</g><g transform="translate(0 {top + variants:g})">',
        *ground_svg(graph, picture),
        *(box_svg(graph.boxes[key], rect, ids[key]) for key, rect in picture.boxes.items()),
        *legend_svg(graph, MARGIN, picture.height + 12),
        "</g></svg>",
    ]
    return "\n".join(body) + "\n"
