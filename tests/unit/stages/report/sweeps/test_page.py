"""The page over all variants: its numbers, what is left out, and a real browser."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.commands.compare.command import noise_lines
from crawl2llm.core.manifest import ManifestError
from crawl2llm.core.root import ROOT
from crawl2llm.stages.report import variants
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import analysis
from tests.unit.commands.plan.picture.browser import browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine"
)
STOPPED = {"rung": 1, "step": 20, "why": "<i>worse</i> half"}


def costs(sweep: Any) -> dict[str, Any]:
    part = {"seconds": 75.0, "gpu_hours": 0.5}
    return {name: {"tasks": 5, "tasks_own": 3, "own": part, "all": part, "training": part} for name in sweep.variants}


@pytest.fixture(scope="session")
def comparison(sweep: Any) -> dict[str, Any]:
    options = CompareSettings(resamples=200)
    return analysis.compare_settings(sweep.settings(), sweep.variants, sweep.seeds(), options)


@pytest.fixture(scope="session")
def page(sweep: Any, comparison: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "compare.html"
    out.write_text(
        variants.render_with_costs(comparison, sweep.variants, costs(sweep), "0123456789abcdef"), encoding="utf-8"
    )
    return out


class Tags(HTMLParser):
    """Ids, links and tags of a page; fails on a tag closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.regions = 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.ids += [str(values["id"])] if "id" in values else []
        self.links += [str(values[key]) for key in ("href", "src") if key in values]
        if values.get("class") == "scroll":
            assert values["tabindex"] == "0" and values["aria-label"] and values["role"] == "region"
            self.regions += 1
        if tag not in {"meta", "br", "wbr", "path", "use", "stop"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"path", "use", "stop"}:
            assert self.open.pop() == tag


def test_verdicts(comparison: dict[str, Any]) -> None:
    base = comparison["models"]["base"]
    assert base["settings"] == ["main", "hot", "without-dedup", "warm"] and base["seeds"] == [3, 3, 3, 3]
    bits = base["measures"][0]
    assert [row["verdict"] for row in bits["to_main"]] == ["better", "worse", "unclear"]
    assert [row["difference"] for row in bits["to_main"]] == pytest.approx([-0.06, 0.05, 0.0005], abs=0.02)
    assert bits["noise"]["freedom"] == 8 and 0.001 < bits["noise"]["deviation"] < 0.01
    assert len(base["pairs"]) == 6 and {row["family"] for row in base["pairs"]} == {6}
    assert [one["name"] for one in base["measures"]] == [
        "bits_per_byte", "bits_per_byte <b>books</b>", "bits_per_byte web", "task ending", "task cloze", "task arc_easy",
        "right answers ending", "right answers cloze", "right answers arc_easy"]  # fmt: skip
    tasks = [one for one in base["measures"] if one["name"].startswith("task ")]
    assert {row["family"] for one in tasks for row in one["to_main"]} == {9}  # all tasks together
    # Right answers tell what accuracy of so few items does not.
    answers, accuracy = base["measures"][-1], tasks[-1]
    assert [row["verdict"] for row in answers["to_main"]] == ["better", "worse", "unclear"]
    assert [row["verdict"] for row in accuracy["to_main"]] == ["unclear"] * 3
    assert 0.001 < answers["noise"]["deviation"] < 0.01 and answers["noise"]["freedom"] == 8
    told = list(noise_lines(base))
    assert len(told) == 10 and told[-1].startswith("  ARC easy: right answers: 0.00")
    assert all(-0.4 < own["mean"] < 0.8 for one in tasks for own in one["settings"])


def test_numbers_are_of_the_input_alone_and_have_no_infinity(sweep: Any, comparison: dict[str, Any]) -> None:
    again = analysis.compare_settings(
        sweep.settings(), sweep.variants, sweep.seeds(), CompareSettings(**comparison["options"])
    )
    text = json.dumps(comparison, allow_nan=False, sort_keys=True)
    assert text == json.dumps(again, sort_keys=True)


def test_best_by_axis(comparison: dict[str, Any]) -> None:
    axes = {axis["key"]: axis["values"] for axis in comparison["axes"]}
    assert axes["pretrain.train.learning_rate"][0]["best"] == "hot"
    assert [row["value"] for row in axes["filters"]] == [["dedup", "quality"], ["quality"]]
    assert [row["settings"] for row in axes["filters"]] == [3, 1]


def test_page_is_well_formed_small_and_escaped(page: Path, sweep: Any) -> None:
    text = page.read_text(encoding="utf-8")
    tags = Tags(re.sub(r"<script>.*</script>", "", text, flags=re.DOTALL))
    assert len(tags.ids) == len(set(tags.ids)) and tags.regions > 8
    wanted = {f"../../../{name}/report/render/report.html" for name in sweep.variants}
    assert wanted < set(tags.links)
    assert {link for link in tags.links if not link.startswith("#")} == wanted | {"compare.json"}
    assert {link[1:] for link in tags.links if link.startswith("#")} <= set(tags.ids)
    assert len(text.encode()) < 5e6
    assert "<b>books</b>" not in text and "&lt;b&gt;books&lt;/b&gt;" in text
    assert text.count("Noise between seeds</th>") == 2 and "(n = 3)" in text
    assert "▲ better" in text and "▼ worse" in text and "no significant difference" in text
    assert text.count('role="img"') == 3  # no law: neither sizes nor tokens vary
    assert "None was fitted: sizes of model: 1, numbers of tokens: 1" in text


def test_a_stopped_variant_is_shown_and_has_no_verdict(sweep: Any, options: CompareSettings) -> None:
    held = copy.deepcopy(sweep.variants)
    for name in ("hot", "hot-seed-1", "hot-seed-2"):
        held[name].manifests["pretrain.train"][""].summary["stopped"] = STOPPED
    found = analysis.compare_settings(sweep.settings(), held, sweep.seeds(), options)
    assert found["models"]["base"]["settings"] == ["main", "without-dedup", "warm"]
    text = variants.render_with_costs(found, held, costs(sweep), "")
    assert "Stopped early, and left out of the verdicts" in text and "&lt;i&gt;worse&lt;/i&gt; half" in text
    assert "stopped at step 20" in text


def test_an_unfinished_run_says_what_is_missing(sweep: Any, options: CompareSettings) -> None:
    held = copy.deepcopy(sweep.variants)
    held["warm"].manifests, held["warm"].missing = {}, ["evaluate.common"]
    text = variants.render_with_costs(
        analysis.compare_settings(sweep.settings(), held, sweep.seeds(), options), held, costs(sweep), ""
    )
    assert "Not all variants are complete" in text and "missing evaluate.common" in text and "▲ better" in text
    for name in sweep.variants:
        held[name].manifests = {}
    found = analysis.compare_settings(sweep.settings(), held, sweep.seeds(), options)
    text = variants.render_with_costs(found, held, {name: {"tasks": 0, "tasks_own": 0} for name in held}, "")
    assert "Nothing can be compared yet" in text and 'role="img"' not in text


def test_one_seed_says_that_the_noise_is_unknown(sweep: Any, options: CompareSettings) -> None:
    held = {name: one for name, one in sweep.variants.items() if "seed" not in name}
    settings = [type(one)(one.name, one.changes, one.variants[:1]) for one in sweep.settings()]
    found = analysis.compare_settings(settings, held, {name: {} for name in held}, options)
    text = variants.render_with_costs(found, held, {name: {"tasks": 0, "tasks_own": 0} for name in held}, "")
    assert (
        "noise between trainings unknown" in text and "▲" not in text.partition("<main")[2].partition("All measures")[0]
    )


def test_one_training_counts_once(sweep: Any, options: CompareSettings) -> None:
    """Variants with the same files are no seeds: without others the noise is unknown."""
    held = {name: copy.deepcopy(one) for name, one in sweep.variants.items() if name in ("main", "hot")}
    held["main"].training_manifests = {"base": "results/main/pretrain/train/manifest.json"}
    for name in ("same", "default"):
        held[name] = copy.deepcopy(held["main"])
        held[name].name = name
    main, hot = sweep.settings()[:2]
    kind = type(main)
    grouped = [
        kind("main", {}, ("main", "same")),
        kind("hot", hot.changes, ("hot",)),
        kind("default", {}, ("default",)),
    ]
    found = analysis.compare_settings(grouped, held, {name: {} for name in held}, options)
    base = found["models"]["base"]
    assert base["settings"] == ["main", "hot"] and base["seeds"] == [1, 1]
    assert base["measures"][0]["noise"]["freedom"] == 0 and base["measures"][0]["to_main"][0]["verdict"] == "unknown"
    assert {row["name"]: row["same_as"] for row in found["variants"]} == {
        "main": None, "hot": None, "same": "main", "default": "main"}  # fmt: skip
    text = variants.render_with_costs(found, held, {name: {"tasks": 0, "tasks_own": 0} for name in held}, "")
    assert "main, same, default have the same base model, from one training: it counts once." in text
    assert "the same training as main" in text


def test_words_of_a_page_whose_seeds_are_not_there_yet(sweep: Any, options: CompareSettings) -> None:
    held = copy.deepcopy(sweep.variants)
    for name in held:
        if "seed" in name:
            held[name].manifests, held[name].missing = {}, ["evaluate.common"]
    found = analysis.compare_settings(sweep.settings(), held, sweep.seeds(), options)
    text = variants.render_with_costs(found, held, {name: {"tasks": 0, "tasks_own": 0} for name in held}, "")
    assert "Trainings with other seeds are not evaluated yet (seed-1, seed-2, hot-seed-1" in text
    assert "No setting was trained with more than one seed" not in text
    assert "3 settings are compared with main by bits per byte on the same held-out text: no verdict, because" in text
    assert not re.search(
        r"`|\(than main\)|less main|unknown \(than", text.partition("<main")[2].partition('id="how"')[0]
    )


def test_other_documents_in_a_variant_are_refused(sweep: Any, options: CompareSettings) -> None:
    held = copy.deepcopy(sweep.variants)
    held["warm"].manifests["evaluate.common"]["base"].summary["set"] = "other"
    with pytest.raises(ManifestError, match="other documents in some variants"):
        analysis.compare_settings(sweep.settings(), held, sweep.seeds(), options)


def browse(address: str, profile: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", *more,
            "--virtual-time-budget=2000", "--dump-dom", address,
        ],
        capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip


@needs_browser
def test_opens_in_a_browser_without_errors(page: Path, tmp_path: Path) -> None:
    done = browse(page.as_uri(), tmp_path / "profile")
    assert "CONSOLE" not in done.stderr, done.stderr
    assert (
        done.stdout.count('<th scope="col"><button type="button">') >= 4
    )  # its policy lets the script run, and no other
    assert done.stdout.count('role="img"') == 3


@needs_browser
def test_tables_fit_or_keep_the_names_of_their_rows(page: Path, tmp_path: Path) -> None:
    """At 1,200 px no table scrolls; on a phone one does, and the first column stays where it is."""
    wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
    first = "document.querySelector('.scroll tbody th').getBoundingClientRect().left"

    async def look() -> None:
        async with browser(tmp_path / "profile") as opened:
            await opened.open(page, 1200)
            assert await opened.value(wide) == 0
            await opened.size(390, 844)
            assert await opened.value("document.documentElement.scrollWidth") <= 390
            before = await opened.value(first)
            await opened.value("document.querySelector('.scroll').scrollLeft = 200")
            assert await opened.value("document.querySelector('.scroll').scrollLeft") == 200
            assert await opened.value(first) == before

    asyncio.run(look())


@needs_browser
def test_tables_are_sorted_by_numbers_and_by_names(tmp_path: Path) -> None:
    rows = "".join(
        f'<tr><th data-by="{name}">{name}</th><td data-by="{n}">{n} s</td></tr>'
        for name, n in (("b", 10), ("a", 9), ("c", -1))
    )
    script = (ROOT / "scripts/crawl2llm/stages/report/sort.js").read_text()
    held = tmp_path / "table.html"
    for clicks, column, wanted in ((1, 1, "cab"), (2, 1, "bac"), (1, 0, "abc")):
        held.write_text(
            f'<table class="sortable"><thead><tr><th>N<th>S</thead><tbody>{rows}</tbody></table><script>{script}</script>'
            f"<script>for (let i = 0; i < {clicks}; i++) document.querySelectorAll('button')[{column}].click()</script>"
        )
        done = browse(held.as_uri(), tmp_path / f"profile{clicks}{column}")
        assert "".join(re.findall(r'<th data-by="(\w)"', done.stdout)) == wanted
        assert f'aria-sort="{"ascending" if clicks == 1 else "descending"}"' in done.stdout
