"""A spike that stays: back to the checkpoint before it, on with other batches, and the same after a kill."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.training.callbacks.roll_back import ROW, rows_until
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.stages.pretrain.test_nonfinite import poisoned

pytestmark = pytest.mark.slow  # starts trainings
CHANGES = {
    "steps": 34, "spike_sigma": 6, "spike_window": 20, "validate_every": 15,
    "roll_backs": 1, "roll_back_after": 2, "roll_back_every": 10,
}  # fmt: skip
POISON = "steep:24 high:26"  # noticed after step 26, whose run of the last 20 steps began to fail at 24: back to 20
ENGINES = [{"zero_stage": 1}, {"zero_stage": 3, "precision": "bf16", "engine": "torch"}]


@pytest.mark.parametrize("more", [pytest.param(ENGINES[0], marks=pytest.mark.long), ENGINES[1]])
def test_goes_back_and_leaves_the_batches_out(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    """As the run that never saw those batches, byte for byte; checkpoints that are asked for elsewhere change nothing."""
    whole, other = tmp_path / "whole", tmp_path / "other"
    errors = finish(poisoned(start, whole, POISON, 2, CHANGES | more))
    assert (
        "2 of the steps up to 26 were skipped: back to step 20, and on with the batches after it (1 of at most 1 times)"
        in errors
    )
    finish(poisoned(start, other, "", 2, CHANGES | more, "--checkpoint-every", "100", AHEAD="20:6"))
    files = [(folder / "out/model/model.safetensors").read_bytes() for folder in (whole, other)]
    assert files[0] == files[1]

    thrown = {"from": 26, "to": 20, "skipped_steps": [24, 26], "sequences": 48}
    found = rows(whole / "out/losses.jsonl")
    assert [row for row in found if ROW in row] == [{"step": 20, ROW: 1, **thrown}]
    assert [row for row in found if ROW not in row] == rows(other / "out/losses.jsonl")
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["rolled_back"] == [thrown] and summary["skipped_steps"] == [] and summary["steps"] == 34
    assert any(note.startswith("After step 26 it went back to step 20") for note in summary["notes"])
    assert [row["step"] for row in rows(whole / "out/metrics.jsonl") if "loss" in row] == list(range(1, 35))


@pytest.mark.long
@pytest.mark.parametrize("killed", ["while it goes back", "later"])
def test_killed_and_resumed_is_the_same(start: Any, tmp_path: Path, killed: str) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(poisoned(start, whole, POISON, 2, CHANGES))
    process = poisoned(start, broken, POISON, 2, CHANGES)
    if killed == "later":
        wait_for(process, broken, "checkpoints/*/step-000030")
    else:
        wait_for(process, broken, "checkpoints/*/step-000020")
        log = next(broken.glob("checkpoints/*/losses.jsonl"))
        while ROW not in log.read_text():
            assert process.poll() is None
            time.sleep(0.002)
    kill(process)
    assert "resuming after step" in finish(poisoned(start, broken, POISON, 2, CHANGES))
    same(whole, broken)


def test_no_more_than_roll_backs_and_not_before_the_first_point(start: Any, tmp_path: Path) -> None:
    """The second spike is not gone back from; a spike before the first point neither."""
    errors = finish(
        poisoned(
            start, tmp_path / "twice", "steep:24,52 high:26,54", 1, CHANGES | {"steps": 50}, "--max-skipped-steps", "2"
        )
    )
    assert errors.count("back to step") == 1
    summary = json.loads((tmp_path / "twice/out/manifest.json").read_text())["summary"]
    assert len(summary["rolled_back"]) == 1 and summary["skipped_steps"] == [46, 48]
    early = CHANGES | {"roll_back_every": 25}
    errors = finish(poisoned(start, tmp_path / "early", "gradient:22,24", 1, early))
    assert "back to step" not in errors


def test_twice_is_the_same_whatever_is_kept(start: Any, tmp_path: Path) -> None:
    """Steps that were skipped before the point that it went back to are no reason to go further back, where no checkpoint is left."""
    changes = {
        "steps": 40, "spike_window": 20, "roll_backs": 3, "roll_back_after": 2, "roll_back_every": 5, "engine": "torch", "zero_stage": 0,
    }  # fmt: skip
    for name, number in (("few", "2"), ("many", "30")):
        errors = finish(
            poisoned(start, tmp_path / name, "gradient:10,30,31,33", 1, changes, "--keep-checkpoints", number)
        )
        assert errors.count("back to step") == 1 and "back to step 25" in errors
    same(tmp_path / "few", tmp_path / "many")


def test_rows_of_earlier_ways_stay_known() -> None:
    found = [{"step": 1}, {"step": 8, ROW: 1}, {"step": 9}]
    assert rows_until(found, 5) == [{"step": 1}, {"step": 5, ROW: 1}]


@pytest.mark.long
@pytest.mark.parametrize("more", ENGINES)
def test_with_all_else_that_a_checkpoint_holds(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    """A ramp, an EMA of the weights, document masks and an early stop: goes back, is killed, and ends the same."""
    changes = CHANGES | more | {"ema": 0.9, "document_masking": True, "early_stop": 9}
    changes |= {"batch_ramp": [[0, 0.5], [0.3, 1]]}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert "back to step 20" in finish(poisoned(start, whole, POISON, 2, changes))
    process = poisoned(start, broken, POISON, 2, changes)
    wait_for(process, broken, "checkpoints/*/step-000030")
    kill(process)
    assert "resuming after step" in finish(poisoned(start, broken, POISON, 2, changes))
    same(whole, broken)
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["rolled_back"][0]["sequences"] == 48 and summary["early_stop"]["best_step"] == 34
    assert summary["tokens"] == 32 * (10 * 4 + 24 * 8)
