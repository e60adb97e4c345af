"""A picture as SVG: bands, edges and boxes, styled by picture.css; by itself with its colours, light or dark as the reader's screen is."""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, STATES, UP_TO_DATE, Box, Graph
from crawl2llm.commands.plan.picture.routes import LABEL, MARGIN, PADDING, Picture, Point, Rect
from crawl2llm.core.console import quantity

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
AGAIN = re.compile(r", which runs? again|^runs, (?=unless)")  # a box has no room for it, and its edges say so
NARROW, WIDE = frozenset("iljtfrI.,:;'|!()[]/ "), frozenset("mwMW→@%")


def clean(text: str) -> str:
    """Text that may stand in XML, escaped; names of files may hold anything."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    shown = "".join(
        " " if unicodedata.category(char) in ("Cc", "Cs") or char in "\ufffe\uffff" else char for char in whole
    )
    return html.escape(shown, quote=True)


def wide(text: str, size: float) -> float:
    """About how many pixels a text takes at a font size. Fonts differ: this is for the widest that is usual (DejaVu Sans)."""
    return size * sum(map(_width, text))


def _width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    kinds = ((NARROW, 0.36), (WIDE, 0.95))
    return next((share for chars, share in kinds if char in chars), 0.72 if char.isupper() else 0.62)


def fitted(text: str, size: float, room: float) -> str:
    """The text, cut off with `…` where it is too long for `room` pixels at a font size."""
    if wide(text, size) <= room:
        return text
    ends = [size * width for width in accumulate(map(_width, text))]
    return text[: bisect_right(ends, room - size)].rstrip() + "…"


def path(points: tuple[Point, ...]) -> str:
    """The lines between these points, with round corners."""
    words = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(ROUND, length(before, corner) / 2, length(corner, after) / 2)
        here, there = toward(corner, before, radius), toward(corner, after, radius)
        words.append(f"L{here[0]:g} {here[1]:g}Q{corner[0]:g} {corner[1]:g} {there[0]:g} {there[1]:g}")
    return "".join([*words, f"L{points[-1][0]:g} {points[-1][1]:g}"])


def length(one: Point, other: Point) -> float:
    """Of a horizontal or vertical line."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def toward(one: Point, other: Point, far: float) -> Point:
    """The point on the line from one to the other, so far along."""
    share = far / (length(one, other) or 1)
    return round(one[0] + (other[0] - one[0]) * share, 2), round(one[1] + (other[1] - one[1]) * share, 2)


def amount(box: Box) -> str:
    """`2 of 4 tasks`; how its tasks are counted in a picture without a plan."""
    if not box.state:
        return box.said
    if box.run and box.run < box.tasks:
        return f"{box.run:,} of {box.tasks:,} tasks"
    return quantity(box.tasks, "task")


def cost(box: Box) -> str:
    """`1m20s · 0.40 GPU-h`; empty where nothing runs."""
    return " · ".join(filter(None, [box.about, f"{box.gpu_hours} GPU-h" * bool(box.gpu_hours)]))


def reason(box: Box) -> str:
    """The reason that most of its tasks have, and how many others there are; its state where it has none.

    A missing result of a variant says what the variant sets otherwise: that it was never made is its sign already.
    """
    if box.state == MISSING and box.differs:
        return box.differs[0] + f" (+{len(box.differs) - 1})" * (len(box.differs) > 1)
    if not box.reasons:
        return box.state
    more = len(box.reasons) - 1
    return AGAIN.sub("", box.reasons[0][0]) + f" (+{more})" * bool(more)


def spoken(box: Box) -> str:
    """A box in words, for those who do not see it."""
    facts = [amount(box), *(words for words, _ in box.reasons), *box.differs, f"about {cost(box)}" * bool(cost(box))]
    where = "" if box.variant == "main" else f" of variant {box.variant}"
    return f"{box.step}{where}: {'; '.join(filter(None, [box.state, *facts]))}"


def sign(state: str, x: float, y: float) -> str:
    """The disc and the sign of a state."""
    return (
        f'<g transform="translate({x:g} {y:g})"><circle class="disc" r="8"/><path class="mark" d="{SIGNS[state]}"/></g>'
    )


def drawn(box: Box, rect: Rect, name: str, role: str = "img") -> str:
    """A box. name: its id in the page; role: what it is for a screen reader."""
    inside = rect.width - 24
    words = f'<rect class="frame" width="{rect.width:g}" height="{rect.height:g}" rx="8"/>'
    if not box.state:
        words += f'<text class="name" x="12" y="20">{clean(fitted(box.step, 13, inside))}</text>'
        words += f'<text class="facts" x="12" y="36">{clean(fitted(box.said, 11, inside))}</text>'
    else:
        about = cost(box)
        words += sign(box.state, 18, 17)
        words += f'<text class="name" x="33" y="21.5">{clean(fitted(box.step, 13, rect.width - 41))}</text>'
        words += f'<text class="why" x="12" y="38.5">{clean(fitted(reason(box), 11, inside))}</text>'
        left = inside - wide(about, 11)  # what the cost leaves for the number of tasks
        number = amount(box) if wide(amount(box), 11) < left else amount(box).removesuffix(" tasks")
        words += f'<text class="facts" x="12" y="54">{clean(fitted(number, 11, left - 4))}</text>'
        words += f'<text class="cost" x="{rect.width - 12:g}" y="54">{clean(about)}</text>' * bool(about)
    said = clean(spoken(box))
    return (
        f'<g class="box {CLASSES[box.state]}" id="{name}" transform="translate({rect.x:g} {rect.y:g})" role="{role}" '
        f'aria-label="{said}"><title>{said}</title>{words}</g>'
    )


def names(graph: Graph) -> dict[str, str]:
    """Key → id in the page, which no name of a variant can break."""
    return {key: f"b{number}" for number, key in enumerate(graph.boxes)}


def ground(graph: Graph, picture: Picture) -> Iterator[str]:
    """The bands with their stages, and the edges."""
    for stage, rect in picture.bands:
        yield f'<rect class="band" x="{rect.x:g}" y="{rect.y:g}" width="{rect.width:g}" height="{rect.height:g}" rx="10"/>'
        y, text = rect.y + PADDING + picture.high / 2 + 4.5, clean(fitted(stage, 13, LABEL - 16))
        yield f'<text class="stage" x="{rect.x + 14:g}" y="{y:g}">{text}</text>'
    ids = names(graph)
    for (one, other), points in picture.edges.items():
        yield f'<path class="edge" data-from="{ids[one]}" data-to="{ids[other]}" d="{path(points)}"/>'


def heads(graph: Graph, picture: Picture, notes: dict[str, str]) -> Iterator[str]:
    """The names of the variants over their columns. notes: what stands beside a name."""
    for variant, rect in picture.variants:
        note = notes.get(variant, "")
        said = fitted(variant, 13, rect.width - 70 if note else rect.width)
        yield f'<text class="variant" x="{rect.x:g}" y="19">{clean(said)}</text>'
        yield f'<text class="note" text-anchor="end" x="{rect.x + rect.width:g}" y="19">{clean(note)}</text>' * bool(
            note
        )
        yield f'<path class="rule" d="M{rect.x:g} 29h{rect.width:g}"/>'


def legend(graph: Graph, x: float, y: float) -> Iterator[str]:
    """The states that are there, with their signs, in one line."""
    for state, words in STATES.items():
        if any(box.state == state for box in graph.boxes.values()):
            yield f'<g class="{CLASSES[state]}">{sign(state, x + 8, y)}</g>'
            yield f'<text class="note" x="{x + 22:g}" y="{y + 4:g}">{clean(words)}</text>'
            x += 44 + len(words) * 6.6


def alone(graph: Graph, picture: Picture, title: str, note: str = "") -> str:
    """A file of its own. note: a line below the title, which are both left out where there is no title."""
    style = re.sub(r"\s*\n\s*", "\n", STYLE.read_text(encoding="utf-8"))
    top = 52.0 if note else 0.0
    variants = HEAD if len(picture.variants) > 1 else 0.0
    low = 34.0 if any(box.state for box in graph.boxes.values()) else 0.0
    width, height = max(picture.width, 560), picture.height + top + variants + low
    ids = names(graph)
    body: Iterable[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-labelledby="title">',
        f'<title id="title">{clean(title)}</title><style>{style}</style><defs>{ARROW.format(name="arrow")}</defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="var(--ground)"/>',
        *([f'<text class="stage" x="{MARGIN}" y="24">{clean(title)}</text>'] if note else []),
        *([f'<text class="note" x="{MARGIN}" y="43">{clean(note)}</text>'] if note else []),
        f'<g transform="translate(0 {top:g})">',
        *(heads(graph, picture, {}) if variants else []),
        f'</g><g transform="translate(0 {top + variants:g})">',
        *ground(graph, picture),
        *(drawn(graph.boxes[key], rect, ids[key]) for key, rect in picture.boxes.items()),
        *legend(graph, MARGIN, picture.height + 12),
        "</g></svg>",
    ]
    return "\n".join(body) + "\n"
