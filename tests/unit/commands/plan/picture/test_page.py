"""The page of a plan: complete in one file, any text is only text, and usable in a real browser by keys, on a phone and in the dark."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.commands.plan.picture import page
from crawl2llm.commands.plan.picture.graph import MISSING, RUNS, Box, Graph
from tests.unit.commands.plan.picture.browser import BROWSER, Page
from tests.unit.commands.plan.picture.test_svg import BAD, hostile
from tests.unit.commands.plan.picture.workflows import workflow

SUMMARY = page.Summary("Plan of run", "/data/run", 13, "3m04s", "0.40", "estimate: 3m04s")
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine"
)


class Elements(HTMLParser):
    """Tags, attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


def test_one_file_without_addresses() -> None:
    found = Elements(page.render_page(workflow(25, 3), SUMMARY))
    links = {value for name, value in found.attributes if name in ("href", "src", "xlink:href", "action")}
    assert links == {"data:,", "#first"}
    assert not {"img", "iframe", "object", "embed"} & set(found.tags)
    assert any(
        value and value.startswith("default-src 'none'") for name, value in found.attributes if name == "content"
    )


def test_any_text_is_only_text() -> None:
    text = page.render_page(hostile(), page.Summary(BAD, BAD, 1, BAD, BAD, BAD))
    text.encode()
    found = Elements(text)
    assert len(found.scripts) == 2 and found.tags.count("script") == 2
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    boxes = json.loads(found.scripts[0])["boxes"]
    assert any(box["changes"] == [f"key {BAD}"] for box in boxes.values())


def test_what_the_reasons_name_is_not_said_twice() -> None:
    changes = ("threshold 0.4 → 0.7", "code of scripts/a.py")
    assert page.reasons_tell_changes(
        Box("main", "a.b", RUNS, reasons=(("threshold 0.4 → 0.7 and code of scripts/a.py", 1),), changes=changes)
    )
    assert not page.reasons_tell_changes(
        Box("main", "a.b", RUNS, reasons=(("threshold 0.4 → 0.7", 1),), changes=changes)
    )


def test_totals() -> None:
    assert SUMMARY.summary_line == "13 tasks to run, about 3m04s and 0.40 GPU-hours"
    assert page.Summary("", "", 1, "?", "", "").summary_line == "1 task to run, not measured yet"
    nothing = page.Summary("t", "f", 0, "", "", "nothing to do")
    assert nothing.summary_line.startswith("nothing to do") and ">estimate<" not in page.render_page(
        workflow(5), nothing
    )


def test_a_phone_has_one_column_where_that_is_narrower() -> None:
    assert list(page.page_layouts(workflow(25))) == ["wide", "wide-all", "tall", "tall-all"]
    assert list(page.page_layouts(workflow(60, 5))) == ["wide", "wide-all"]
    assert page.page_layouts(workflow(25))["tall"][1].width <= 450


@pytest.fixture
def seen(opened: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """seen(graph, look, …): the page of a graph in a browser, and what `look(page)` gives of it."""

    def look_at(graph: Graph, look: Callable[[Page], Awaitable[Any]], **window: Any) -> Any:
        path = tmp_path / "plan.html"
        path.write_text(page.render_page(graph, SUMMARY), encoding="utf-8")
        return opened(path, look, **window)

    return look_at


STEPS = ("a.one", "a.two", "b.one", "b.two")


def small() -> Graph:
    """a.one → a.two → b.one → b.two, and a.one → b.two."""
    states = {"a.one": "up to date", "a.two": "up to date", "b.one": RUNS, "b.two": MISSING}
    change = "threshold 0.4 → 0.7"
    boxes = [
        Box("main", step, state, 4, 4, ((change, 4),) if state == RUNS else (), (change,))
        for step, state in states.items()
    ]
    pairs = [("a.one", "a.two"), ("a.two", "b.one"), ("b.one", "b.two"), ("a.one", "b.two")]
    edges = tuple((f"main/{one}", f"main/{other}") for one, other in pairs)
    return Graph(STEPS, ("main",), {box.key: box for box in boxes}, edges)


ACTIVE = "document.activeElement.querySelector?.('.name')?.textContent"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


@needs_browser
def test_walking_by_keys(seen: Callable[..., Any]) -> None:
    async def look(opened: Page) -> None:
        assert await opened.value("document.querySelectorAll('.box[tabindex=\"0\"]').length") == 1
        for _ in range(20):  # Tab leads to the box that would run first
            await opened.press("Tab")
            if await opened.value(ACTIVE):
                break
        assert await opened.value(ACTIVE) == "b.one"
        walked = []
        for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowDown", "End", "Home"):
            await opened.press(key)
            walked.append(await opened.value(ACTIVE))
        assert walked == ["b.two", "a.two", "a.one", "a.one", "b.one", "b.two", "a.one"]
        frame = "getComputedStyle(document.activeElement.querySelector('.frame'))"
        assert await opened.value(f"{frame}.strokeWidth") == "3px", "the focus is seen"

    seen(small(), look)


@needs_browser
def test_details_of_a_step(seen: Callable[..., Any]) -> None:
    async def look(opened: Page) -> None:
        await opened.value("document.querySelector('.box[tabindex=\"0\"]').focus()")
        await opened.press("Enter")
        said = await opened.value("document.getElementById('details').innerText")
        for words in ("b.one", "4 tasks", "threshold 0.4 → 0.7 (4 tasks)", "a.two", "b.two"):
            assert words in said
        near = "[...document.querySelectorAll('.near .name')].map((text) => text.textContent).join()"
        assert await opened.value(near) == "a.two,b.two"
        assert await opened.value("document.querySelectorAll('.shown .edge.on').length") == 2
        await opened.press("ArrowRight")  # the details follow
        assert (await opened.value("document.querySelector('#details h2').textContent")) == "b.two"
        assert "a.one" in await opened.value("document.getElementById('details').innerText"), (
            "an edge that is not drawn"
        )
        await opened.value("document.querySelector('#details li button').click()")
        assert await opened.value(ACTIVE) in ("b.one", "a.one")
        await opened.press("Escape")
        assert await opened.value("document.getElementById('details').hidden")
        assert await opened.value(ACTIVE), "the focus is back on a step"
        await opened.value("document.querySelector('.box').dispatchEvent(new MouseEvent('click'))")
        assert await opened.value("document.querySelector('#details h2').textContent") == "a.one"

    seen(small(), look)


@needs_browser
def test_filter_edges_and_zoom(seen: Callable[..., Any]) -> None:
    left = "[...document.querySelectorAll('.box:not(.hidden) .name')].map((text) => text.textContent).join()"
    drawn = "document.querySelectorAll('.layer.shown .edge').length"
    wide = "document.getElementById('plan').getBoundingClientRect().width"

    async def look(opened: Page) -> None:
        await opened.press("/", *"b.")
        assert await opened.value(left) == "b.one,b.two"
        assert await opened.value("document.getElementById('count').textContent") == "2 of 4 steps"
        await opened.value("document.querySelector('.state.runs').click()")
        assert await opened.value(left) == "b.one"
        await opened.press("Escape")
        assert await opened.value(left) == "a.one,a.two,b.one,b.two"
        await opened.value("document.activeElement.blur()")
        assert await opened.value(drawn) == 3
        await opened.press("e")
        assert await opened.value(drawn) == 4
        before = await opened.value(wide)
        await opened.press("+")
        assert await opened.value(wide) > before
        await opened.press("0")
        assert await opened.value(wide) == before

    seen(small(), look)


@needs_browser
@pytest.mark.parametrize("graph", [workflow(25), workflow(60, 5)], ids=["25 steps", "60 steps, 5 variants"])
def test_a_phone(seen: Callable[..., Any], graph: Graph) -> None:
    async def look(opened: Page) -> None:
        assert await opened.value(OVERFLOW) <= 0
        size = "getComputedStyle(document.querySelector('.name')).fontSize"
        assert float((await opened.value(size)).removesuffix("px")) >= 12
        await opened.value("document.querySelector('.box').dispatchEvent(new MouseEvent('click'))")
        sheet = json.loads(
            await opened.value("JSON.stringify(document.getElementById('details').getBoundingClientRect())")
        )
        assert sheet["left"] == 0 and sheet["width"] == 390 and round(sheet["bottom"]) == 844 and sheet["top"] > 300
        box = json.loads(
            await opened.value("JSON.stringify(document.querySelector('.chosen').getBoundingClientRect())")
        )
        assert box["top"] >= 0 and box["bottom"] <= sheet["top"], "what was tapped is not behind the sheet"
        assert await opened.value(OVERFLOW) <= 0

    seen(graph, look, width=390, height=844, mobile=True)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(seen: Callable[..., Any], dark: bool) -> None:
    async def look(opened: Page) -> list[int]:
        colours = [
            await opened.value("getComputedStyle(document.body).backgroundColor"),
            await opened.value("getComputedStyle(document.querySelector('.fresh .frame')).fill"),
        ]
        return [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]

    lights = seen(small(), look, dark=dark)
    assert all(light < 200 for light in lights) if dark else all(light > 700 for light in lights)


@needs_browser
def test_no_text_leaves_its_box(seen: Callable[..., Any]) -> None:
    """Measured by the browser, with this machine's font; at 60 steps and 5 variants, and with texts that are too long."""
    wide = """JSON.stringify([...document.querySelectorAll('.box')].flatMap((box) => {
      const frame = box.querySelector('.frame').getBoundingClientRect();
      return [...box.querySelectorAll('text')].map((text) => text.getBoundingClientRect())
        .filter((text) => text.right > frame.right - 4 || text.left < frame.left || text.bottom > frame.bottom).length;
    }))"""
    side = """JSON.stringify([...document.querySelectorAll('.box')].map((box) => {
      const [facts, cost] = ['.facts', '.cost'].map((name) => box.querySelector(name)?.getBoundingClientRect());
      return facts && cost && facts.right > cost.left ? box.textContent : 0;
    }))"""

    async def look(opened: Page) -> None:
        assert not any(json.loads(await opened.value(wide)))
        assert not any(json.loads(await opened.value(side)))

    graph = workflow(60, 5)
    boxes = {
        key: Box(
            box.variant, box.step, box.state, 1_000, 999 if box.tasks_to_run else 0,
            (("other settings or code above: " * 9, 3),) * bool(box.tasks_to_run), (), (),
            "123d23h" if box.tasks_to_run else "", "1,234.56" if box.tasks_to_run else "",
        )
        for key, box in graph.boxes.items()
    }  # fmt: skip
    seen(Graph(graph.steps, graph.variants, boxes, graph.edges), look)


@needs_browser
def test_any_text_in_a_browser(seen: Callable[..., Any]) -> None:
    async def look(opened: Page) -> None:
        for number in range(2):
            await opened.value(f"document.querySelectorAll('.box')[{number}].dispatchEvent(new MouseEvent('click'))")
        assert await opened.value("document.scripts.length") == 2
        assert "<script>alert" in await opened.value("document.getElementById('details').textContent")

    seen(hostile(), look)
