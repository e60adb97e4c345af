"""Where the boxes and edges of a picture are, in pixels: edges run between rows and between columns, and never through a box.

Every edge is made of horizontal lines in channels (between two rows) and vertical ones in gutters (between two columns); neither holds a
box. The edges of one box share their lines as far as they go together. Lines of different boxes get tracks of their own, so they cross
but never lie on each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crawl2llm.commands.plan.picture.graph import Edge, Graph
from crawl2llm.commands.plan.picture.grid import Grid, place_boxes
from crawl2llm.commands.plan.picture.tracks import Tracks

WIDTH, HEIGHT = 212.0, 62.0  # a box
LABEL = 112.0  # the names of the stages
MARGIN, TOP = 12.0, 12.0
GUTTER, VARIANT_GUTTER = 30.0, 44.0  # between columns, and between those of two variants, without lines
ROW_GAP, BAND_GAP = 24.0, 8.0  # between rows of a band, and between bands, without lines
PADDING = 11.0  # of a band, above and below its boxes
TRACK = 7.0  # between two lines
PORT = 14.0  # between two arrows into a box

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """Left, top, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Picture:
    """Everything with its place: boxes by key, bands by stage, the columns of a variant, and the corners of each edge. high: of a box."""

    width: float
    height: float
    high: float
    boxes: dict[str, Rect]
    bands: tuple[tuple[str, Rect], ...]
    variants: tuple[tuple[str, Rect], ...]
    edges: dict[Edge, tuple[Point, ...]]


def edge_kind(grid: Grid, edge: Edge) -> str:
    """How an edge goes: `beside` to the next box in the row, `row` to a later one there, `next` straight down, `far` along a gutter."""
    (row, column), (to_row, to_column) = grid.cells[edge[0]], grid.cells[edge[1]]
    if edge in grid.lanes:
        return "far"
    if row != to_row:
        return "next"
    between = {at for at in grid.cells.values() if at[0] == row and column < at[1] < to_column}
    return "beside" if to_column > column and not between else "row"


def draw_graph(graph: Graph, most: int | None = None, high: float = HEIGHT) -> Picture:
    """The picture of a graph with at most `most` steps of a variant side by side (None: as fits a screen), of boxes so high."""
    return Drawing(graph, place_boxes(graph, most), high).to_picture()


class Drawing:
    """The picture of a grid while it is made: gutters, then what is horizontal, then what is vertical."""

    def __init__(self, graph: Graph, grid: Grid, high: float) -> None:
        self.graph, self.grid, self.high = graph, grid, high
        self.kinds = {edge: edge_kind(grid, edge) for edge in graph.edges}
        self.rows = sum(rows for _, rows in grid.bands)
        self.gutters = [Tracks() for _ in range(len(grid.columns) + 1)]
        self.channels = [Tracks() for _ in range(self.rows + 1)]
        for edge, lane_numbers in self.gutter_edges():
            self.gutters[lane_numbers].add(edge[0], *self.gutter_span(edge))
        self.lane = [tracks.number_tracks() for tracks in self.gutters]
        self.column_left, self.gutter_middle = self.column_positions()
        self.ports = self.entry_points()
        for edge in graph.edges:
            for channel, *ends in self.horizontal_lines(edge):
                self.channels[int(channel)].add(edge[0], *ends)
        self.track_numbers = [tracks.number_tracks() for tracks in self.channels]
        self.row_top, self.channel_line = self.row_positions()

    def gutter_edges(self) -> Iterable[tuple[Edge, int]]:
        """The edges with a line in a gutter, and which gutter."""
        for edge, kind in self.kinds.items():
            if kind in ("far", "row"):
                yield edge, self.gutter_of(edge)

    def gutter_of(self, edge: Edge) -> int:
        """The gutter of an edge: right of the box that it leaves for a later one of the same row."""
        return self.grid.lanes[edge] if self.kinds[edge] == "far" else self.grid.cells[edge[0]][1] + 1

    def gutter_span(self, edge: Edge) -> tuple[int, int]:
        """From where to where an edge is in its gutter: channel n is 2n, and row n, below it, 2n + 1."""
        row, to_row = self.grid.cells[edge[0]][0], self.grid.cells[edge[1]][0]
        return (2 * row + 1, 2 * row) if self.kinds[edge] == "row" else (2 * row + 2, 2 * to_row)

    def column_positions(self) -> tuple[list[float], list[float]]:
        """(the left of each column, the middle of each gutter's lines)."""
        left, middle, x = [], [], MARGIN + LABEL
        for number, lane in enumerate(self.lane):
            around = self.grid.columns[max(0, number - 1) : number + 1]
            outer = number in (0, len(self.grid.columns))
            space = VARIANT_GUTTER if len(set(around)) > 1 else GUTTER
            if outer:
                space = GUTTER / 2
            lines = max(lane.values(), default=-1) + 1
            # The arrow of a neighbour, or the air at the sides, is there beside the lines.
            width = space + TRACK * max(0, lines - 1) + (TRACK if lines and not outer else 0)
            middle.append(x + width / 2 - TRACK * max(0, lines - 1) / 2)
            x += width
            left.append(x)
            x += WIDTH
        self.right = x - WIDTH
        return left[:-1], middle

    def centre_of(self, key: str) -> float:
        """The middle of a box, where its edges leave it downwards."""
        return self.column_left[self.grid.cells[key][1]] + WIDTH / 2

    def vertical_x(self, edge: Edge) -> float:
        """Where an edge comes from before it runs to the box that it leads to: its line in a gutter, or the box above."""
        if self.kinds[edge] == "next":
            return self.centre_of(edge[0])
        number = self.gutter_of(edge)
        return self.gutter_middle[number] + TRACK * self.lane[number][edge[0]]

    def entry_points(self) -> dict[Edge, float]:
        """Where each edge enters its box from above: in the middle from the box right above it, others beside that.

        The middle is where boxes above are left, so no other edge may come down there.
        """
        entry_x: dict[Edge, float] = {}
        edges_into: dict[str, list[Edge]] = {}
        for edge, kind in self.kinds.items():
            if kind != "beside":
                edges_into.setdefault(edge[1], []).append(edge)
        for key, edges in edges_into.items():
            middle = self.centre_of(key)
            from_left = sorted(
                (edge for edge in edges if self.vertical_x(edge) < middle), key=self.vertical_x, reverse=True
            )
            from_right = sorted((edge for edge in edges if self.vertical_x(edge) > middle), key=self.vertical_x)
            spacing = min(PORT, (WIDTH / 2 - 8) / max(len(from_left), len(from_right), 1))
            entry_x |= {edge: middle for edge in edges if self.vertical_x(edge) == middle}
            entry_x |= {edge: middle - spacing * number for number, edge in enumerate(from_left, start=1)}
            entry_x |= {edge: middle + spacing * number for number, edge in enumerate(from_right, start=1)}
        return entry_x

    def horizontal_lines(self, edge: Edge) -> list[tuple[float, float, float]]:
        """(channel, from, to) of each horizontal line of an edge that needs a track."""
        kind, row, to_row = self.kinds[edge], self.grid.cells[edge[0]][0], self.grid.cells[edge[1]][0]
        if kind == "beside":
            return []
        last = (to_row, self.vertical_x(edge), self.ports[edge])
        first = [(row + 1, self.centre_of(edge[0]), self.vertical_x(edge))] if kind == "far" else []
        return [line for line in (*first, last) if line[1] != line[2]]

    def row_positions(self) -> tuple[list[float], list[float]]:
        """(the top of each row, the first line of each channel); bands are put around their rows."""
        starts, row = set(), 0
        for _, rows in self.grid.bands:
            starts.add(row)
            row += rows
        top, line, y = [], [], TOP
        self.bands: list[tuple[float, float]] = []
        for number, track in enumerate(self.track_numbers):
            lines = max(track.values(), default=-1) + 1
            deep = TRACK * max(0, lines - 1)
            if number in starts or number == self.rows:  # between two bands, above the first or below the last
                y += PADDING if number else 0.0
                if number:
                    self.bands[-1] = (self.bands[-1][0], y)
                space = (BAND_GAP if 0 < number < self.rows else 0.0) + deep + (TRACK if lines else 0)
                line.append(y + (space - deep) / 2)
                y += space
                if number < self.rows:
                    self.bands.append((y, y))
                    y += PADDING
            else:
                space = ROW_GAP + deep
                line.append(y + (space - deep) / 2 - 3)  # more room below, for the arrows
                y += space
            top.append(y)
            y += self.high
        self.bottom = y - self.high
        return top[:-1], line

    def variant_rect(self, columns: Sequence[int]) -> Rect:
        """The rectangle of a variant's columns, over the whole height."""
        left = self.column_left[columns[0]]
        return Rect(left, 0, self.column_left[columns[-1]] + WIDTH - left, self.bottom)

    def corners_of(self, edge: Edge) -> tuple[Point, ...]:
        """The corners of an edge, from box to box."""
        source, kind = edge[0], self.kinds[edge]
        (row, column), (to_row, to_column) = self.grid.cells[source], self.grid.cells[edge[1]]
        middle = self.row_top[row] + self.high / 2
        side = self.column_left[column] + WIDTH
        if kind == "beside":
            return (side, middle), (self.column_left[to_column], middle)

        def channel_y(channel: int) -> float:
            return self.channel_line[channel] + TRACK * self.track_numbers[channel].get(source, 0)

        x, port = self.vertical_x(edge), self.ports[edge]
        low = self.centre_of(source), self.row_top[row] + self.high
        points = [(side, middle), (x, middle)] if kind == "row" else [low]
        if kind == "far":
            points += [(self.centre_of(source), channel_y(row + 1)), (x, channel_y(row + 1))]
        points += [(x, channel_y(to_row)), (port, channel_y(to_row)), (port, self.row_top[to_row])]
        return without_extra_corners(points)

    def to_picture(self) -> Picture:
        """All of it."""
        columns: dict[str, list[int]] = {}
        for number, variant in enumerate(self.grid.columns):
            columns.setdefault(variant, []).append(number)
        wide = self.right - MARGIN
        bands = zip(self.grid.bands, self.bands, strict=True)
        return Picture(
            width=self.right + MARGIN,
            height=self.bottom + TOP,
            high=self.high,
            boxes={
                key: Rect(self.column_left[column], self.row_top[row], WIDTH, self.high)
                for key, (row, column) in self.grid.cells.items()
            },
            bands=tuple((stage, Rect(MARGIN, top, wide, end - top)) for (stage, _), (top, end) in bands),
            variants=tuple((name, self.variant_rect(numbers)) for name, numbers in columns.items()),
            edges={edge: self.corners_of(edge) for edge in self.graph.edges},
        )


def without_extra_corners(points: list[Point]) -> tuple[Point, ...]:
    """Without corners that are none: twice the same point, or one on the way."""
    corners: list[Point] = []
    for point in points:
        if corners and point == corners[-1]:
            continue
        if len(corners) > 1 and (
            corners[-2][0] == corners[-1][0] == point[0] or corners[-2][1] == corners[-1][1] == point[1]
        ):
            corners.pop()
        corners.append(point)
    return tuple(corners)
