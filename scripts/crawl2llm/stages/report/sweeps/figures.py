"""The figures of the page over all variants, as SVG: differences with noise bars, parallel coordinates, curves, the scaling law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes

from crawl2llm.stages.report.figures import BLUE, GREEN, GRID, INK, MUTED, ORANGE, PURPLE, compact_number, figure_svg
from crawl2llm.stages.report.sweeps.scaling import Law

MOST = 40  # settings of a figure; the page's tables have all
VERDICT_COLOURS = {"better": BLUE, "worse": ORANGE, "unclear": MUTED, "unknown": PURPLE}
MARKERS = {"better": "<", "worse": ">", "unclear": "o", "unknown": "x"}
WIDE = 7.2  # inches
Row = dict[str, Any]


def clip_name(text: str, most: int = 30) -> str:
    """A name that fits beside an axis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line_format(name: str, is_best: bool, is_main: bool, widths: tuple[float, float]) -> dict[str, Any]:
    """The keywords of `Axes.plot` for a setting's line, of which the best and main stand out. widths: of these two."""
    if is_best:
        return {"color": BLUE, "linewidth": widths[0], "linestyle": "-", "label": f"best: {clip_name(name, 40)}"}
    if is_main:
        return {"color": ORANGE, "linewidth": widths[1], "linestyle": "--", "label": "main"}
    return {"color": MUTED, "linewidth": 0.8, "linestyle": "-"}


def differences_figure(names: Sequence[str], rows: Sequence[Row], unit: str) -> str | None:
    """Each setting's difference to main, the best on top: a thick bar of its own interval, a thin one of all together.

    None without rows.
    """
    if not rows:
        return None
    shown_rows = sorted(rows, key=lambda row: row["difference"])[:MOST]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=INK, linewidth=1)
        for place, row in enumerate(shown_rows):
            colour, style = VERDICT_COLOURS[row["verdict"]], MARKERS[row["verdict"]]
            if "low_of_all" in row:
                axes.plot([row["low_of_all"], row["high_of_all"]], [place, place], color=colour, linewidth=1)
            axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=3.2, solid_capstyle="butt")
            axes.plot(row["difference"], place, style, color=colour, markersize=6, markeredgecolor=colour)
        axes.set_yticks(range(len(shown_rows)), [clip_name(names[row["second"]]) for row in shown_rows])
        axes.set_ylim(len(shown_rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"difference to main, {unit} (left of the line is better)")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))

    spoken = "; ".join(
        f"{names[row['second']]}: {row['difference']:+.4g}, from {row['low']:+.4g} to {row['high']:+.4g}, {row['verdict']}"
        for row in shown_rows
    )
    height = 0.75 + 0.27 * len(shown_rows)
    return figure_svg(
        "differences", "Differences to main", f"In {unit}. {spoken}.", draw, height=max(height, 1.4), width=WIDE
    )


def _axis_places(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """Where values lie on an axis from 0 to 1, and the marks beside it: numbers by size (by their logarithm over a factor of 8 or more),
    else each value at a place of its own.
    """
    distinct = list(dict.fromkeys(map(repr, values)))
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numbers and len(distinct) > 1:
        low, high = min(values), max(values)
        scale = math.log if low > 0 and high / low >= 8 else float
        at = [(scale(value) - scale(low)) / (scale(high) - scale(low)) for value in values]
        marks: dict[str, tuple[float, str]] = {}
        for place, value in sorted(zip(at, values, strict=True)):
            if all(abs(place - mark_place) > 0.07 for mark_place, _ in marks.values()):
                marks[repr(value)] = (place, f"{value:.4g}")
        return at, list(marks.values())
    ranks = {value: place / max(1, len(distinct) - 1) for place, value in enumerate(distinct)}
    texts = {value: _value_text(raw) for value, raw in zip(map(repr, values), values, strict=True)}
    return [ranks[repr(value)] for value in values], [(ranks[value], texts[value]) for value in distinct]


def _value_text(value: Any) -> str:
    if value is None:
        return "null"
    return clip_name(", ".join(map(str, value)) if isinstance(value, list) else str(value), 20)


def parallel_figure(keys: Sequence[str], rows: Sequence[tuple[str, Sequence[Any], float]], unit: str) -> str | None:
    """A line for each setting over an axis for each key, and the measure at the right, the best on top.

    rows: (name, its value of each key, the measure; less is better), main first. None without keys or with one setting alone.
    """
    if not keys or len(rows) < 2:
        return None
    shown_rows = [rows[0], *sorted(rows[1:], key=lambda row: row[2])[:MOST]]
    columns = [_axis_places([row[1][place] for row in shown_rows]) for place in range(len(keys))]
    values = [row[2] for row in shown_rows]
    low, high = min(values), max(values)
    last = [1 - (value - low) / (high - low) if high > low else 0.5 for value in values]
    best = values.index(low)

    def draw(axes: Axes) -> None:
        order = sorted(range(len(shown_rows)), key=lambda place: (place == best, place == 0))
        for place in order:
            heights = [*(at[place] for at, _ in columns), last[place]]
            line_format = _line_format(shown_rows[place][0], place == best, place == 0, (2.4, 2.0))
            axes.plot(range(len(heights)), heights, marker="o", markersize=3, **line_format)
        for column, (_, marks) in enumerate([*columns, ([], [(1.0, f"{low:.4g}"), (0.0, f"{high:.4g}")])]):
            axes.axvline(column, color=GRID, linewidth=1)
            for at_height, word in marks:
                axes.annotate(
                    word, (column, at_height), xytext=(4, 4), textcoords="offset points", fontsize=8, color=MUTED
                )
        heads = [f"{key.rpartition('.')[2]}" for key in keys]
        axes.set_xticks(range(len(keys) + 1), [*(clip_name(head, 22) for head in heads), unit])
        axes.tick_params(axis="x", labelcolor=INK, labelsize=8)
        axes.set_yticks([])
        axes.set_xlim(-0.15, len(keys) + 0.35)
        axes.set_ylim(-0.08, 1.14)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    spoken = "; ".join(
        f"{name}: {', '.join(f'{key} {_value_text(value)}' for key, value in zip(keys, setting_values, strict=True))}: {measure:.4g}"
        for name, setting_values, measure in shown_rows
    )
    return figure_svg(
        "parallel", "Settings and their results", f"{unit} of each setting. {spoken}.", draw, height=3.4, width=WIDE
    )


def curves_figure(rows: Sequence[tuple[str, Sequence[float], Sequence[float]]], best: str, y_label: str) -> str | None:
    """Bits per byte by tokens: rows of (name, tokens, bits), main first; the best and main in colour. None with fewer than two points."""
    shown_rows = [row for row in rows if len(row[1]) > 1][: MOST + 1]
    if not shown_rows:
        return None

    def draw(axes: Axes) -> None:
        for name, x, y in sorted(shown_rows, key=lambda row: (row[0] == best, row[0] == "main")):
            marker = "o" if len(x) <= 40 else None
            line_format = _line_format(name, name == best, name == "main", (2.2, 1.8))
            axes.plot(x, y, marker=marker, markersize=2.8, **line_format)
        axes.set(xlabel="tokens trained", ylabel=y_label)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
        if axes.get_legend_handles_labels()[0]:
            axes.legend()

    ends = "; ".join(f"{name}: {y[0]:.4g} to {y[-1]:.4g}" for name, _, y in shown_rows)
    return figure_svg(
        "curves", "Bits per byte by tokens", f"{y_label} over tokens trained. {ends}.", draw, width=WIDE, height=3.2
    )


def scaling_figure(points: Sequence[Sequence[float]], law: Law) -> str:
    """Points of (parameters, tokens, loss), and the law: by tokens a line for each size, or by parameters where tokens do not vary."""
    by_tokens = law.B is not None
    along, other = (1, 0) if by_tokens else (0, 1)
    groups = sorted({point[other] for point in points})
    low, high = min(point[along] for point in points), max(point[along] for point in points)
    grid = [low * (high / low) ** (step / 60) for step in range(61)]

    def draw(axes: Axes) -> None:
        for place, group in enumerate(groups):
            colour = (BLUE, ORANGE, GREEN, PURPLE)[place % 4]
            group_points = [point for point in points if point[other] == group]
            axes.plot(
                [p[along] for p in group_points],
                [p[2] for p in group_points],
                "osD^"[place % 4],
                color=colour,
                markersize=4,
            )
            pairs = [(group, x) if by_tokens else (x, group) for x in grid]
            word = f"{compact_number(group)} {'parameters' if by_tokens else 'tokens'}"
            axes.plot(
                grid,
                [float(law.loss(n, d)) for n, d in pairs],
                ("-", "--", "-.", ":")[place % 4],
                color=colour,
                label=word,
            )
        axes.set_xscale("log")
        axes.set(xlabel="tokens trained" if by_tokens else "parameters", ylabel="bits per byte")
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.legend()

    spoken = "; ".join(f"{n:.3g} parameters, {d:.3g} tokens: {loss:.4g}" for n, d, loss in points[:MOST])
    return figure_svg("scaling", "The scaling law", f"Bits per byte. {spoken}.", draw, width=WIDE, height=3.2)
