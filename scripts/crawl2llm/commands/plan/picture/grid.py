"""Which row and column each box of a picture gets, and between which columns each long edge runs.

A stage is a band of one row or more, and its steps are read like text: from left to right, then the next row. A step has the same row in
every variant, and a variant has columns of its own. The layered layout of graphlay puts the steps of a row in an order with few crossings
and says on which side of the boxes of a row an edge passes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from crawl2llm.chain.step import stage_of
from crawl2llm.commands.plan.picture.graph import Edge, Graph

COLUMNS = 6  # at most, where a stage may take fewer: with the labels about as wide as a screen
MANY_EDGES = 100  # above, graphlay's search for fewer crossings takes seconds


@dataclass(frozen=True)
class Grid:
    """bands: (stage, rows) from top to bottom; columns: the variant of each; cells: key → (row, column).

    lanes: the edges that pass a row beside its boxes, and the gutter in which each does; gutter n is left of column n.
    """

    bands: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    cells: dict[str, tuple[int, int]]
    lanes: dict[Edge, int]


def steps_by_stage(graph: Graph) -> dict[str, list[str]]:
    """Stage → its steps, each after those of the stage that it reads from."""
    pairs = {(graph.boxes[source].step, graph.boxes[target].step) for source, target in graph.edges}
    steps_of: dict[str, list[str]] = {}
    for step in graph.steps:
        steps_of.setdefault(stage_of(step), []).append(step)
    return {
        stage: sorted(stage_steps, key=step_depths(stage_steps, pairs).__getitem__)
        for stage, stage_steps in steps_of.items()
    }


def step_depths(steps: list[str], pairs: Iterable[Edge]) -> dict[str, int]:
    """Step → how many of these steps are above it, one reading from the next."""
    needs = {step: [source for source, target in pairs if target == step and source in steps] for step in steps}
    depth_of = dict.fromkeys(steps, 0)
    for _ in steps:  # the longest way has no more steps than there are
        depth_of = {step: max((depth_of[near] + 1 for near in needs[step]), default=0) for step in steps}
    return depth_of


def split_into_rows(steps: list[str], most: int) -> list[list[str]]:
    """Rows of about the same length, of `most` steps at most."""
    rows = -(-len(steps) // most)
    row_length = -(-len(steps) // rows)
    return [steps[start : start + row_length] for start in range(0, len(steps), row_length)]


def least_columns(graph: Graph, most: int) -> int:
    """How many columns a picture has at least: the sum over variants of the boxes in their longest row."""
    used = {(box.variant, box.step) for box in graph.boxes.values()}
    rows = [row for steps in steps_by_stage(graph).values() for row in split_into_rows(steps, most)]
    return sum(max(sum((variant, step) in used for step in row) for row in rows) for variant in graph.variants if rows)


def layered_layout(
    rows: list[list[str]], pairs: Iterable[Edge]
) -> tuple[dict[str, float], dict[Edge, dict[int, float]]]:
    """graphlay's layout with these rows as layers: step → how far to the right, and edge → where it passes each row on its way.

    Edges within a row are left out: a layer has none.
    """
    import graphlay

    layer = {step: row for row, row_steps in enumerate(rows) for step in row_steps}
    edges = sorted(pair for pair in pairs if layer[pair[0]] != layer[pair[1]])
    layout_graph = graphlay.Graph()
    for number, (step, row) in enumerate(layer.items()):
        layout_graph.node(step, label=str(number), rank={"fixed": row})  # it takes no label that is not UTF-8
    for pair in edges:
        layout_graph.edge(*pair)
    effort = "fast" if len(edges) > MANY_EDGES else "balanced"
    options = {"direction": "topbottom", "routing": {"merge_edges": "forks"}, "effort": effort}
    drawing = graphlay.layout(layout_graph, options=options)
    at = drawing.positions()
    middle = [at[row_steps[0]][1] for row_steps in rows]
    passes = {}
    for (source, target), route in zip(edges, drawing.edges, strict=True):
        first, last = sorted((layer[source], layer[target]))
        points = [(point["x"], point["y"]) for point in route["points"]]
        passes[source, target] = {row: crossing_x(points, middle[row]) for row in range(first + 1, last)}
    return {step: x for step, (x, _) in at.items()}, passes


def crossing_x(points: list[tuple[float, float]], y: float) -> float:
    """Where a line of corners first comes to a height."""
    return next(x for (x, above), (_, below) in pairwise(points) if min(above, below) <= y <= max(above, below))


def choose_gutter(passed: list[tuple[int, int]], columns: int, near: int) -> int:
    """The gutter of an edge, one for all rows that it passes, if they are free of boxes anyway: a straight line.

    passed: for each row, how many boxes graphlay has left of the edge, and how many there are. near: the column that it leads to.
    """

    def gutter_cost(place: int) -> int:
        distance = sum(max(0, left - place) if left == boxes else abs(left - place) for left, boxes in passed)
        return distance + abs(2 * place - (2 * near + 1))  # half columns to where it leads

    return min(range(columns + 1), key=gutter_cost)


def common_layout(graph: Graph, most: int) -> tuple[list[tuple[str, int]], dict[str, tuple[int, int]], dict[Edge, int]]:
    """(bands, step → (row, column), pair of steps → gutter) of the steps of all variants together."""
    bands, rows = [], []
    for stage, steps in steps_by_stage(graph).items():
        stage_rows = split_into_rows(steps, most)
        bands.append((stage, len(stage_rows)))
        rows += stage_rows
    pairs = {(graph.boxes[source].step, graph.boxes[target].step) for source, target in graph.edges}
    right, passes = layered_layout(rows, pairs)
    for row in rows:  # graphlay's order, but a step never stands left of one that it reads from
        depth = step_depths(row, pairs)
        row.sort(key=lambda step: (depth[step], right[step]))
    cells = {step: (row, column) for row, row_steps in enumerate(rows) for column, step in enumerate(row_steps)}
    columns = max(map(len, rows))
    lanes = {}
    for source, target in pairs:
        x_by_row = passes.get((source, target), {})
        passed = [(sum(right[step] < x for step in rows[row]), len(rows[row])) for row, x in x_by_row.items()]
        lanes[source, target] = choose_gutter(passed, columns, cells[target][1])
    return bands, cells, lanes


def place_boxes(graph: Graph, most: int | None = None) -> Grid:
    """The grid of a picture with at most `most` steps of a variant side by side; None: as many as COLUMNS allows, at least one."""
    if most is None:
        wide = max((len(steps) for steps in steps_by_stage(graph).values()), default=1)
        grids = (place_boxes(graph, number) for number in range(wide, 0, -1) if least_columns(graph, number) <= COLUMNS)
        fitting = (grid for grid in grids if len(grid.columns) <= COLUMNS)
        return next(fitting, None) or place_boxes(graph, 1)
    bands, cells, lanes = common_layout(graph, most)
    columns: list[str] = []
    first: dict[str, int] = {}  # variant → its first column
    template_columns: dict[str, list[int]] = {}  # variant → the columns of the template that it has
    for variant in graph.variants:
        template_columns[variant] = sorted(
            {cells[box.step][1] for box in graph.boxes.values() if box.variant == variant}
        )
        first[variant] = len(columns)
        columns += [variant] * len(template_columns[variant])

    def cell_of(key: str) -> tuple[int, int]:
        box = graph.boxes[key]
        row, column = cells[box.step]
        return row, first[box.variant] + template_columns[box.variant].index(column)

    cell_by_key = {key: cell_of(key) for key in graph.boxes}
    gutter_by_edge = {}
    occupied = set(cell_by_key.values())
    for source, target in graph.edges:
        box, (row, column), (to_row, to_column) = graph.boxes[target], cell_by_key[source], cell_by_key[target]
        free = column == to_column and not any((between, column) in occupied for between in range(row + 1, to_row))
        if to_row < row or (to_row > row + 1 and not free):
            lane = lanes.get((graph.boxes[source].step, box.step), cells[box.step][1])
            gutter_by_edge[source, target] = first[box.variant] + sum(
                mine < lane for mine in template_columns[box.variant]
            )
    return Grid(tuple(bands), tuple(columns), cell_by_key, gutter_by_edge)
