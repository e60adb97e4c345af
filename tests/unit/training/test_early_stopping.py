"""Early stop: where a run ends, whose weights it exports, and that it is complete when it is started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, export
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.training.typed import train_settings

# A constant rate so high that validation soon gets worse.
CHANGES = {
    "early_stop": 2,
    "validate_every": 2,
    "steps": 60,
    "learning_rate": 0.3,
    "schedule": "constant",
    "warmup": 0.0,
}


@pytest.mark.slow  # starts trainings
def test_stops_with_the_best_weights(start: Any, tmp_path: Path) -> None:
    stops(start, tmp_path, 1, {})


@pytest.mark.long
@pytest.mark.parametrize(
    "more", [{"zero_stage": 1}, {"zero_stage": 3, "precision": "bf16", "engine": "torch", "ema": 0.5}]
)
def test_stops_where_it_was_killed_too(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    best, end = stops(start, whole, 2, more)
    process = start(killed, 2, CHANGES | more)
    wait_for(process, killed, f"checkpoints/*/step-{best:06d}")
    kill(process)
    finish(start(killed, 2, CHANGES | more))
    same(whole, killed)

    before = (whole / "out/run.json").read_bytes()
    errors = finish(start(whole, 2, CHANGES | more))
    assert f"resuming after step {end} of" in errors and "step 1/60" not in errors
    same(whole, killed)
    assert (whole / "out/run.json").read_bytes() == before


def stops(start: Any, whole: Path, processes: int, more: dict[str, Any]) -> tuple[int, int]:
    """Train in `whole`; (the step of the best weights, the last step)."""
    errors = finish(start(whole, processes, CHANGES | more, "--log-every", "1000"))
    assert "stopped early after step" in errors
    found = rows(whole / "out/losses.jsonl")
    scores = {row["step"]: row["validation_loss"] for row in found if "validation_loss" in row}
    best = min(scores, key=lambda step: scores[step])
    end = max(scores)
    assert end == best + 4 < 60 and found[-1]["stopped_early"] and found[-1]["step"] == end
    assert sum("stopped_early" in row for row in found) == 1
    (shown,) = (row for row in rows(whole / "out/metrics.jsonl") if "tokens" in row)  # of the last step, logged or not
    assert (shown["step"], shown["tokens"]) == (end, end * 256) and shown["loss"] > 0 and shown["compute_seconds"] > 0
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["early_stop"] == {"after_step": end, "best_step": best} and summary["steps"] == end
    assert summary["tokens"] == end * 256 and summary["validation_loss"] == scores[best]
    assert any(note.startswith(f"It stopped early, after step {end} of 60") for note in summary["notes"])
    (kept,) = whole.glob(f"checkpoints/*/step-{best:06d}")
    assert export.main([str(kept), str(whole / "best")]) == 0
    weights = (whole / "out/model/model.safetensors").read_bytes()
    assert (whole / "best/model.safetensors").read_bytes() == weights
    return best, end


@pytest.mark.slow
def test_a_run_that_gets_better_to_its_end_does_not_stop(start: Any, tmp_path: Path) -> None:
    finish(start(tmp_path, 1, {"early_stop": 2, "steps": 12, "validate_every": 4}))
    summary = json.loads((tmp_path / "out/manifest.json").read_text())["summary"]
    assert summary["early_stop"] == {"after_step": None, "best_step": 12} and summary["steps"] == 12


def test_needs_validations() -> None:
    with pytest.raises(InputError, match="early_stop is 2, and pretrain"):
        checks.check_early_stop(train_settings(early_stop=2, validate_every=0))
    checks.check_early_stop(train_settings(early_stop=None, validate_every=0))
