"""The rows of a run: on the disk before a checkpoint counts, and cut back to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.pretrain import metrics
from scripts.workflow.errors import InputError


def test_rows_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: dict[str, int] = {}
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        forced[path.name] = path.stat().st_size
        fsync(descriptor)

    recorder = metrics.Recorder(tmp_path, 0, 0, False, "disabled", "", {})
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


def test_rows_that_are_gone_are_missed(tmp_path: Path) -> None:
    """Those of a curve that a checkpoint counts on; what was being written when the run was killed is no loss."""
    path = tmp_path / metrics.LOSSES
    lines = [f'{{"step": {step}, "loss": 2.5}}' for step in range(1, 7)]
    lines.insert(4, '{"step": 4, "validation_loss": 2.4, "bits_per_byte": 1.1}')
    path.write_text("\n".join([*lines, '{"step": 7, "lo']))
    assert len(metrics.read(path)) == 7
    recorder = metrics.Recorder(tmp_path, 6, 0, False, "disabled", "", {})
    recorder.close()
    path.write_text("\n".join([*lines[:2], '{"step": 3, "lo', *lines[3:]]))
    with pytest.raises(InputError, match=r"losses\.jsonl, line 3 is not JSON: put the file back"):
        metrics.read(path)
    path.write_text("\n".join([*lines[:2], *lines[3:]]))
    with pytest.raises(InputError, match=r"losses\.jsonl lacks 1 of 6 steps, the first is 3: put the file back"):
        metrics.Recorder(tmp_path, 6, 0, False, "disabled", "", {})
    path.unlink()
    with pytest.raises(InputError, match=r"lacks 6 of 6 steps"):
        metrics.Recorder(tmp_path, 6, 0, False, "disabled", "", {})
    metrics.Recorder(tmp_path, 6, 6, False, "disabled", "", {}).close()  # a branch that begins here


def test_a_run_that_starts_anew_has_a_curve_of_its_own(tmp_path: Path) -> None:
    """The one that other code finished was moved out of the folder, and W&B still has its curve."""
    folder = tmp_path / "abc"
    folder.mkdir()
    assert metrics.run_id(folder) == "abc"
    (tmp_path / "abc-12345678").mkdir()
    assert metrics.run_id(folder) == "abc-1"
