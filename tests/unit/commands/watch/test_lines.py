"""The lines of a run without a terminal stay few, however long it takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm.commands.watch import lines as module
from crawl2llm.commands.watch.lines import Lines, page_lines
from crawl2llm.commands.watch.run import Run


def test_a_day_of_one_task_takes_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    run, said = Run(tmp_path, 0), []
    run.set_plan({"pretrain_train": 1})
    run.start_task(
        SimpleNamespace(jobid=1, rule_name="pretrain_train", wildcards={}, log=[], output=[], shellcmd=""), 0
    )
    lines = Lines(run, said.append)
    for second in range(86_400):
        now = float(second)
        lines.show_progress(now)
    assert 50 < len(said) < 150
    assert said[0].endswith("0 of 1 task; running pretrain.train; pretrain.train not measured yet")


REPORT, COMPARED = "results/main/report/render/report.html", "results/main/report/compare/compare.html"


@pytest.mark.parametrize(
    ("planned", "there", "named"),
    [
        ({"report_render": 1}, [REPORT], [f"report: {REPORT}"]),
        ({"report_compare": 1}, [REPORT, COMPARED], [f"report: {REPORT}", f"all variants compared: {COMPARED}"]),
        ({"report_render": 1}, [], []),
        ({"pretrain_train": 1}, [REPORT], []),  # of an earlier run
        ({}, [REPORT], [f"report: {REPORT}"]),
    ],
)
def test_the_pages_that_a_run_made_are_named(
    tmp_path: Path, planned: dict[str, int], there: list[str], named: list[str]
) -> None:
    for path in there:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    run = Run(tmp_path, 0)
    run.set_plan(planned)
    assert page_lines(run) == named
    assert page_lines(run, elsewhere=True) == [line.replace(": ", f": {tmp_path}/") for line in named]
