"""Rows, columns and gutters of a picture."""

from __future__ import annotations

import itertools

import pytest

from crawl2llm.commands.plan.picture.graph import Box, Graph
from crawl2llm.commands.plan.picture.grid import (
    COLUMNS,
    choose_gutter,
    crossing_x,
    layered_layout,
    place_boxes,
    split_into_rows,
)
from tests.unit.commands.plan.picture.workflows import workflow


def chain(*steps: str, variants: tuple[str, ...] = ("main",), own: int = 0) -> Graph:
    """Steps that read one from the next; every variant but main has those from `own` on for itself."""
    held = {name: steps[own if name != "main" else 0 :] for name in variants}
    boxes = {f"{name}/{step}": Box(name, step) for name, mine in held.items() for step in mine}
    edges = []
    for name, mine in held.items():
        for one, other in itertools.pairwise(steps):
            if other in mine:
                edges.append((f"{name if one in mine else 'main'}/{one}", f"{name}/{other}"))
    return Graph(steps, variants, boxes, tuple(edges))


def test_a_stage_is_a_row_read_from_left_to_right() -> None:
    grid = place_boxes(chain("a.one", "a.two", "b.one", "b.two", "b.three"))
    assert grid.bands == (("a", 1), ("b", 1)) and grid.columns == ("main",) * 3
    assert [grid.cells[f"main/{step}"] for step in ("a.one", "a.two", "b.one", "b.three")] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 2),
    ]


def test_a_step_stands_in_the_same_row_in_every_variant() -> None:
    graph = workflow(40, 5)
    grid = place_boxes(graph)
    rows: dict[str, set[int]] = {}
    for key, (row, column) in grid.cells.items():
        rows.setdefault(graph.boxes[key].step, set()).add(row)
        assert grid.columns[column] == graph.boxes[key].variant
    assert all(len(found) == 1 for found in rows.values())


@pytest.mark.parametrize("variants", [1, 2, 3, 4, 5])
def test_as_many_columns_as_a_screen_has(variants: int) -> None:
    assert len(place_boxes(workflow(25, variants)).columns) <= COLUMNS
    assert len(place_boxes(workflow(25, 9)).columns) == 9  # one of each is the least


def test_a_variant_has_only_the_columns_that_it_uses() -> None:
    grid = place_boxes(chain("a.one", "a.two", "a.three", "b.one", variants=("main", "hot"), own=3), 3)
    assert grid.columns == ("main", "main", "main", "hot") and grid.cells["hot/b.one"] == (1, 3)


def test_rows_of_about_the_same_length() -> None:
    assert [len(row) for row in split_into_rows(list("abcde"), 4)] == [3, 2]
    assert [len(row) for row in split_into_rows(list("abcdef"), 5)] == [3, 3]
    assert split_into_rows(["a"], 5) == [["a"]]


def test_an_edge_passes_every_row_on_its_way() -> None:
    pairs = [("a", "b"), ("a", "e"), ("b", "d"), ("c", "e"), ("b", "c"), ("e", "b")]
    right, passes = layered_layout([["a"], ["b", "c"], ["d"], ["e"]], pairs)
    assert right.keys() == set("abcde") and right["b"] != right["c"]
    assert {edge: list(rows) for edge, rows in passes.items()} == {
        ("a", "b"): [],
        ("a", "e"): [1, 2],
        ("b", "d"): [],
        ("c", "e"): [2],
        ("e", "b"): [2],
    }, "not the one within a row"
    assert right["d"] not in passes["a", "e"].values()
    assert layered_layout([["a"], ["b", "c"], ["d"], ["e"]], pairs[::-1]) == (right, passes)


def test_steps_that_nothing_reads_are_placed_too() -> None:
    """Several parts, with long edges."""
    rows = [[f"{row}.{column}" for column in range(3)] for row in range(12)]
    right, passes = layered_layout(rows, [("0.0", "11.0"), ("0.1", "9.2"), ("3.2", "5.2")])
    assert len(right) == 36 and all(len({right[step] for step in row}) == 3 for row in rows)
    assert list(passes["0.0", "11.0"]) == list(range(1, 11))
    for (one, other), held in passes.items():
        assert not any(abs(right[step] - x) < 60 for row, x in held.items() for step in rows[row]), (one, other)


def test_where_a_line_comes_to_a_height() -> None:
    line = [(0.0, 0.0), (0.0, 5.0), (8.0, 5.0), (8.0, 20.0)]
    assert crossing_x(line, 3) == 0 and crossing_x(line, 12) == 8 and crossing_x(line[::-1], 12) == 8


def test_the_gutter_is_beside_the_boxes_where_graphlay_has_the_edge() -> None:
    assert choose_gutter([(0, 2), (0, 1)], 3, 1) == 0
    assert choose_gutter([(1, 2), (1, 3)], 3, 0) == 1
    assert choose_gutter([(1, 1), (3, 3)], 3, 2) == 3  # right of all boxes of both rows
    assert choose_gutter([(1, 1), (3, 3)], 3, 0) == 1  # but not far around to get back to the left
    assert choose_gutter([], 3, 2) == 2  # beside the column that it leads to


def test_an_edge_goes_straight_down_where_its_column_is_free() -> None:
    """A variant has no box of a step that it shares, and none of a filter that it does not use."""
    steps = ("a.one", "b.one", "c.one", "d.one")
    boxes = {key: Box(*key.split("/")) for key in ["x/a.one", "x/d.one", *(f"main/{step}" for step in steps)]}
    edges = [("x/a.one", "x/d.one"), ("main/a.one", "main/d.one"), ("main/b.one", "main/c.one")]
    grid = place_boxes(Graph(steps, ("main", "x"), boxes, tuple(edges)))
    assert grid.lanes.keys() == {("main/a.one", "main/d.one")}
