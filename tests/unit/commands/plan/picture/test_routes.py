"""No edge goes through a box, no two boxes overlap, and no edges of different boxes lie on each other: in every picture."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.commands.plan.picture.graph import Box, Graph
from crawl2llm.commands.plan.picture.routes import HEIGHT, WIDTH, Picture, Rect, draw_graph
from crawl2llm.core.root import ROOT
from tests.unit.commands.plan.picture.workflows import crosses, on_each_other, overlapping, through_boxes, workflow


def check(graph: Graph, picture: Picture) -> None:
    assert picture.boxes.keys() == graph.boxes.keys() and picture.edges.keys() == set(graph.edges)
    assert through_boxes(picture) == []
    assert overlapping(picture.boxes) == []
    assert on_each_other(picture) == []
    for rect in picture.boxes.values():
        assert rect.x >= 0 and rect.x + rect.width <= picture.width
        assert rect.y >= 0 and rect.y + rect.height <= picture.height
    for (one, other), points in picture.edges.items():
        first, last = picture.boxes[one], picture.boxes[other]
        assert points[0] in ((first.x + WIDTH / 2, first.y + HEIGHT), (first.x + WIDTH, first.y + HEIGHT / 2))
        assert last.x <= points[-1][0] <= last.x + WIDTH and points[-1][1] in (last.y, last.y + HEIGHT / 2)
        assert all(0 <= x <= picture.width and 0 <= y <= picture.height for x, y in points)
    bands = dict(picture.bands)
    assert overlapping(bands) == []
    for key, rect in picture.boxes.items():
        band = bands[graph.boxes[key].stage]
        assert band.y < rect.y and rect.y + rect.height < band.y + band.height


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize("every", [True, False], ids=["all edges", "reduced"])
@pytest.mark.parametrize(("steps", "variants"), [(1, 1), (25, 1), (25, 3), (60, 1), (60, 5)])
def test_made_up_workflows(steps: int, variants: int, every: bool, most: int | None) -> None:
    for seed in range(3):
        graph = workflow(steps, variants, seed)
        graph = graph if every else graph.transitive_reduction()
        check(graph, draw_graph(graph, most))


def test_the_same_in_every_process() -> None:
    """Whatever the hashes of strings are."""
    code = (
        "from crawl2llm.commands.plan.picture.routes import draw_graph; from crawl2llm.commands.plan.picture.svg import standalone_svg; "
        "from tests.unit.commands.plan.picture.workflows import workflow; graph = workflow(40, 4); "
        "print(standalone_svg(graph, draw_graph(graph), 'x'))"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(made) == 1 and b"</svg>" in made.pop()


@settings(max_examples=60)
@given(st.integers(2, 30), st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([None, 1, 2, 3]))
def test_any_workflow(steps: int, variants: int, seed: int, most: int | None) -> None:
    graph = workflow(steps, variants, seed)
    check(graph, draw_graph(graph, most))


def test_a_stage_that_reads_from_a_later_one() -> None:
    """The order of the steps is not that of their stages: edges go upwards."""
    steps = ("a.one", "b.one", "a.two", "c.one", "b.two")
    boxes = {f"main/{step}": Box("main", step) for step in steps}
    edges = [(f"main/{one}", f"main/{other}") for one, other in itertools.pairwise(steps)]
    graph = Graph(steps, ("main",), boxes, (*edges, ("main/c.one", "main/a.two")))
    for most in (1, 2):
        check(graph, draw_graph(graph, most))


def test_the_check_sees_an_edge_through_a_box() -> None:
    box = Rect(10, 10, 20, 10)
    assert crosses((0, 15), (50, 15), box) and crosses((20, 0), (20, 12), box) and crosses((0, 0), (40, 30), box)
    assert not crosses((0, 10), (50, 10), box), "along its side"
    assert not crosses((20, 0), (20, 10), box), "up to its side"
    assert not crosses((0, 15), (5, 15), box) and not crosses((0, 25), (20, 45), box)
    graph = workflow(5)
    picture = draw_graph(graph)
    one, other = next(iter(picture.boxes)), list(picture.boxes)[-1]
    straight = {(one, other): ((0.0, 0.0), (picture.width, picture.height))}
    assert through_boxes(Picture(**{**picture.__dict__, "edges": straight}))


def test_the_check_sees_edges_on_each_other() -> None:
    picture = draw_graph(workflow(5))
    lines = {("a", "x"): ((0.0, 5.0), (9.0, 5.0)), ("b", "y"): ((20.0, 5.0), (8.0, 5.0))}
    assert on_each_other(Picture(**{**picture.__dict__, "edges": lines})) == [("a", "b")]
    assert not on_each_other(
        Picture(**{**picture.__dict__, "edges": {("a", "x"): lines["a", "x"], ("a", "y"): lines["b", "y"]}})
    )
