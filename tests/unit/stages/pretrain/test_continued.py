"""pretrain.continue as a program: a longer context, shares of sources and new tokens; stops, processes and engines change nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.pretrain import continued
from crawl2llm.stages.pretrain.settings import ContinueSettings
from crawl2llm.training.mix_shares import Group
from crawl2llm.training.processes import RESUBMIT
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.conftest import build
from tests.unit.stages.pretrain.copies import finished

STEPS, CONTEXT = 12, 64
KEYS: dict[str, Any] = {
    "tokens": STEPS * 4 * CONTEXT,
    "batch_tokens": 4 * CONTEXT,
    "micro_batch": 2,
    "threads": 1,
    "validation_tokens": 1500,
    "learning_rate": 0.01,
    "schedule": "wsd",
    "engine": "torch",
    "context": CONTEXT,
    "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
    "shares": {"books": 0.25},
    "new_tokens": ["<|tool|>"],
}


@pytest.fixture(scope="module")
def parent(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a Llama with a context of 32 tokens, a base of RoPE of its own, and the tokenizer of the shards."""
    folder = tmp_path_factory.mktemp("parent")
    shape = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    build(shape, 0).save_pretrained(folder / "model")
    for path in tokenizer.parent.glob("tokenizer*.json"):
        (folder / "model" / path.name).write_bytes(path.read_bytes())
    Manifest("pretrain.train", "0" * 16).write(folder / "manifest.json", list((folder / "model").iterdir()))
    return folder / "manifest.json"


def start_training(parent: Path, tokens: list[Path], out: Path, processes: int = 1, **keys: Any) -> copies.Launched:
    out.mkdir(parents=True, exist_ok=True)
    entry = {"from": "base", "step": "pretrain.continue", **KEYS, **keys}
    (out / "config.json").write_text(json.dumps({"models": {"more": entry}}))
    options = [
        "--config", str(out / "config.json"), "--model", str(parent), "--tokens", *map(str, tokens), "--device", "cpu",
        "--checkpoints", str(out / "checkpoints"), "--manifest", str(out / "more.manifest.json"), "--checkpoint-every", "3",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = "crawl2llm.stages.pretrain.continue"
    return copies.Launched(["--processes", str(processes), program, *options], out, environment)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "more/losses.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(parent: Path, sourced: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on without a stop."""
    out = tmp_path_factory.mktemp("unbroken")
    finished(start_training(parent, sourced, out))
    return out


@pytest.mark.slow
def test_a_longer_context_shares_and_a_new_token(unbroken: Path, parent: Path) -> None:
    summary, out = Manifest.read(unbroken / "more.manifest.json").summary, unbroken / "more/model"
    assert (summary["steps"], summary["context"], summary["vocabulary"]) == (STEPS, CONTEXT, 301)
    assert summary["validation_loss_after"] < summary["validation_loss_before"] - 0.3
    made, before = (AutoConfig.from_pretrained(folder) for folder in (out, parent.parent / "model"))
    assert (made.max_position_embeddings, before.max_position_embeddings) == (CONTEXT, 32)
    assert made.rope_parameters["rope_type"] == "yarn" and made.rope_parameters["rope_theta"] == 5000.0
    assert AutoTokenizer.from_pretrained(out)("<|tool|>")["input_ids"] == [300]
    assert AutoModelForCausalLM.from_pretrained(out).get_input_embeddings().weight.shape[0] == 301
    assert summary["by_group"]["books"]["share"] == 0.25
    assert {name for row in rows(unbroken) for name in row["tokens_by_group"]} == {"books", "web"}
    assert not list((unbroken / "checkpoints").rglob("*.safetensors"))


@pytest.mark.slow
def test_stopped_and_resumed_to_the_same_bytes(
    unbroken: Path, parent: Path, sourced: list[Path], tmp_path: Path
) -> None:
    process = start_training(parent, sourced, tmp_path)
    while process.poll() is None and not list(tmp_path.glob("checkpoints/*/step-000003/checkpoint.json")):
        pass
    process.send_signal(signal.SIGTERM)
    finished(process, RESUBMIT)
    finished(start_training(parent, sourced, tmp_path))
    for name in ("more.manifest.json", "more/losses.jsonl", "more/model/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (unbroken / name).read_bytes(), name


@pytest.mark.slow
def test_two_processes_of_deepspeed_come_to_the_same(
    unbroken: Path, parent: Path, sourced: list[Path], tmp_path: Path
) -> None:
    finished(start_training(parent, sourced, tmp_path, 2, engine="deepspeed", zero_stage=1))
    assert [row["loss"] for row in rows(tmp_path)] == pytest.approx([row["loss"] for row in rows(unbroken)], rel=1e-3)


@pytest.mark.slow
def test_it_begins_where_its_parent_ended(parent: Path, sourced: list[Path], tmp_path: Path) -> None:
    """The first loss is that of the parent, on all sources by their tokens; the tokenizer stays byte for byte."""
    keys = {"context": None, "rope_parameters": None, "shares": {}, "new_tokens": []}
    finished(start_training(parent, sourced, tmp_path, **keys))
    model = AutoModelForCausalLM.from_pretrained(parent.parent / "model")
    settings = ContinueSettings(**{**KEYS, **keys})
    windows = continued.Windows(sourced, settings, 32, 0, 1, "pretrain.continue", settings.tokens)
    inputs = torch.cat([inputs for inputs, _ in windows.micro_batches(1, 0)])
    targets = torch.cat([targets for _, targets in windows.micro_batches(1, 0)])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten())
    assert rows(tmp_path)[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    file = "tokenizer.json"
    assert (tmp_path / "more/model" / file).read_bytes() == (parent.parent / "model" / file).read_bytes()


def test_shares_of_sources() -> None:
    groups = [Group("a", 100, 3), Group("b", 300, 9), Group("c", 600, 18), Group("d", 9, 0)]
    assert continued.group_shares({"a": 0.2}, groups, "x") == pytest.approx([0.2, 0.8 / 3, 1.6 / 3, 0])
    with pytest.raises(InputError, match=r"x.shares names 'd', whose training text has no window; .* a, b, c"):
        continued.group_shares({"d": 0.1}, groups, "x")
    with pytest.raises(
        InputError, match=r"x.shares add up to 0.5, not to 1, and the training text has no other source"
    ):
        continued.group_shares({"a": 0.5}, groups[:1], "x")
