"""The rows of a run: on the disk before a checkpoint counts, and cut back to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.pretrain import metrics


def test_rows_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: dict[str, int] = {}
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        forced[path.name] = path.stat().st_size
        fsync(descriptor)

    recorder = metrics.Recorder(tmp_path, 0, False, "disabled", "", {})
    monkeypatch.setattr(os, "fsync", spy)
    recorder.loss({"step": 1, "loss": 2.5})
    recorder.metrics({"step": 1, "loss": 2.5, "mfu": None})
    recorder.sync()
    assert {name: forced[name] for name in (metrics.LOSSES, metrics.METRICS)} == {
        name: (tmp_path / name).stat().st_size for name in (metrics.LOSSES, metrics.METRICS)
    }
    assert forced[metrics.LOSSES] > 0
    recorder.close()
    assert [row["step"] for row in metrics.cut(tmp_path / metrics.LOSSES, 0)] == []


def test_a_run_that_starts_anew_has_a_curve_of_its_own(tmp_path: Path) -> None:
    """The one that other code finished was moved out of the folder, and W&B still has its curve."""
    folder = tmp_path / "abc"
    folder.mkdir()
    assert metrics.run_id(folder) == "abc"
    (tmp_path / "abc-12345678").mkdir()
    assert metrics.run_id(folder) == "abc-1"
