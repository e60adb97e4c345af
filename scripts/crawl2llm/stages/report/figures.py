"""Figures as SVG text that follows the page: colours are CSS variables, text is text, the bytes depend on the data alone.

Each figure carries a title and a description for screen readers. Colours are Okabe and Ito's, which people with colour
blindness can distinguish (https://jfly.uni-koeln.de/color/); every figure also reads without colour (order, labels, line style).
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot, ticker
from matplotlib.axes import Axes

from crawl2llm.stages.report.page import html_id

# Colour on paper → name of the CSS variable that replaces it on the page.
INK, MUTED, GRID = "#1d2430", "#5c6675", "#d8dde5"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#b0578d"
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple"}
WIDTH = 4.9  # inches; on a page 470 px wide, 9 pt text shows at 12 px
STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
}


def compact_number(value: float, _: Any = None) -> str:
    """A number for an axis: `1500` → `1.5k`, `2e6` → `2M`, `0.25` → `0.25`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def figure_svg(
    name: str, title: str, description: str, draw: Callable[[Axes], None], height: float = 2.7, width: float = WIDTH
) -> str:
    """The SVG of a figure that `draw` paints on one axes; `name` keeps its ids apart from those of other figures."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": name}):
        figure, axes = pyplot.subplots(figsize=(width, height))
        try:
            draw(axes)
            out = io.StringIO()
            figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        finally:
            pyplot.close(figure)
    return themed_svg(out.getvalue(), name, title, description)


def themed_svg(svg: str, name: str, title: str, description: str) -> str:
    """matplotlib's SVG as an inline element: colours as CSS variables, ids under `name`, title and description."""
    name = html_id(name)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable}, {colour})")
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans', sans-serif")
    title, description = html.escape(title), html.escape(description)
    head = f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{description}</desc>'
    opening = svg.index(">") + 1
    label = f' role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc">'
    return svg[: opening - 1] + label + head + svg[opening:]


def empty_figure(name: str) -> str:
    """A figure that says that its run measured nothing for it."""

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "this run measured nothing for this figure", ha="center", color=MUTED)

    return figure_svg(name, name, "This run measured nothing for this figure.", draw, height=1.5)


def line_chart(
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    curves: Sequence[tuple[str, Sequence[float], Sequence[float], str]],
    zero: bool = False,
) -> str | None:
    """Curves (label, x, y, colour) over one axis; None if no curve has a point.

    A curve of up to 40 points shows the points; validation-like curves differ by marker as well as by colour.
    """
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        return None

    def draw(axes: Axes) -> None:
        for (label, x, y, colour), style in zip(curves, ("-", "--", "-.", ":"), strict=False):
            marker = "o" if len(x) <= 40 else None
            axes.plot(x, y, style, color=colour, label=label, marker=marker, markersize=3.2)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
        axes.margins(x=0.03, y=0.08)
        if zero:
            axes.set_ylim(0, 1.08 * max(max(y) for _, _, y, _ in curves) or 1)
        if len(curves) > 1:
            axes.legend()

    ends = "; ".join(f"{label}: {y[0]:.4g} to {y[-1]:.4g}" for label, _, y, _ in curves)
    return figure_svg(name, title, f"{y_label} over {x_label}. {ends}.", draw)


def bar_chart(
    name: str,
    title: str,
    x_label: str,
    rows: Sequence[tuple[str, Sequence[float]]],
    parts: Sequence[tuple[str, str]],
    text: Callable[[Sequence[float]], str] | None = None,
) -> str | None:
    """Horizontal stacked bars, the first row on top: rows of (label, one value a part), parts of (label, colour)."""
    if not rows or not any(any(values) for _, values in rows):
        return None

    def draw(axes: Axes) -> None:
        left = [0.0] * len(rows)
        for index, (label, colour) in enumerate(parts):
            values = [row[1][index] for row in rows]
            axes.barh(range(len(rows)), values, 0.72, left=left, color=colour, label=label)
            left = [a + b for a, b in zip(left, values, strict=True)]
        if text:
            for at, (_, of_row) in enumerate(rows):
                axes.text(left[at] + max(left) * 0.012, at, text(of_row), va="center", fontsize=8, color=MUTED)
            axes.set_xlim(0, max(left) * 1.24)
        axes.set_yticks(range(len(rows)), [label for label, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        whole = all(float(value).is_integer() for _, values in rows for value in values)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=whole))
        if len(parts) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts))

    spoken = "; ".join(f"{label}: {', '.join(f'{value:.6g}' for value in values)}" for label, values in rows)
    height = 0.75 + (0.25 if len(parts) > 1 else 0) + len(rows) * 0.24
    description = f"Bars of {', '.join(label for label, _ in parts)} in {x_label}. {spoken}."
    return figure_svg(name, title, description, draw, height=max(height, 1.5))


def histogram(
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    parts: Sequence[tuple[str, str, Sequence[tuple[float, float, float]]]],
    threshold: tuple[float, str] | None = None,
    logarithmic: bool = False,
) -> str | None:
    """Stacked bars over bins: parts of (label, colour, bins of (low, high, count)), with an optional labelled threshold.

    None if there is nothing to show.
    """
    parts = [part for part in parts if any(count for *_, count in part[2])]
    if not parts:
        return None
    bins = [bin_ for *_, part in parts for bin_ in part]

    def draw(axes: Axes) -> None:
        lows = [low for low, _, _ in bins]
        base: dict[float, float] = {}
        for label, colour, part in parts:
            at = [low for low, _, _ in part]
            axes.bar(
                at,
                [count for *_, count in part],
                [high - low for low, high, _ in part],
                bottom=[base.get(low, 0.0) for low in at],
                align="edge",
                color=colour,
                label=label,
                edgecolor=GRID,
                linewidth=0.5,
            )
            base |= {low: base.get(low, 0.0) + count for low, _, count in part}
        axes.set(xlabel=x_label, ylabel=y_label)
        if logarithmic:
            edges = sorted({*lows, max(high for _, high, _ in bins)})
            axes.set_xscale("log")
            axes.set_xticks(edges[:: len(edges) // 6 + 1])
            axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        else:
            axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
            axes.xaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(compact_number))
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        axes.grid(axis="x", visible=False)
        if threshold:
            axes.axvline(threshold[0], color=ORANGE, linestyle="--", label=threshold[1])
        if threshold or len(parts) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

    total = sum(count for *_, count in bins)
    low, high, peak = max(bins, key=lambda row: row[2])
    description = f"{y_label} by {x_label}: {total:,.0f} in all, most ({peak:,.0f}) between {low:.4g} and {high:.4g}."
    return figure_svg(name, title, description + (f" {threshold[1]}." if threshold else ""), draw, height=2.5)
