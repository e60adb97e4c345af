"""compress.prune as a program: what it writes, that it trains on, stops and resumes to the same bytes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from crawl2llm.chain.config import validate
from crawl2llm.commands.plan import tuning
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import prune, retrain
from crawl2llm.stages.compress.settings import PruneSettings
from crawl2llm.training import text_run
from crawl2llm.training.processes import RESUBMIT
from tests.unit.stages.compress.conftest import config, tiny
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.copies import finished

pytestmark = pytest.mark.slow  # starts trainings

SMALL = {
    "batch_tokens": 8 * tiny.CONTEXT,
    "micro_batch": 4,
    "threads": 1,
    "calibration_tokens": 2048,
    "validation_tokens": 3000,
}
STEPS = 12
TRAINED = {**SMALL, "retrain_tokens": STEPS * SMALL["batch_tokens"], "learning_rate": 0.003}


def started(base: Path, tokens: list[Path], out: Path, processes: int = 1, **keys: Any) -> copies.Launched:
    out.mkdir(parents=True, exist_ok=True)
    options = [
        "--config", config(out, "small", "compress.prune", **keys), "--model", str(base), "--tokens", *map(str, tokens),
        "--checkpoints", str(out / "checkpoints"), "--manifest", str(out / "small.manifest.json"), "--checkpoint-every", "5",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return copies.Launched(
        ["--processes", str(processes), "crawl2llm.stages.compress.prune", *options], out, environment
    )


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "small/model/model.safetensors")


def zeros(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value == 0 for name, value in held.items() if name.endswith("proj.weight")}


@pytest.fixture(scope="module")
def sparse(base: Path, tokens: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with half of its weights zero that was trained on, by DeepSpeed."""
    out = tmp_path_factory.mktemp("sparse")
    finished(started(base, tokens, out, method="magnitude", **TRAINED))
    return out


def test_zeros_stay_and_the_others_train(sparse: Path, base: Path) -> None:
    summary = Manifest.read(sparse / "small.manifest.json").summary
    assert summary["steps"] == STEPS and summary["pruned_loss_after"] < summary["pruned_loss_before"] - 0.1
    before, after = load_file(base.parent / "model/model.safetensors"), weights(sparse)
    for name, mask in zeros(after).items():
        assert int(mask.sum()) == mask.numel() // 2, name
        assert before[name][mask].abs().max() <= before[name][~mask].abs().min()
        assert (after[name] != before[name])[~mask].float().mean() > 0.9
    assert summary["zeros"] == sum(int(mask.sum()) for mask in zeros(after).values())
    AutoModelForCausalLM.from_pretrained(sparse / "small/model")
    assert not list((sparse / "checkpoints").rglob("*.safetensors")), "checkpoints and the pruned model are removed"


def test_stopped_and_resumed_to_the_same_bytes(sparse: Path, base: Path, tokens: list[Path], tmp_path: Path) -> None:
    process = started(base, tokens, tmp_path, method="magnitude", **TRAINED)
    while process.poll() is None and not list(tmp_path.glob("checkpoints/*/step-000005/checkpoint.json")):
        pass
    process.send_signal(signal.SIGTERM)
    finished(process, RESUBMIT)
    finished(started(base, tokens, tmp_path, method="magnitude", **TRAINED))
    for name in ("small.manifest.json", "small/losses.jsonl", "small/model/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (sparse / name).read_bytes(), name


@pytest.mark.long
def test_two_processes_of_torch_come_to_the_same(sparse: Path, base: Path, tokens: list[Path], tmp_path: Path) -> None:
    finished(started(base, tokens, tmp_path, 2, method="magnitude", **TRAINED, engine="torch"))
    one, other = weights(sparse), weights(tmp_path)
    assert all(torch.equal(mask, zeros(one)[name]) for name, mask in zeros(other).items())
    losses = [Manifest.read(out / "small.manifest.json").summary["pruned_loss_after"] for out in (sparse, tmp_path)]
    assert losses[0] == pytest.approx(losses[1], abs=0.01)


def test_two_of_four_without_training_gives_the_same_bytes_again(
    base: Path, tokens: list[Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        finished(started(base, tokens, tmp_path / name, method="2:4", **SMALL))
    held = weights(tmp_path / "one")
    for mask in zeros(held).values():
        assert (mask.reshape(-1, 4).sum(1) == 2).all()
    assert (tmp_path / "one/small.manifest.json").read_bytes() == (tmp_path / "two/small.manifest.json").read_bytes()


def test_a_structured_model_is_smaller_and_trains_on(base: Path, tokens: list[Path], tmp_path: Path) -> None:
    finished(
        started(base, tokens, tmp_path, 2, layers=0.5, heads=0.5, neurons=0.25, **TRAINED, engine="torch", zero_stage=3)
    )
    summary = Manifest.read(tmp_path / "small.manifest.json").summary
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small/model")
    shape = model.config
    assert (shape.num_hidden_layers, shape.num_attention_heads, shape.num_key_value_heads) == (1, 2, 1)
    assert (shape.intermediate_size, shape.head_dim) == (32, 16)
    assert summary["parameters"] == model.num_parameters() < 0.7 * summary["parameters_before"]
    assert summary["bytes"] < 0.7 * summary["bytes_before"]
    assert summary["pruned_loss_after"] < summary["pruned_loss_before"] - 0.1
    assert summary["layers"] == len(summary["kept_layers"]) == 1 and len(summary["block_influence"]) == 2
    entry = {
        "from": "root",
        "step": "compress.prune",
        "layers": 0.5,
        "heads": 0.5,
        "neurons": 0.25,
        "processes": 2,
        **TRAINED,
    }
    models = {"root": {"path": str(base.parent / "model")}, "small": {**entry, "engine": "torch", "zero_stage": 3}}
    tree = validate({"models": models})
    planned = tuning.tuning_of(tree, "compress.prune", "small", tuning.published_shape(tree, "small"))
    estimated = json.loads((tmp_path / "small.run.json").read_text())["estimated_memory_bytes"]
    assert sum(planned.memory_parts(False).values()) == pytest.approx(estimated, rel=1e-4), "the plan's is the step's"


def test_wrong_keys_are_named(tokens: list[Path]) -> None:
    for keys, masked, processes, said in (
        (
            {"zero_stage": 1, "method": "magnitude"},
            True,
            1,
            "zero_stage is 1; zeros of method 'magnitude' or '2:4' stay zero under stage 0 alone",
        ),
        (
            {"batch_tokens": 512},
            False,
            9,
            "compress.prune.batch_tokens is 512, 8 windows, fewer than the 9 processes: raise it",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            settings = PruneSettings(**keys)
            text_run.check_processes(settings, 8, processes, retrain.WHERE)
            retrain.check_zeros(settings, masked)
    with pytest.raises(
        InputError, match="batch_tokens is 100; it must be a multiple of the model's context, 64 tokens"
    ):
        text_run.Windows(tokens, PruneSettings(batch_tokens=100), tiny.CONTEXT, 0, 1, retrain.WHERE)


def test_a_pruned_model_of_other_code_is_made_again(tmp_path: Path) -> None:
    """Until it was trained on: a checkpoint goes on from what it began with, and says which code took part."""
    facts = {"masked": [], "zeros": 0}
    (tmp_path / "pruned.json").write_text(json.dumps({**facts, "code": "before"}))
    assert prune.read_facts(tmp_path) is None
    (tmp_path / "pruned.json").write_text(json.dumps({**facts, "code": prune.code_digest()}))
    assert prune.read_facts(tmp_path) == {**facts, "code": prune.code_digest()}
