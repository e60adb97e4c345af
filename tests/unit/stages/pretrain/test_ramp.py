"""A batch-size ramp: the steps train on the sequences that follow, under both engines, and the same after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain import plan
from crawl2llm.training import data, schedule
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.pretraining_settings import ResolvedModel, ResolvedSettings
from tests.unit.stages.pretrain.conftest import TINY
from tests.unit.stages.pretrain.runs import finish, kill_after, rows, same
from tests.unit.training.typed import train_settings

pytestmark = pytest.mark.slow  # starts trainings
# 8, then 16, then 32 sequences: with micro-batches of 2 on two processes 2, 4 and 8 of them.
CHANGES = {
    "batch_ramp": [[0, 0.25], [0.25, 0.5], [0.5, 1]],
    "global_batch_tokens": 32 * 32,
    "steps": 16,
    "validate_every": 0,
}
ENGINES = [
    {"zero_stage": 1},
    pytest.param({"zero_stage": 3, "precision": "bf16", "engine": "torch"}, marks=pytest.mark.long),
    *(
        pytest.param({"zero_stage": stage, "precision": precision}, marks=pytest.mark.long)
        for stage, precision in ((0, "fp32"), (0, "bf16"), (1, "bf16"), (2, "fp32"), (3, "bf16"))
    ),
]


def plain(shards: list[Path], steps: int) -> list[float]:
    """The losses of a loop without any engine or accumulation, in fp32."""
    from crawl2llm.training import initial, model

    wanted = train_settings(**TINY | CHANGES, epochs=None)
    stream = data.open_split(shards, "train")
    made = schedule.make_plan(cast(ResolvedSettings, wanted), len(stream))
    shape = model.build_config(cast(ResolvedModel, wanted.model), 300, 0)
    built = initial.fill_model(initial.empty_model(shape), torch.device("cpu"), initial.random_weights(shape, 0))
    moves = torch.optim.AdamW(
        model.parameter_groups(built, EngineSettings.of_pretraining(wanted)), lr=0.005, betas=(0.9, 0.95), eps=1e-8
    )
    found, at = [], 0
    for step, size in zip(range(1, steps + 1), [8] * 4 + [16] * 4 + [32] * 8, strict=False):
        order = np.arange(at, at + size)
        at += size
        tokens = torch.from_numpy(data.read_windows(stream, data.permute(order, made.windows, 0, 0), 32))
        for group in moves.param_groups:
            group["lr"] = schedule.learning_rate(step, 16, EngineSettings.of_pretraining(wanted))
        logits = built(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(built.parameters(), 1.0)
        moves.step()
        moves.zero_grad()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("more", ENGINES)
def test_as_a_plain_loop_and_after_a_kill(start: Any, tmp_path: Path, shards: list[Path], more: dict[str, Any]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole, 2, CHANGES | more))
    kill_after(start, killed, 5, 2, CHANGES | more)
    assert "resuming after step" in finish(start(killed, 2, CHANGES | more))
    same(whole, killed)
    losses = [row["loss"] for row in rows(whole / "out/losses.jsonl") if "loss" in row]
    assert losses == pytest.approx(plain(shards, 16), abs=2e-3 if more.get("precision") else 2e-5)
    tokens = 32 * (4 * 8 + 4 * 16 + 8 * 32)
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["tokens"] == tokens and summary["steps"] == 16 and summary["global_batch_tokens"] == 1024
    assert [row["tokens"] for row in rows(whole / "out/metrics.jsonl") if "tokens" in row][-1] == tokens
    train = train_settings(**TINY | CHANGES, epochs=None)
    planned = plan.training_facts(train, len(data.open_split(shards, "train")), 300)
    assert planned["tokens"] == tokens and planned["epochs"] == pytest.approx(summary["epochs"])
    assert Manifest.of_task(whole / "out/manifest.json").summary["epochs"] < 1


def test_a_micro_batch_that_no_stage_divides_is_refused(start: Any, tmp_path: Path) -> None:
    errors = finish(start(tmp_path, 2, CHANGES, "--micro-batch", "8"), 1)
    assert "batch_ramp has steps of 8 of the 32 sequences" in errors and "the nearest shares are 0.5" in errors
