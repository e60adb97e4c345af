"""A picture as one HTML page without any request: the SVG, its styles, a script for keyboard, filter and details, and what they show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crawl2llm.commands.plan.picture import svg
from crawl2llm.commands.plan.picture.graph import STATES, Box, Graph
from crawl2llm.commands.plan.picture.routes import Picture, draw_graph
from crawl2llm.core.console import format_quantity

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Summary:
    """The text above a plan's picture. gpu_hours: empty if no GPU is used. estimate: what the numbers were made from."""

    title: str
    folder: str
    tasks: int
    about: str
    gpu_hours: str
    estimate: str

    @property
    def summary_line(self) -> str:
        """All of it as one line."""
        if not self.tasks:
            return "nothing to do: every result is up to date"
        amounts = [self.about, f"{self.gpu_hours} GPU-hours" if self.gpu_hours else ""]
        cost = f"about {' and '.join(filter(None, amounts))}" if self.about != "?" else "not measured yet"
        return f"{format_quantity(self.tasks, 'task')} to run, {cost}"


def page_layouts(graph: Graph) -> dict[str, tuple[Graph, Picture]]:
    """The pictures that the page changes between: `wide`, `tall` for a phone, and each with `-all` edges."""
    reduced = graph.transitive_reduction()
    by_name = {"wide": (reduced, draw_graph(reduced)), "wide-all": (graph, draw_graph(graph))}
    tall = draw_graph(reduced, 1)
    if tall.width < by_name["wide"][1].width:
        by_name |= {"tall": (reduced, tall), "tall-all": (graph, draw_graph(graph, 1))}
    return by_name


def variant_notes(graph: Graph) -> dict[str, str]:
    """The text beside a variant's name: how much of it is its own."""
    box_counts = Counter(box.variant for box in graph.boxes.values())
    return {name: f"{box_counts[name]} of its own" for name in graph.variants if name != "main"}


def script_markup(text: str) -> Markup:
    """JSON or code for a <script>: nothing in it can end the element."""
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704


def script_data(graph: Graph, layouts: dict[str, tuple[Graph, Picture]]) -> dict[str, Any]:
    """What the script shows: the boxes by id, and where they are in each layout."""
    ids = svg.element_ids(graph)
    reads: dict[str, list[str]] = {key: [] for key in graph.boxes}
    readers: dict[str, list[str]] = {key: [] for key in graph.boxes}
    for source, target in graph.edges:
        reads[target].append(ids[source])
        readers[source].append(ids[target])
    boxes = {
        ids[key]: {
            "step": box.step,
            "variant": box.variant,
            "state": svg.CLASSES[box.state],
            "words": STATES.get(box.state, ""),
            "amount": svg.amount_text(box),
            "cost": svg.cost_text(box),
            "reasons": box.reasons,
            "changes": [] if reasons_tell_changes(box) else box.changes,
            "differs": box.differs,
            "reads": reads[key],
            "readers": readers[key],
        }
        for key, box in graph.boxes.items()
    }
    places = {
        name: {
            "width": picture.width,
            "height": picture.height,
            "at": {ids[key]: [rect.x, rect.y] for key, rect in picture.boxes.items()},
        }
        for name, (_, picture) in layouts.items()
    }
    return {"boxes": boxes, "layouts": places, "variants": len(graph.variants)}


def reasons_tell_changes(box: Box) -> bool:
    """Whether the reasons name all that differs already; of many modules they name the first."""
    reason_text = "; ".join(words for words, _ in box.reasons)
    return all(words in reason_text for words in box.changes)


def layer_groups(layouts: dict[str, tuple[Graph, Picture]], part: str, words: dict[str, str]) -> Iterator[str]:
    """What differs between the layouts, a group each: the `heads` of the variants, or the `ground` with the edges."""
    for name, (graph, picture) in layouts.items():
        inside = svg.heading_svg(graph, picture, words) if part == "heads" else svg.ground_svg(graph, picture)
        yield f'<g class="layer" data-layout="{name}">{"".join(inside)}</g>'


def state_buttons(graph: Graph) -> list[tuple[str, str, Markup, int]]:
    """(class, words, sign, boxes) of each state that is there."""
    box_counts = Counter(box.state for box in graph.boxes.values())
    return [
        (svg.CLASSES[state], words, Markup(svg.state_sign(state, 9, 9)), box_counts[state])  # noqa: S704
        for state, words in STATES.items()
        if box_counts[state]
    ]


def render_page(graph: Graph, summary: Summary) -> str:
    """The page. Every text of a config, a path or a plan is escaped: by Jinja, by svg.escape_text, or shown as text by the script."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    layouts = page_layouts(graph)
    ids = svg.element_ids(graph)
    wide = layouts["wide"][1]
    boxes = [svg.box_svg(graph.boxes[key], rect, ids[key], "button") for key, rect in wide.boxes.items()]
    read_text = lambda name: (HERE / name).read_text(encoding="utf-8")  # noqa: E731
    page = environment.get_template("page.html.j2").render(
        summary=summary,
        states=state_buttons(graph),
        several=len(graph.variants) > 1,
        size=(wide.width, wide.height),
        style=Markup(read_text("picture.css") + read_text("page.css")),  # noqa: S704 - files of this project
        code=Markup(read_text("page.js")),  # noqa: S704
        arrows=Markup("".join(svg.ARROW.format(name=name) for name in ("arrow", "arrow-on"))),  # noqa: S704
        heads=Markup("".join(layer_groups(layouts, "heads", variant_notes(graph)))),  # noqa: S704
        ground=Markup("".join(layer_groups(layouts, "ground", {}))),  # noqa: S704
        boxes=Markup("".join(boxes)),  # noqa: S704
        data=script_markup(json.dumps(script_data(graph, layouts))),
    )
    return page.encode("utf-8", "replace").decode("utf-8")
