"""A picture as SVG: well-formed with any text, readable in both colour schemes, without colours too."""

from __future__ import annotations

import re

import pytest
from defusedxml import ElementTree as Xml
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.plan.picture import svg
from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, STATES, UP_TO_DATE, Box, Graph
from crawl2llm.commands.plan.picture.routes import draw_graph
from tests.unit.commands.plan.picture.workflows import workflow

BAD = """<script>alert("1")</script> & ' \x1b \udcff ]]> -->"""
SPACE = "{http://www.w3.org/2000/svg}"


def hostile() -> Graph:
    """Every text that a config or a path decides holds what would end an element or an attribute."""
    box = Box(
        f"v{BAD}", f"a.{BAD}", RUNS, 3, 2, ((f"the file {BAD}", 2), ("x", 1)), (f"key {BAD}",), (f"other {BAD}",), "1s", BAD
    )  # fmt: skip
    other = Box("main", f"a{BAD}.one", MISSING, 1, 1)
    return Graph(
        (other.step, box.step), ("main", box.variant), {other.key: other, box.key: box}, ((other.key, box.key),)
    )


def texts(picture: str) -> list[str]:
    return ["".join(element.itertext()) for element in Xml.fromstring(picture).iter(f"{SPACE}text")]


def test_any_text_is_only_text() -> None:
    graph = hostile()
    picture = svg.standalone_svg(graph, draw_graph(graph), BAD, BAD)
    root = Xml.fromstring(picture)
    assert not list(root.iter(f"{SPACE}script")) and "<script" not in picture
    assert any(BAD[:20] in text for text in texts(picture))
    picture.encode()


@given(st.text())
def test_any_unicode_makes_well_formed_xml(text: str) -> None:
    root = Xml.fromstring(f'<a b="{svg.escape_text(text)}">{svg.escape_text(text)}</a>')
    assert list(root) == []


def test_the_same_twice() -> None:
    graph = workflow(25, 3)
    assert svg.standalone_svg(graph, draw_graph(graph), "t", "n") == svg.standalone_svg(
        graph, draw_graph(graph), "t", "n"
    )


def test_every_state_has_a_class_a_sign_and_words() -> None:
    assert STATES.keys() == svg.SIGNS.keys() == svg.CLASSES.keys() - {""}
    assert len(set(svg.SIGNS.values())) == len(STATES)
    boxes = [Box("main", f"a.{number}", state) for number, state in enumerate(STATES)]
    graph = Graph(tuple(box.step for box in boxes), ("main",), {box.key: box for box in boxes}, ())
    said = texts(svg.standalone_svg(graph, draw_graph(graph), "t", "n"))
    assert set(STATES.values()) <= set(said), "the legend"


def test_what_a_box_says() -> None:
    box = Box(
        "main",
        "a.one",
        RUNS,
        4,
        2,
        (("threshold 0.4 → 0.7; needs b.two, which runs again", 2),),
        (),
        (),
        "1m20s",
        "0.40",
    )
    assert svg.amount_text(box) == "2 of 4 tasks" and svg.cost_text(box) == "1m20s · 0.40 GPU-h"
    assert svg.reason_text(box) == "threshold 0.4 → 0.7; needs b.two"
    assert svg.box_description(box) == (
        "a.one: will run; 2 of 4 tasks; threshold 0.4 → 0.7; needs b.two, which runs again; about 1m20s · 0.40 GPU-h"
    )
    assert (
        svg.reason_text(Box("main", "a", UP_TO_DATE)) == "up to date"
        and svg.amount_text(Box("main", "a", LEFT_OUT, 1)) == "1 task"
    )
    missing = Box("hot", "a", MISSING, reasons=(("not made yet", 1),), differs=("rate 1 → 2", "steps 3 → 4"))
    assert svg.reason_text(missing) == "rate 1 → 2 (+1)" and "not made yet" in svg.box_description(missing)


def test_long_texts_are_cut_off() -> None:
    assert svg.fit_text("short", 11, 100) == "short"
    assert svg.fit_text("x" * 99, 10, 100) == "x" * 14 + "…"
    assert svg.fit_text("漢" * 99, 10, 100) == "漢" * 9 + "…"
    graph = hostile()
    assert all(len(text) < 60 for text in texts(svg.standalone_svg(graph, draw_graph(graph), "t", "")))


def test_round_corners_stay_between_the_points() -> None:
    points = ((0.0, 0.0), (0.0, 4.0), (50.0, 4.0), (50.0, 40.0))
    assert svg.rounded_path(points) == "M0 0L0 2Q0 4 2 4L44 4Q50 4 50 10L50 40"
    assert svg.rounded_path(points[:2]) == "M0 0L0 4"


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_is_that_of_aa(scheme: int) -> None:
    style = svg.STYLE.read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))
    grounds = [colours[name] for name in ("ground", "band", "card", "runs-card", "missing-card")]
    for name in ("ink", "muted"):
        assert min(contrast(colours[name], ground) for ground in grounds) >= 4.5, name
    for name in ("runs", "missing", "fresh", "left", "focus"):  # signs and frames
        assert min(contrast(colours[name], colours[ground]) for ground in ("band", "card")) >= 3, name
    for name in ("runs", "missing"):
        assert contrast(colours["on"], colours[name]) >= 3, name
    assert min(contrast(colours["edge"], colours[ground]) for ground in ("ground", "band")) >= 3
    assert contrast(colours["runs"], colours["ground"]) >= 4.5, "links"
