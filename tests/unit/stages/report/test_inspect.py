"""The pages of report.inspect: complete, bounded, inert, and usable in a real browser by keys, on a phone and in the dark."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import spans
from crawl2llm.formats.documents import VERDICT, Writer
from crawl2llm.stages.report import excerpts, inspect_page
from crawl2llm.stages.report.inspect import main
from tests.unit import making
from tests.unit.commands.plan.picture.browser import BROWSER
from tests.unit.commands.plan.picture.browser import Page as Opened
from tests.unit.stages.report.conftest import HOSTILE
from tests.unit.stages.report.test_render import Page

SHARDS = ("00000", "00001")
FILTERS = ["lines", "dedup"]
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome here")
Row = dict[str, Any]


def table(
    folder: Path, step: str, shard: str, schema: Any, rows: list[Row], more: list[Path] | None = None, **summary: Any
) -> Path:
    """A step's table of a shard and its manifest."""
    place = folder / step.replace(".", "/")
    path = place / f"{shard}.parquet"
    with Writer(path, schema) as writer:
        for row in rows:
            writer.add(row)
    manifest = place / f"{shard}.manifest.json"
    Manifest(step, "test", summary=summary).write(manifest, [path, *(more or [])])
    return manifest


def made(
    folder: Path, documents: list[Row], verdict: Callable[[int, Row], Row], edits: Callable[[int, Row], list[Row]]
) -> list[Path]:
    """The manifests of a run with the filter `lines` over two shards. verdict, edits: of a document, by its number."""
    found = []
    for at, shard in enumerate(SHARDS):
        own = [(number, row) for number, row in enumerate(documents) if number % 2 == at]
        found.append(making.documents(folder / "ingest/extract", [row for _, row in own], shard))
        place = folder / f"lines/score/spans/{shard}.parquet"
        with Writer(place, spans.SCHEMA) as writer:
            for number, row in own:
                for edit in edits(number, row):
                    writer.add({"id": row["id"], "replacement": "", "rule": "policy", **edit})
        signals = [
            {
                **{key: row[key] for key in ("id", "source", "curated")},
                "characters": 50,
                "sentences": number,
                "flagged": 0.0,
            }
            for number, row in own
        ]
        schema = [
            "id:string",
            "source:string",
            "curated:bool_",
            "characters:int64",
            "sentences:int64",
            "flagged:float64",
        ]
        found.append(table(folder, "lines.score", shard, schema_of(schema), signals, [place]))
        judged = [{"id": row["id"], "kept": True, "rules": [], **verdict(number, row)} for number, row in own]
        found.append(table(folder, "lines.select", shard, VERDICT, judged))
    return found


def schema_of(columns: list[str]) -> Any:
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, kind)()) for name, kind in (each.split(":") for each in columns)])


def step(folder: Path, manifests: list[Path], filters: list[str] = ["lines"], **settings: Any) -> Path:  # noqa: B006
    """Run the step; returns the folder of its pages."""
    complete = configuration.validate(
        {"filters": filters, "report": {"inspect": settings}, "lines": {"select": {"sentences_min": 5}}}
    )
    out = folder / "report/inspect/manifest.json"
    assert (
        main(
            [
                "--config",
                fingerprint("report.inspect", complete),
                "--manifest",
                str(out),
                "--manifests",
                *map(str, manifests),
            ]
        )
        == 0
    )
    return out.parent


def document(number: int, **more: Any) -> Row:
    row = making.document(f"{number:032x}", f"Document number {number} says something. " * 3, curated=number % 10 == 9)
    return {**row, **more}


def few(number: int, row: Row) -> Row:
    """Drops documents with fewer than five sentences; there are as many as the number says."""
    if number >= 5 or row["curated"]:
        return {}
    return {
        "kept": False,
        "rule": "sentences_min",
        "value": number,
        "threshold": 5,
        "rules": ["sentences_min", "flagged_max"],
    }


def policy(number: int, _: Row) -> list[Row]:
    return [{"start": 9, "end": 15}] if number % 3 == 0 else []


HOSTILE_URL = "https://example.org/<img src=x onerror=alert(1)>?\u202e"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages of a small run that all tests share, with hostile texts and a document without an address."""
    folder = tmp_path_factory.mktemp("run") / "main"
    documents = [document(number) for number in range(40)]
    documents[0] |= {
        "text": HOSTILE + "</script></pre><style>*{display:none}</style>",
        "url": HOSTILE_URL,
        "source": 'w"><script>alert(2)</script>',
    }
    documents[7] |= {"url": None, "text": "unfindable elsewhere\x00\x1b[31m\ud800".encode("utf-8", "replace").decode()}
    return step(folder, made(folder, documents, few, policy))


def rows_of(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]


def test_pages_are_well_formed_self_contained_and_inert(pages: Path) -> None:
    for name in ("lines.html", "index.html"):
        text = (pages / name).read_text(encoding="utf-8")
        parsed = Page(text)
        assert len(parsed.ids) == len(set(parsed.ids))
        assert parsed.tags.count("script") == (name != "index.html") and parsed.tags.count("style") == 1
        assert not {"img", "iframe", "object", "embed"} & set(parsed.tags)
        assert name != "index.html" or "../render/report.html" in parsed.links
        parsed.links = [link for link in parsed.links if link != "../render/report.html"]  # written after these
        assert all(link.startswith(("#", "data:,")) or (pages / link).exists() for link in parsed.links)
        assert "\u202e" not in text and "\x00" not in text and "\x1b" not in text
    text = (pages / "lines.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(" in text and "&lt;/script&gt;" in text and "no address" in text
    assert not re.search(r"<[^>]*\son\w+=", re.sub(r"<script>.*</script>", "", text, flags=re.DOTALL))


def test_the_policy_allows_the_one_script_and_the_styles_alone(pages: Path) -> None:
    text = (pages / "lines.html").read_text(encoding="utf-8")
    (allowed,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert allowed.replace("&#39;", "'").startswith("default-src 'none';") and "unsafe" not in allowed
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in allowed


def test_what_is_shown_and_why(pages: Path) -> None:
    rows = {(row["verdict"], row["rule"], row["id"]): row for row in rows_of(pages)}
    dropped = [row for key, row in rows.items() if key[:2] == ("dropped", "sentences_min")]
    assert sorted(int(row["id"], 16) for row in dropped) == [0, 1, 2, 3, 4]
    assert all(row["random"] is not None and row["probability"] == 1.0 for row in dropped)
    assert {int(row["id"], 16) for row in dropped if row["near"]} == {3, 4}
    assert rows["dropped", "sentences_min", f"{4:032x}"]["near"] == {"sentences_min": [4.0, 5.0, 1.0]}
    near = [row["near"]["sentences_min"] for key, row in rows.items() if key[0] == "kept" and row["near"]]
    assert sorted(near) == [[float(value), 5.0, value - 5.0] for value in (5, 6, 7, 8)]  # 9 is curated; 10 is not near
    summary = Manifest.read(pages / "manifest.json").summary["filters"]["lines"]
    assert summary["exempt"] == 4 and summary["edited"] == 12
    assert {(each["verdict"], each["documents"]) for each in summary["groups"]} == {
        ("kept", 31),
        ("dropped", 5),
        ("edited", 12),
    }
    text = (pages / "lines.html").read_text(encoding="utf-8")
    assert '<del class="own" title="lines policy">number</del>' in text and "also flagged_max" in text


def test_a_rerun_writes_the_same_bytes(pages: Path, tmp_path: Path) -> None:
    folder = pages.parents[1]
    manifests = [path for path in sorted(folder.rglob("*.manifest.json")) if "report" not in path.parts]
    again = step(tmp_path / "main", manifests[::-1])
    for name in ("lines.html", "index.html", "samples.jsonl"):
        assert (again / name).read_bytes() == (pages / name).read_bytes()


@pytest.mark.parametrize("odd", ["empty", "all kept", "all dropped", "one large document"])
def test_odd_runs(tmp_path: Path, odd: str) -> None:
    documents = {"empty": [], "one large document": [document(0, text="word " * 2_000_000)]}.get(
        odd, [document(n) for n in range(6)]
    )
    out = {"kept": False, "rule": "sentences_min", "value": 1.0, "threshold": 5, "rules": ["sentences_min"]}
    manifests = made(tmp_path / "main", documents, lambda *_: out if odd == "all dropped" else {}, lambda *_: [])
    folder = step(tmp_path / "main", manifests, FILTERS)
    text = (folder / "lines.html").read_text(encoding="utf-8")
    for name in ("lines.html", "dedup.html", "index.html"):
        Page((folder / name).read_text(encoding="utf-8"))
    assert ("No document reached this filter" in text) == (odd == "empty")
    if odd == "one large document":
        assert "[cut: 10,000,000 characters in all]" in text and len(text) < 100_000


def test_a_page_is_kept_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less of each text, then fewer near documents; never less of the random sample."""
    documents = [document(number, text="wörter " * 2000) for number in range(40)]
    manifests = made(tmp_path / "main", documents, few, lambda *_: [])
    whole = len((step(tmp_path / "main", manifests, characters=5000) / "lines.html").read_bytes())
    monkeypatch.setattr(inspect_page, "MOST", whole // 3)
    folder = step(tmp_path / "less", manifests, characters=5000)
    text = (folder / "lines.html").read_text(encoding="utf-8")
    assert len(text.encode()) <= whole // 3
    assert text.count('<span class="tag random">') == 41 - 4 - 1
    monkeypatch.setattr(inspect_page, "MOST", 1)
    assert 'data-near=""' in (step(tmp_path / "least", manifests) / "lines.html").read_text(encoding="utf-8")


def test_marks_of_the_config_are_on_the_index_and_in_the_manifest(pages: Path, tmp_path: Path) -> None:
    lines = [
        {key: row[key] for key in ("id", "filter", "rule", "verdict", "run")}
        | {"mark": "wrong" if row["id"] == f"{1:032x}" else "right", "sample": "random", "url": None, "time": ""}
        for row in rows_of(pages)
        if row["random"] is not None
    ]
    path = tmp_path / "marks.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, "nonsense"]), encoding="utf-8")
    manifests = [one for one in sorted(pages.parents[1].rglob("*.manifest.json")) if "report" not in one.parts]
    folder = step(tmp_path / "main", manifests, marks=[str(path)])
    marks = Manifest.read(folder / "manifest.json").summary["marks"]
    of_rule = next(row for row in marks["rows"] if row["rule"] == "sentences_min")
    assert (of_rule["documents"], of_rule["marks"], of_rule["wrong"]) == (5, 5, 1)
    assert of_rule["precision"] == "80 % (of all)" and "1 line is no mark" in marks["words"]
    text = (folder / "index.html").read_text(encoding="utf-8")
    Page(text)
    assert "80 % (of all)" in text and "edits: policy" in text
    # The page itself is the one that the marks were made on.
    assert (folder / "lines.html").read_bytes() == (pages / "lines.html").read_bytes()


def test_edits_of_a_long_text_are_shown_where_they_are() -> None:
    text = "a" * 5000 + "SECRET" + "b" * 100
    found = excerpts.text_segments(
        text, [spans.Span(5000, 5006, "<X>", "email", "pii"), spans.Span(0, 3, "", "policy", "lines")], "pii", 400, True
    )
    assert found["skipped"] == 4900 and found["cut"]
    assert ("SECRET", "own", "pii email") in found["parts"] and ("<X>", "put", "pii email") in found["parts"]
    start = excerpts.text_segments(text, [spans.Span(0, 3, "", "policy", "lines")], "pii", 400)
    assert start["parts"][0] == ("aaa", "earlier", "lines policy") and start["skipped"] == 0


@pytest.fixture
def look(opened: Callable[..., Any], pages: Path) -> Iterator[Callable[..., Any]]:
    """look(what, …): the filter's page in a browser, and what `what(page)` gives of it; it leaves no mark behind."""
    yield functools.partial(opened, pages / "lines.html")

    async def clear(page: Opened) -> None:
        await page.value("localStorage.clear()")

    opened(pages / "lines.html", clear)


VISIBLE = "document.querySelectorAll('article:not([hidden])').length"
LINES = "document.getElementById('lines').value"
CURRENT = "document.querySelector('article[aria-current=true]').dataset.id"
MARKED = "[...document.querySelectorAll('article[data-mark]')].map(one => [one.dataset.verdict, one.dataset.mark])"


@needs_browser
def test_marks_by_keys_are_saved_and_loaded_again(look: Callable[..., Any], tmp_path: Path) -> None:
    async def mark(page: Opened) -> str:
        await page.do("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        await page.press("s")
        assert await page.value("document.getElementById('said').textContent") == "no marks yet"
        first = await page.value(CURRENT)
        assert (
            await page.value("getComputedStyle(document.querySelector('article[aria-current]')).outlineStyle")
            == "solid"
        )
        await page.press("x", "j", "o", "ArrowDown", "x", "x", "j", "o", "u", "k", "k", "k", "k")
        assert await page.value(CURRENT) == first
        assert len(await page.value(MARKED)) == 2
        await page.press("s")
        return str(await page.value(LINES))

    text = look(mark)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["mark"] for row in rows] == ["wrong", "right"]
    assert set(rows[0]) == {"id", "url", "filter", "rule", "verdict", "mark", "sample", "run", "variant", "time"}
    assert rows[0]["filter"] == "lines" and rows[0]["variant"] == "main" and rows[0]["sample"] == "random"

    async def still(page: Opened) -> Any:
        # What was downloaded is what the text shows, and the marks are there when the page is opened again.
        for _ in range(6000):
            if saved := list(tmp_path.glob("marks-main-lines-*.jsonl")):
                break
            await asyncio.sleep(0.05)
        assert saved[0].read_text(encoding="utf-8") == text
        return await page.value(MARKED)

    assert len(look(still)) == 2

    async def load(page: Opened) -> Any:
        await page.value("localStorage.clear()")
        await page.open(pages_of(page))
        assert await page.value(MARKED) == []
        other = {**rows[0], "id": "f" * 32}
        path = tmp_path / "given.jsonl"
        path.write_text(text + json.dumps(other) + "\nnonsense\n", encoding="utf-8")
        root = (await page.do("DOM.getDocument"))["root"]["nodeId"]
        node = (await page.do("DOM.querySelector", nodeId=root, selector="#load"))["nodeId"]
        await page.do("DOM.setFileInputFiles", files=[str(path)], nodeId=node)
        for _ in range(6000):
            if said := await page.value("document.getElementById('said').textContent"):
                break
            await asyncio.sleep(0.05)
        assert (
            said.startswith("2 marks loaded; 1 of documents that are not on this page") and "1 line is no mark" in said
        )
        await page.press("s")
        return await page.value(LINES)

    assert len(look(load).splitlines()) == 3


def pages_of(page: Opened) -> str:
    """The address of the page that is open."""
    return next(url for url in page.asked if url.endswith("lines.html"))


@needs_browser
def test_search_and_choices(look: Callable[..., Any]) -> None:
    async def what(page: Opened) -> None:
        choose = "(id, value) => {{ const one = document.querySelector(id); one.value = value; one.dispatchEvent(new Event('change')); }}"
        await page.value(f"window.choose = {choose.replace('{{', '{').replace('}}', '}')}")
        await page.value("choose('#view', 'all')")
        everything = await page.value(VISIBLE)
        await page.press("/", *"unfindable")
        assert 1 <= await page.value(VISIBLE) <= 2
        await page.press("x")  # a letter in the search, no mark
        assert await page.value(MARKED) == [] and await page.value(VISIBLE) == 0
        assert not await page.value("document.getElementById('nothing').hidden")
        await page.press("Escape")
        assert await page.value(VISIBLE) == everything
        await page.value("choose('[data-by=verdict]', 'dropped')")
        assert await page.value(VISIBLE) == 5
        assert await page.value(CURRENT) == await page.value(
            "document.querySelector('article:not([hidden])').dataset.id"
        )
        await page.value("choose('[data-by=verdict]', ''); choose('#view', 'near')")
        assert await page.value(VISIBLE) == 2 + 4, "of five dropped documents the nearest quarter"
        distances = await page.value(
            "[...document.querySelectorAll('article:not([hidden]) .tag:not(.random)')]"
            ".map(one => Number(one.textContent.match(/([0-9.]+) from it/)[1]))"
        )
        assert sorted(distances[:4]) == [0, 1, 1, 2]
        await page.value("choose('#view', 'random')")
        assert await page.value(VISIBLE) == 36 + 12

    look(what)


@needs_browser
def test_crawled_text_does_nothing(look: Callable[..., Any]) -> None:
    async def what(page: Opened) -> None:
        assert await page.value("document.scripts.length") == 1 and await page.value("document.images.length") == 0
        assert await page.value("document.styleSheets.length") == 1
        assert "<script>alert(" in await page.value("document.getElementById('list').textContent")
        # Even a script that got into the page would not run.
        await page.value(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()"
        )
        assert await page.value("window.ran") is None
        page.logged.clear()  # the browser says so

    look(what)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_is_wider_than_the_window(look: Callable[..., Any], dark: bool) -> None:
    async def what(page: Opened) -> None:
        assert await page.value("document.documentElement.scrollWidth - innerWidth") <= 0
        await page.press("?")
        assert await page.value("document.getElementById('help').open")
        await page.press("Escape")
        await page.value("document.querySelector('article:not([hidden]) button[data-mark=wrong]').click()")
        assert await page.value(MARKED) == [["dropped", "wrong"]]
        ground = await page.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") != dark

    look(what, width=390, height=844, mobile=True, dark=dark)


@needs_browser
def test_everything_is_reached_by_tab_and_has_a_name(look: Callable[..., Any]) -> None:
    async def what(page: Opened) -> None:
        unnamed = await page.value(
            "[...document.querySelectorAll('button, input, select, textarea, dialog, main, [role]')]"
            ".filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label'))).map(one => one.outerHTML)"
        )
        assert unnamed == []
        seen = set()
        for _ in range(24):
            await page.press("Tab")
            seen.add(
                await page.value(
                    "document.activeElement.id || document.activeElement.dataset.by || document.activeElement.dataset.mark"
                )
            )
        assert {"search", "view", "verdict", "rule", "marked", "save", "load", "keys", "wrong", "right"} <= seen

    look(what)
