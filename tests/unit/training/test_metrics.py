"""The rows of a run: on the disk before a checkpoint counts, and cut back to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training import metrics

SHOWN = [2.5, 2.25, 2.0]


def recording(folder: Path, step: int, begun: int, tensorboard: bool = False) -> metrics.Recorder:
    return metrics.Recorder(folder, step, begun, tensorboard=tensorboard, wandb="disabled", project="", config={})


def test_rows_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: dict[str, int] = {}
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        forced[path.name] = path.stat().st_size
        fsync(descriptor)

    recorder = recording(tmp_path, 0, 0)
    monkeypatch.setattr(os, "fsync", spy)
    recorder.write_loss({"step": 1, "loss": 2.5})
    recorder.write_metrics({"step": 1, "loss": 2.5, "mfu": None})
    recorder.sync()
    assert {name: forced[name] for name in (metrics.LOSSES, metrics.METRICS)} == {
        name: (tmp_path / name).stat().st_size for name in (metrics.LOSSES, metrics.METRICS)
    }
    assert forced[metrics.LOSSES] > 0
    recorder.close()
    assert [row["step"] for row in metrics.keep_rows_until(tmp_path / metrics.LOSSES, 0)] == []


def test_what_was_shown_is_written_after_an_error_too(tmp_path: Path) -> None:
    """TensorBoard holds rows back for two minutes, and a training ends with os._exit."""
    with pytest.raises(InputError, match="the error itself"), recording(tmp_path, 0, 0, tensorboard=True) as recorder:
        show(recorder)
        raise InputError("the error itself")
    assert shown(tmp_path) == SHOWN and all(handle.closed for handle in recorder.files.values())


def test_what_cannot_be_closed_hides_no_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the error itself"), recording(tmp_path, 0, 0, tensorboard=True) as recorder:
        show(recorder)
        recorder.files[metrics.LOSSES].close()  # as after a rewrite that failed: it can be synced no more
        raise InputError("the error itself")
    assert shown(tmp_path) == SHOWN and recorder.files[metrics.METRICS].closed
    with pytest.raises(ValueError, match="closed file"), recording(tmp_path, 3, 3) as recorder:
        recorder.files[metrics.LOSSES].close()


def show(recorder: metrics.Recorder) -> None:
    for step, loss in enumerate(SHOWN, 1):
        recorder.write_metrics({"step": step, "loss": loss})


def shown(folder: Path) -> list[float]:
    """The losses in TensorBoard's event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return [one.value for one in found.Scalars("loss")] if "loss" in found.Tags()["scalars"] else []


def test_a_run_that_begins_again_has_no_row_of_step_0_yet(tmp_path: Path) -> None:
    """Of an attempt that was killed before its first checkpoint nothing is continued."""
    for _ in range(2):
        with recording(tmp_path, 0, 0, tensorboard=True) as recorder:
            assert metrics.read(tmp_path / metrics.METRICS) == []
            recorder.write_metrics({"step": 0, "loss": 3.0})
    assert shown(tmp_path) == [3.0]
    with recording(tmp_path, 0, 0) as recorder:
        for step in range(3):
            recorder.write_metrics({"step": step, "loss": 3.0})
            recorder.write_loss({"step": step, "loss": 3.0})
    with recording(tmp_path, 1, 0):
        assert [row["step"] for row in metrics.read(tmp_path / metrics.METRICS)] == [0, 1]


def test_rows_that_are_gone_are_missed(tmp_path: Path) -> None:
    """Those of a curve that a checkpoint counts on; what was being written when the run was killed is no loss."""
    path = tmp_path / metrics.LOSSES
    lines = [f'{{"step": {step}, "loss": 2.5}}' for step in range(1, 7)]
    lines.insert(4, '{"step": 4, "validation_loss": 2.4, "bits_per_byte": 1.1}')
    path.write_text("\n".join([*lines, '{"step": 7, "lo']))
    assert len(metrics.read(path)) == 7
    recorder = recording(tmp_path, 6, 0)
    recorder.close()
    path.write_text("\n".join([*lines[:2], '{"step": 3, "lo', *lines[3:]]))
    with pytest.raises(InputError, match=r"losses\.jsonl, line 3 is not JSON: put the file back"):
        metrics.read(path)
    path.write_text("\n".join([*lines[:2], *lines[3:]]))
    with pytest.raises(InputError, match=r"losses\.jsonl lacks 1 of 6 steps, the first is 3: put the file back"):
        recording(tmp_path, 6, 0)
    path.unlink()
    with pytest.raises(InputError, match=r"lacks 6 of 6 steps"):
        recording(tmp_path, 6, 0)
    recording(tmp_path, 6, 6).close()  # a branch that begins here


def test_a_run_that_starts_anew_has_a_curve_of_its_own(tmp_path: Path) -> None:
    """The one that other code finished was moved out of the folder, and W&B still has its curve."""
    folder = tmp_path / "abc"
    folder.mkdir()
    assert metrics.run_id(folder) == "abc"
    (tmp_path / "abc-12345678").mkdir()
    assert metrics.run_id(folder) == "abc-1"
