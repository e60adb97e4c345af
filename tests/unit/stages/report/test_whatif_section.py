"""The section of other thresholds: its one script, in a real browser, and what a reader without it sees."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import whatif_figures, whatif_section
from tests.unit.commands.plan.picture.browser import BROWSER, browser
from tests.unit.stages.report.conftest import manifests_of
from tests.unit.stages.report.test_render import Page, render

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1> \u2028\u202e&lt;"
UNITS = ("documents", "bytes", "tokens")


def counts(*rows: list[int]) -> dict[str, Any]:
    """Counts by unit: `rows` of documents by source; bytes are a thousand times as many, tokens a hundred."""
    out = {}
    for unit, scale in zip(UNITS, (1, 1000, 100), strict=True):
        by = [[scale * value for value in row] for row in rows]
        total = [sum(column) for column in zip(*by, strict=True)]
        out[unit] = {"all": total, "source": by, "language": [total]}
    return out


def at_once(told: dict[str, Any]) -> dict[str, Any]:
    """Counts of a single column as numbers."""
    return {
        unit: {"all": of["all"][0], "source": [row[0] for row in of["source"]], "language": [of["language"][0][0]]}
        for unit, of in told.items()
    }


def rule(key: str, points: list[float], now: float | None, *rows: list[int]) -> dict[str, Any]:
    return {
        "key": key, "rules": [key.split(".", 2)[2]], "keeps": "at least", "now": now, "moving": 90, "about": [], "points": points,
        "kept": counts(*rows),
    }  # fmt: skip


WORDS = rule("heuristics.select.gopher_quality.words_min", [0, 30, 50, 1200], 50, [80, 70, 60, 0], [20, 18, 16, 4])
OFF = rule("heuristics.select.c4.sentences_min", [0, 0.00001, 3], None, [60, 58, 41], [16, 16, 12])
FOUND = {
    "sources": {"names": ["web", HOSTILE], "more": 0},
    "languages": {"names": ["en"], "more": 0},
    "tokens_known": True,
    "steps": [
        {
            "step": "heuristics.select",
            "in": at_once(counts([80], [20])),
            "kept": at_once(counts([60], [16])),
            "rules": [WORDS, OFF],
            "categories": [
                {"title": "Languages", "key": "language.select.languages", "rule": "language",
                 "rest": {"values": 0, "in": 0, "kept": 0, "alone": 0},
                 "values": [{"value": HOSTILE, "in": 60, "kept": 60, "alone": 0}, {"value": "de", "in": 40, "kept": 16, "alone": 24}]},
            ],
            "overlap": {
                "dropped": 24, "stayed": 3, "rest": {"combinations": 2, "documents": 5},
                "rules": [{"rule": "words_min", "flagged": 14, "unique": 9}, {"rule": HOSTILE, "flagged": 10, "unique": 0}],
                "combinations": [{"rules": ["words_min"], "documents": 9}, {"rules": [HOSTILE, "words_min"], "documents": 10}],
            },
            "left_out": [{"key": "heuristics.select.fineweb.x", "why": HOSTILE}],
        },
        {
            "step": "quality.select", "in": at_once(counts([60], [16])), "kept": at_once(counts([60], [16])), "rules": [], "categories": [],
            "overlap": {"dropped": 2, "stayed": 0, "rest": {"combinations": 0, "documents": 0}, "combinations": [],
                        "rules": [{"rule": "fraction", "flagged": 2, "unique": 2}]},
            "left_out": [],
        },
    ],
}  # fmt: skip


def with_whatif(run_folder: Path, found: dict[str, Any]) -> Path:
    """The page of the run with what report.whatif found."""
    path = run_folder / "report/whatif" / whatif_section.FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(found), encoding="utf-8")
    Manifest(step="report.whatif", fingerprint="").write(path.with_name("manifest.json"), [path])
    return render(manifests_of(run_folder), run_folder / "report/render")


@pytest.fixture
def page(run_folder: Path) -> Path:
    return with_whatif(run_folder, FOUND)


def test_the_page_holds_one_script_and_its_policy_names_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.tags.count("script") == 2 and not {"img", "iframe", "link", "object"} & set(parsed.tags)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert all(link[1:] in parsed.ids for link in parsed.links if link.startswith("#"))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (code,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    mark = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert html.unescape(policy) == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{mark}'"
    (data,) = re.findall(r'<script type="application/json" id="whatif-data">(.*?)</script>', text, re.DOTALL)
    assert not set(data) & set("<>&\u2028") and data.isascii()
    names = json.loads(data)["rules"][0]["groups"][0]["names"]
    assert names == ["web", HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")]
    assert "window.hit=1</script>" not in text


def test_the_command_names_a_variant_that_is_not_main(run_folder: Path) -> None:
    other = run_folder.with_name("strict")
    run_folder.rename(other)
    text = with_whatif(other, FOUND).read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="whatif-data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["variant"] == "strict" and "--variant ${held.variant}" in text
    assert "<code>--configfile</code> as the run was started with" in text


def test_a_page_without_the_step_holds_none(run_folder: Path) -> None:
    text = render(manifests_of(run_folder), run_folder / "report/render").read_text(encoding="utf-8")
    assert "script" not in Page(text).tags and "script-src" not in text and 'href="#whatif"' not in text


def test_thresholds_are_written_as_yaml_reads_them() -> None:
    assert [whatif_section.plain_number(value) for value in (50, 0.5, 1e-5, 2e7, 3.0, None)] == [
        "50",
        "0.5",
        "0.00001",
        "20000000",
        "3",
        "null",
    ]


def test_groups_that_are_never_kept_are_left_out_and_small_ones_joined() -> None:
    names = {"names": [f"s{number}" for number in range(12)], "more": 4}
    kept = [[number, 0] for number in range(12)] + [[1, 2]]
    found = whatif_section.largest_groups(names, kept)
    assert [name for name, _ in found] == ["s11", "s10", "s9", "s8", "s7", "s6", "s5", "s4", "s3", "6 others"]
    assert sorted(row for _, rows in found for row in rows) == [*range(1, 13)]


def test_a_reader_without_a_script_sees_every_curve_and_overlap(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "Documents kept of 100: 100 at 0 to 4 at 1200. Now 50, which keeps 76." in text
    assert "Documents kept of 100: 76 at 0 to 53 at 3. Now off." in text
    assert "Of 24 dropped documents, those on which exactly these rules fire. words_min: 9;" in text
    assert "quality.select, fraction (2)" in text
    assert '<div id="whatif-panel" class="ask" hidden>' in text


def test_a_set_of_rules_is_drawn_whole_or_not_at_all() -> None:
    """15 sets at most, and none whose rules are too many rows: what is drawn has a dot for each of its rules."""
    rules = [{"rule": f"r{number}", "flagged": 40 - number, "unique": 0} for number in range(40)]
    sets = [
        [f"r{number}" for number in range(first, first + size)]
        for first, size in [(0, 12), (10, 12), (20, 20), (0, 1), (3, 30)]
    ]
    sets += [[f"r{number % 20}", f"r{number % 20 + 1}"] for number in range(20)]
    found = [{"rules": one, "documents": 100 - at} for at, one in enumerate(sets)]
    drawn = whatif_figures.upset_plot("x.select", {"dropped": 5000, "rules": rules, "combinations": found})
    kept = [one for at, one in enumerate(sets) if at not in (2, 4)][:15]
    assert drawn.count('fill="var(--blue)"') == 15
    assert drawn.count('r="4.5"') == sum(map(len, kept))
    assert drawn.count("<text") == 15 + len({rule for one in kept for rule in one})
    assert whatif_figures.upset_plot("x.select", {"dropped": 1, "rules": rules, "combinations": found[4:5]}) == ""


def test_a_damaged_file_is_named(run_folder: Path) -> None:
    with_whatif(run_folder, FOUND)
    run = Run.read(manifests_of(run_folder))
    run.damaged = {}
    (run_folder / "report/whatif" / whatif_section.FILE).write_text("{")
    assert whatif_section.section(run) is None and [path.name for path in run.damaged] == [whatif_section.FILE]


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine")
def test_keys_move_the_threshold_and_the_numbers_are_those_of_the_file(page: Path, tmp_path: Path) -> None:
    async def look() -> None:
        async with browser(tmp_path / "profile") as opened:
            await opened.open(page)
            cells = "[...document.querySelectorAll('#whatif-rows tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
            said = "document.getElementById('whatif-value').textContent"
            assert await opened.value(said) == f"{WORDS['key']} = 50 keeps 76 of 100 documents, as it is set now."
            assert await opened.value("document.getElementById('whatif-now').disabled")
            await opened.value("document.getElementById('whatif-at').focus()")
            await opened.press("ArrowLeft")
            assert await opened.value(said) == f"{WORDS['key']} = 30 keeps 88 of 100 documents."
            rows = await opened.value(cells)
            assert rows[0] == ["All", "88", "+12", "88\u00a0kB", "+12\u00a0kB", "8,800", "+1,200"]
            assert rows[1][:3] == ["Source: web", "70", "+10"] and rows[3][:3] == ["Language: en", "88", "+12"]
            assert rows[2][0] == "Source: " + HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
            assert (
                await opened.value("document.getElementById('whatif-command').textContent")
                == f"crawl2llm whatif {WORDS['key']}=30"
            )
            edit = "heuristics:\n  select:\n    gopher_quality:\n      words_min: 30"
            assert await opened.value("document.getElementById('whatif-edit').textContent") == edit
            await opened.press("ArrowRight", "ArrowRight", "ArrowRight")
            assert (await opened.value(cells))[0][:3] == ["All", "4", "−72"]
            await opened.value("document.getElementById('whatif-now').click()")
            assert (await opened.value(cells))[0][1:3] == ["76", "–"]
            # The curve can be dragged too: to its left end.
            curve = "document.getElementById('whatif-curve')"
            await opened.value(f"{curve}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
            await opened.drawn()
            place = json.loads(await opened.value(f"JSON.stringify({curve}.getBoundingClientRect())"))
            where = {"x": place["x"] + 10, "y": place["y"] + 50, "button": "left", "clickCount": 1}
            await opened.do("Input.dispatchMouseEvent", type="mousePressed", **where)
            await opened.do("Input.dispatchMouseEvent", type="mouseReleased", **where)
            assert (await opened.value(cells))[0][1] == "100"
            await opened.value(
                "{const s = document.getElementById('whatif-rule'); s.value = '1'; s.dispatchEvent(new Event('change'));}"
            )
            assert await opened.value(said) == f"{OFF['key']} = 0 keeps 76 of 100 documents."
            await opened.value("document.getElementById('whatif-at').focus()")
            await opened.press("ArrowRight")
            assert (
                await opened.value("document.getElementById('whatif-command').textContent")
                == f"crawl2llm whatif {OFF['key']}=0.00001"
            )
            # Every figure of the section is drawn, in any width, and nothing that the names hold has run.
            for width in (1300, 390):
                await opened.size(width, 800)
                small = "[...document.querySelectorAll('#whatif svg')].filter((one) => one.getBoundingClientRect().height < 20).length"
                assert await opened.value(small) == 0
                assert await opened.value("document.documentElement.scrollWidth") <= width
            assert await opened.value("window.hit") is None
            assert opened.logged == [] and all(address.startswith("file:") for address in opened.asked)
            inline = "const s = document.createElement('script'); s.textContent = 'window.hit = 2'; document.body.append(s); window.hit"
            assert await opened.value(inline) is None
            assert any("Content Security Policy" in line for line in opened.logged)

    asyncio.run(look())
