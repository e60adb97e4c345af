"""Alarms: who loses more than a share of its documents to one filter, by source and by host."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crawl2llm.formats.documents import DOCUMENT, Writer
from crawl2llm.formats.external_partition import Spill
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import alarms, render, summary
from tests.unit.stages.report.conftest import DROPPED, manifests_of, save

Group = tuple[str, str, str, int]  # source, host, stage that drops ("": none), documents


def corpus(root: Path, *shards: list[Group]) -> Run:
    """A run whose corpus.write has these documents."""
    for number, groups in enumerate(shards):
        shard, folder = f"{number:05d}", root / "corpus/write"
        with (
            Writer(folder / f"dropped/{shard}.parquet", DROPPED) as dropped,
            Writer(folder / f"train/{shard}.parquet", DOCUMENT) as train,
            Writer(folder / f"validation/{shard}.parquet", DOCUMENT),
        ):
            for source, host, stage, many in groups:
                for at in range(many):
                    row: dict[str, Any] = {"id": f"{host}{stage}{at}", "source": source}
                    row["url"] = f"https://{host}/{at}" if host else f"file:{source}/x#{at}"
                    if stage:
                        dropped.add({**row, "stage": stage, "rule": "r"})
                    else:
                        train.add({**row, "text": "x"})
        save(root, "corpus.write", shard, sorted(folder.glob(f"*/{shard}.parquet")))
    return Run.read(manifests_of(root))


def rows_of(run: Run, folder: Path, share: float | None = 0.5) -> list[tuple[str, str, str, int, int]]:
    return [tuple(row.values()) for row in alarms.find(run, share, folder / ".hosts")["rows"]]  # type: ignore[misc]


def test_who_loses_more_than_half_to_one_filter(tmp_path: Path) -> None:
    run = corpus(
        tmp_path / "main",
        [("web", "a.org", "quality", 40), ("web", "a.org", "", 30), ("web", "b.org", "language", 50), ("books", "", "dedup", 2)],
        [("web", "a.org", "quality", 31), ("web", "b.org", "", 50), ("web", "c.org", "quality", 99), ("books", "", "", 1),
         ("web", "d.org", "", 300), ("web", "e.org", "language", 40), ("web", "e.org", "dedup", 45), ("web", "e.org", "", 15)],
    )  # fmt: skip
    # b.org loses exactly half, c.org has 99 pages, e.org loses 85 of 100, to no one filter more than half.
    assert rows_of(run, tmp_path) == [("source", "books", "dedup", 3, 2), ("host", "a.org", "quality", 101, 71)]
    assert not (tmp_path / ".hosts").exists()
    assert rows_of(run, tmp_path, None) == [] and len(rows_of(run, tmp_path, 0.4)) == 4


@pytest.mark.parametrize("held", [1, 50, 10_000])
def test_hosts_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(alarms, "HELD_PAGES", held)
    many = [("web", f"host{number}.org", "quality", 100 + number) for number in range(23)]
    run = corpus(tmp_path / "main", [*many, ("web", "whole.org", "", 5000)])
    told = alarms.find(run, 0.5, tmp_path / ".hosts")
    assert [row["name"] for row in told["rows"]] == [f"host{number}.org" for number in range(22, 2, -1)]
    said = alarms.host_sentences(told)
    assert told["more"] == 3 and said[-1] == "3 more hosts lose as much of theirs"
    share = 1 - 5000 / sum(number for *_, number in [*many, ("", "", "", 5000)])
    words = "host host22.org loses 100% of its documents to quality: 122 of 122"
    assert said[0] == f"{words} (of all documents quality drops {share:.0%})"


def test_memory_of_hosts_of_few_pages(tmp_path: Path) -> None:
    """They are no rows of a table by filter, which would take more memory than the pages."""
    pages = np.zeros(1 << 18, alarms.PAGE)
    pages["host"], pages["stage"] = np.arange(len(pages)), np.arange(len(pages)) % 20
    pages["host"][:150], pages["stage"][:150] = 5, 3
    spilled = Spill(tmp_path, 1, alarms.PAGE)
    spilled.add(np.zeros(len(pages), int), pages)
    tracemalloc.start()
    assert alarms._largest_host_losses(spilled, 0.5, 20) == ([(5, 3, 150, 150)], 0)
    assert tracemalloc.get_traced_memory()[1] < 6 * pages.nbytes
    tracemalloc.stop()


def test_a_run_without_a_corpus(tmp_path: Path) -> None:
    assert rows_of(Run({}), tmp_path) == [] and alarms.host_sentences(None) == alarms.source_sentences(None) == []


def test_the_screen_says_it(tmp_path: Path) -> None:
    run = corpus(tmp_path / "main", [("web", "a.org", "quality", 80), ("web", "a.org", "", 20)])
    told = alarms.find(run, 0.5, tmp_path / ".hosts")
    lines = summary.summary_lines({"alarms": told}, None, Path("report.html"))
    (words,) = [text for name, text in lines if name == "note"]
    assert words.startswith("source web loses 80% of its documents to quality: 80 of 100; ")
    assert "skip_filters" in words and not any("a.org" in text for _, text in lines), "hosts are on the page"


@pytest.mark.parametrize("pages", [False, True])
def test_what_to_do_fits_the_filter_and_names_what_the_page_has(pages: bool) -> None:
    rows = [alarms._alarm_row("source", "web", stage, 10, 9) for stage in ("language", "quality")]
    language, quality = alarms.sentences_with_advice({"rows": rows, "pages": pages})
    assert "language.select.languages" in language and "skip_filters" not in language, "it was asked for"
    assert "skip_filters" in quality
    link = "Pages of every filter"
    assert (link in language) == (link in quality) == pages and "Inspect" not in language
    assert f">{link}</a>" in (Path(alarms.__file__).parent / "report.html.j2").read_text(encoding="utf-8")


def test_the_page_says_it_beside_the_funnel(run_folder: Path) -> None:
    settings = {"samples": 1, "sample_characters": 300, "seed": 0, "alarm_share": 0.1}
    config = json.dumps({"step": "report.render", "config": settings})
    out = run_folder / "report/render/manifest.json"
    assert (
        render.main(["--config", config, "--manifest", str(out), "--manifests", *map(str, manifests_of(run_folder))])
        == 0
    )
    page = out.with_name("report.html").read_text(encoding="utf-8")
    assert page.index("Alarm: source crawl loses 13% of its documents to quality: 8 of 60") > page.index('id="funnel"')
    assert json.loads(out.with_name("counts.json").read_text())["alarms"]["share"] == 0.1
