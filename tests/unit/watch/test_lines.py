"""The lines of a run without a terminal stay few, however long it takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.watch import lines as module
from scripts.watch.lines import Lines
from scripts.watch.run import Run


def test_a_day_of_one_task_takes_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    run, said = Run(tmp_path, 0), []
    run.plan({"pretrain_train": 1})
    run.start(SimpleNamespace(jobid=1, rule_name="pretrain_train", wildcards={}, log=[], output=[], shellcmd=""), 0)
    lines = Lines(run, said.append)
    for second in range(86_400):
        now = float(second)
        lines.tick(now)
    assert 50 < len(said) < 150
    assert said[0].endswith("0 of 1 task; running pretrain.train; pretrain.train not measured yet")
