"""A task that can be checked, from a model that was pre-trained and fine-tuned: what docs/stages/align.md says of the demo's."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import pairs
from tests.unit.stages.align.launching import arguments, launched, rows
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain.copies import finished

DEMO = Path(os.environ.get("CRAWL2LLM_DEMO", "."), "results/main/finetune")
SETTINGS = {
    "method": "grpo",
    "rewards": [{"reward": "format", "pattern": r"Set [^.]*\."}],
    "kl_coefficient": 0.1,
    "epochs": 0.25,
    "batch_size": 8,
    "generations": 8,
    "micro_batch": 32,
    "max_length": 96,
    "learning_rate": 5e-4,
    "engine": "torch",
    "zero_stage": 0,
    "threads": 1,
}
BOUND = 0.35  # nats a token that the loss on held-out answers may rise by


PPO = {"method": "ppo", "kl_coefficient": 0.1, "value_coefficient": 0.5, "epochs": 0.125}  # four updates a step


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(
    not (DEMO / "train/sft.manifest.json").exists(), reason="CRAWL2LLM_DEMO names no folder of a finished demo"
)
@pytest.mark.parametrize("own", [{}, PPO], ids=["grpo", "ppo"])
def test_answers_take_the_wanted_format_and_the_model_keeps_what_it_knew(
    tmp_path: Path, own: dict[str, object]
) -> None:
    prompts = tmp_path / "pairs/manifest.json"
    options = ["--config", tiny.config("align.pairs"), "--pairs", str(DEMO / "pairs/manifest.json")]
    assert pairs.main([*options, "--manifest", str(prompts)]) == 0
    given = arguments(DEMO / "train/sft.manifest.json", prompts, tmp_path / "out", **{**SETTINGS, **own})
    finished(launched([*given, "--measure-every", "10"], 2))
    summary = Manifest.read(tmp_path / "out/made.manifest.json").summary
    assert summary["heldout_reward_before"] < 0.2 and summary["heldout_reward_after"] > 0.8
    assert summary["heldout_answer_loss_after"] < summary["heldout_answer_loss_before"] + BOUND
    # One rare token may be most of a step's estimate.
    assert median([row["kl"] for row in rows(tmp_path / "out/made/metrics.jsonl") if "kl" in row][-10:]) < 1
