"""pretrain.plan: what it writes, and that nothing of the machine is in its manifest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config, fingerprint
from crawl2llm.chain.project import Project
from crawl2llm.chain.steps import PLAN
from crawl2llm.core import atomic_folder
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.pretrain import plan
from crawl2llm.training import resource_plan
from crawl2llm.training.auto import AUTO
from crawl2llm.training.measures import flops_per_token
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings
from crawl2llm.workflow.project_checks import check_project
from tests.unit.training.typed import train_settings

OWN = PlanSettings()
LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "layers": 22, "heads": 32, "kv_heads": 4, "context": 2048}


def train(**keys: Any) -> TrainSettings:
    """The settings of pretrain.train that pretrain.plan is told."""
    tree = config.validate({"pretrain": {"train": keys}})
    return TrainSettings.model_validate(fingerprint.tracked_settings(PLAN, tree)["train"])


def test_tinyllama_has_its_published_numbers() -> None:
    """1.1 billion parameters, 32,000 entries, 3 trillion tokens: https://arxiv.org/abs/2401.02385, table 1."""
    found = plan.training_facts(
        train(model={**LLAMA, "tie_embeddings": False}, tokens=3 * 10**12, global_batch_tokens=2**21, zero_stage=2),
        None,
        32_000,
    )
    assert found["parameters"]["total"] == 1_100_048_384  # as its page on Hugging Face counts them
    assert found["tokens_per_parameter"] == pytest.approx(3e12 / 1.1e9, rel=1e-3)
    assert found["chinchilla_tokens_per_parameter"] == 20
    matrices = 1_100_048_384 - 32_000 * 2048  # the input embedding is looked up
    assert found["flops"]["per_token"] == flops_per_token(matrices, 22, 2048, 2048)
    assert found["flops"]["total"] == found["flops"]["per_token"] * found["tokens"]


def test_a_mixture_of_experts_counts_the_operations_of_those_in_use() -> None:
    shape = {
        **LLAMA,
        "type": "mixtral",
        "intermediate_size": 1024,
        "overrides": {"num_local_experts": 8, "num_experts_per_tok": 2},
    }
    found = plan.training_facts(train(model=shape, steps=10, global_batch_tokens=4096), None, 1000)
    sizes = found["parameters"]
    assert sizes["total"] - sizes["active"] == 22 * 6 * 3 * 2048 * 1024
    assert found["flops"]["per_token"] == flops_per_token(
        sizes["active"], 22, 2048, 2048
    )  # tied: the head is the embedding


def test_before_the_tokens_are_counted_it_says_what_it_can_and_no_more() -> None:
    known = plan.training_facts(train(model=LLAMA, epochs=1, global_batch_tokens=4096), None, 1000)
    assert known["parameters"]["total"] and known["flops"]["per_token"]
    assert [known[key] for key in ("tokens", "steps", "epochs", "corpus_tokens", "tokens_per_parameter")] == [None] * 5
    with pytest.raises(InputError, match=r"model\.layers, epochs are auto: known once tokenize\.encode"):
        plan.training_facts(train(model={**LLAMA, "layers": AUTO}, global_batch_tokens=4096), None, 1000)
    sized = train(model={"size": "30M", "context": 512}, steps=10, global_batch_tokens=4096)
    assert plan.training_facts(sized, None, 8192)["parameters"]["total"] == pytest.approx(30e6, rel=0.1)
    assert plan.training_facts(sized, 10**6, 8192)["parameters"] == plan.training_facts(sized, None, 8192)["parameters"]


def test_it_is_told_the_settings_of_the_training_and_no_placement() -> None:
    tree = config.validate({})
    assert fingerprint.tracked_settings(PLAN, tree) == {"train": fingerprint.tracked_settings("pretrain.train", tree)}
    own = config.validate({"pretrain": {"train": {"micro_batch": 2}, "plan": {"gpu": "h100", "gpu_hour_price": 3.0}}})
    assert fingerprint.fingerprint(PLAN, tree) == fingerprint.fingerprint(PLAN, own)
    other = config.validate({"pretrain": {"train": {"learning_rate": 0.1}}})
    assert fingerprint.fingerprint(PLAN, tree) != fingerprint.fingerprint(PLAN, other)


def test_a_key_that_is_set_is_not_said_to_be_auto() -> None:
    found = plan.training_facts(train(model=LLAMA, steps=10, learning_rate=0.1), 10**6, 1000)["auto"]
    assert "learning_rate" not in found and found["validate_every"] == 1 and found["warmup"] > 0


@pytest.mark.parametrize(
    ("keys", "each"),
    [
        ({"zero_stage": 0}, 12),
        ({"zero_stage": 1}, 16),
        ({"zero_stage": 2, "precision": "bf16"}, 14),
        ({"zero_stage": 3}, 12),
        ({"zero_stage": 3, "precision": "bf16"}, 12),
        ({"engine": "torch", "zero_stage": 1}, 12),
        ({"engine": "torch", "zero_stage": 0, "precision": "bf16"}, 12),
    ],
)
def test_a_checkpoint_has_what_its_engine_writes(keys: dict[str, Any], each: int) -> None:
    found = plan.training_facts(train(model=LLAMA, steps=10, global_batch_tokens=4096, **keys), None, 1000)
    assert found["checkpoint_bytes"] == each * found["parameters"]["total"]


def test_of_a_run_that_goes_on_from_a_checkpoint_it_plans_the_steps_that_are_left(tmp_path: Path) -> None:
    model, folder = {**LLAMA, "context": 32}, tmp_path / "step-000015"
    folder.mkdir()
    (folder / "weights").write_bytes(b"0123")
    keys = {"model": model, "steps": 24, "global_batch_tokens": 256, "checkpoint_every": 5, "start_from": str(folder)}
    whole = plan.training_facts(train(**keys), 84_352, 300)  # a folder without a seal is none of a checkpoint
    assert whole["tokens"] == 6144 and "after_step" not in whole
    atomic_folder.seal_folder(folder, atomic_folder.CHECKPOINT, {"step": 15}, {"weights": 4})
    left = plan.training_facts(train(**keys), 84_352, 300)
    assert (left["tokens"], left["steps"], left["after_step"]) == (2304, 24, 15)
    for key in ("epochs", "tokens_per_parameter"):
        assert left[key] == pytest.approx(whole[key] * 9 / 24, abs=0.01)
    assert left["flops"]["total"] == whole["flops"]["total"] * 9 // 24
    assert left["checkpoint_bytes"] == whole["checkpoint_bytes"]
    ramp = [[0, 0.25], [0.5, 1]]  # 12 steps of 64 tokens, and 12 of 256
    assert plan.training_facts(train(**keys, batch_ramp=ramp), None, 300)["tokens"] == 9 * 256
    assert (
        "9 steps after step 15"
        in resource_plan.plan_lines(left, resource_plan.plan_resources(left, train_settings(**keys), OWN))[0]
    )
    tree = config.validate({"pretrain": {"train": keys}})
    before = fingerprint.fingerprint(PLAN, tree)
    (folder / "weights").write_bytes(b"4567")
    assert fingerprint.fingerprint(PLAN, tree) != before, "another checkpoint at the same path is planned again"
    kept = train_settings(**keys, keep_checkpoints=10)
    assert [resource_plan.max_checkpoints(found, kept) for found in (whole, left)] == [5, 2]  # of 5, 10, 15, 20 and 24
    with pytest.raises(
        InputError, match=r"after step 15, and this run ends at step 15: set more pretrain\.train\.steps"
    ):
        plan.training_facts(train(**{**keys, "steps": 15}), 84_352, 300)


@pytest.fixture
def counted(tmp_path: Path) -> list[str]:
    """--tokens and --tokenizer of a corpus of a million tokens in two shards."""
    for number, tokens in enumerate((600_000, 400_000)):
        made = Manifest("tokenize.encode", "test", summary={"train": {"tokens": tokens}})
        made.write(tmp_path / f"encode/0000{number}.manifest.json", [])
    Manifest("tokenize.train", "test", summary={"vocabulary": 2048}).write(tmp_path / "tokenizer/manifest.json", [])
    encode = tmp_path / "encode/{00000..00001}.manifest.json"
    return ["--tokens", str(encode), "--tokenizer", str(tmp_path / "tokenizer/manifest.json")]


def run(folder: Path, counted: list[str], *more: str) -> tuple[bytes, dict[str, Any], str]:
    """(bytes of the manifest, the plan of the record, what it said) of the program."""
    file, out = folder / "config.yaml", folder / "results/main/pretrain/plan/manifest.json"
    file.write_text("pretrain: {train: {precision: bf16}}")  # for fp32 no peak is known
    done = subprocess.run(
        [sys.executable, "-m", "crawl2llm.stages.pretrain.plan", "--config", str(file), *counted, "--manifest", str(out), *more],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    record = json.loads(out.with_name("run.json").read_text(encoding="utf-8"))
    return out.read_bytes(), record["plan"], done.stderr


def test_the_program_keeps_the_machine_out_of_the_manifest(tmp_path: Path, counted: list[str]) -> None:
    manifest, laptop, said = run(tmp_path, counted)
    summary = json.loads(manifest)["summary"]
    assert summary["corpus_tokens"] == 1_000_000 and summary["shape"]["vocabulary"] == 2048 and summary["steps"] > 0
    assert laptop["gpu"] is None and "heap" in laptop["memory"] and "fits" not in laptop, "what is free changes"
    assert "Chinchilla: 20" in said and "memory of a process" in said
    Manifest.remove_with_copy(tmp_path / "results/main/pretrain/plan/manifest.json")
    placed = ("--gpu=h100", "--processes=8", "--gpu-hour-price=2.5", "--mfu=0.5", "--micro-batch=2")
    other, gpu, said = run(tmp_path, counted, *placed)
    assert other == manifest
    assert gpu["gpu"] == "h100" and gpu["processes"] == 8 and gpu["mfu"] == 0.5 and "heap" not in gpu["memory"]
    assert gpu["price"] == pytest.approx(2.5 * gpu["gpu_hours"]) and "USD" in said
    assert gpu["gpu_hours"] == pytest.approx(summary["flops"]["total"] / (0.5 * 989e12) / 3600)


def test_what_does_not_fit_is_a_warning_that_says_what_does(tmp_path: Path, counted: list[str]) -> None:
    _, found, said = run(tmp_path, counted, "--gpu=h100", "--gpu-memory=2", "--micro-batch=1024")
    assert found["fits"] is False and found["largest"] in said and "DOES NOT FIT" in said
    assert found["changes"][0].startswith("set pretrain.train.micro_batch to ") and found["changes"][0] in said


def test_a_gpu_of_the_site_that_nothing_is_known_of_does_not_stop_a_run(tmp_path: Path, counted: list[str]) -> None:
    """Nobody who asks for a training waits for its plan; a name that a person wrote is a mistake to mend."""
    _, found, said = run(tmp_path, counted, "--profile-gpu=a100")
    assert "'a100', whose memory is not known" in found["unknown"] and "not known: the GPU of the profile" in said
    Manifest.remove_with_copy(tmp_path / "results/main/pretrain/plan/manifest.json")
    with pytest.raises(subprocess.CalledProcessError):
        run(tmp_path, counted, "--gpu=a100")
    with pytest.raises(
        InputError, match=r"pretrain\.plan\.gpu is 'h1000', whose memory is not known: set .* one of a100-40gb, "
    ):
        check_project(Project(config.validate({"pretrain": {"plan": {"gpu": "h1000"}}})))


def test_it_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "deepspeed", "pyarrow", "numpy")
    code = f"import sys, crawl2llm.stages.pretrain.plan; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pretrain": {"train": {"model": {"type": "qwen33"}}}}, r"model\.type is 'qwen33'.*did you mean 'qwen3"),
        (
            {"finetune": {"train": {"max_length": 4096}}},
            r"finetune\.train\.max_length is 4,096, more than .*context, 256",
        ),
        (
            {"models": {"long": {"from": "base", "step": "finetune.train", "max_length": 300}}},
            r"models\.long\.max_length is 300, more than .*context, 256",
        ),
        (
            {"finetune": {"train": {"async_checkpoints": True}}},
            r"finetune\.train\.async_checkpoints is true, and finetune\.train\.engine deepspeed",
        ),
        (
            {
                "finetune": {"train": {"async_checkpoints": True, "engine": "torch"}},
                "models": {"slow": {"from": "base", "step": "finetune.train", "engine": "deepspeed"}},
            },
            r"models\.slow\.async_checkpoints is true, and models\.slow\.engine deepspeed",
        ),
        (
            {"models": {"small": {"from": "base", "step": "finetune.train", "adapter": "lora"}}},
            r"models\.small\.adapter is lora, and models\.small\.engine deepspeed.*set models\.small\.engine to torch",
        ),
        (
            {
                "finetune": {"train": {"packing": True}},
                "models": {"sft": {"from": "base", "step": "finetune.train"}},
                "pretrain": {"train": {"model": {"type": "mamba2"}}},
            },
            r"finetune\.train\.packing is true, and the model's type is 'mamba2'.*set finetune\.train\.packing to false",
        ),
    ],
)
def test_what_needs_no_data_is_refused_before_there_are_any(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A page.")
    sources = {"ingest": {"extract": {"sources": [{"name": "a", "kind": "text", "paths": ["a.txt"]}]}}}
    shape = {"pretrain": {"train": {"model": {"context": 256}}}}
    check_project(Project(config.validate(config.merge_dicts(sources, shape))))
    with pytest.raises(InputError, match=said):
        check_project(Project(config.validate(config.merge_dicts(config.merge_dicts(sources, shape), changes))))
