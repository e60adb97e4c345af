"""What `crawl2llm plan` says of training a published model further: by the headers of its files alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config
from crawl2llm.commands.plan import tuning
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import LastRun
from tests.unit.training.header_published import write_headers

TRAIN = {
    "engine": "torch", "zero_stage": 0, "precision": "bf16", "max_length": 2048, "micro_batch": 4, "batch_size": 32, "epochs": 2,
    "activation_checkpointing": True,
}  # fmt: skip


def lines_of(root: Path, entry: dict[str, Any], step: str) -> list[str]:
    tree = {
        "pretrain": {"train": {"enabled": False}, "plan": {"gpu": "h100"}},
        "models": {"root": {"path": str(root)}, "own": {"from": "root", "step": step, **entry}},
        "finetune": {"pairs": {"max_train": 10_000}},
    }
    task = Task(step.replace(".", "_"), {"output": f"results/main/{step.replace('.', '/')}/own.manifest.json"})
    return list(tuning.tuning_lines([task], Work(LastRun(root), [task], {"main": config.validate(tree)}, {})))


def plan_lines(folder: Path, model: str, step: str = "finetune.train", **entry: Any) -> list[str]:
    return lines_of(write_headers(folder / model, model), TRAIN | entry, step)


@pytest.mark.parametrize(
    ("model", "entry", "head", "size", "hours"),
    [
        ("1b", {}, "all weights, 1.24 B parameters are trained; at most 10,000 rows", r"fits", "GPU-hours"),
        ("8b", {"adapter": "lora"}, "lora, 41.9 M of 8.03 B parameters", "fits", "GPU-hours"),
        ("8b", {"adapter": "qlora"}, "qlora, 41.9 M of 8.03 B parameters", "fits", "GPU-hours"),
        ("qwen3-8b", {"adapter": "qlora"}, "qlora, 43.6 M of 8.19 B parameters", "fits", "GPU-hours"),
    ],
)
def test_memory_and_hours_on_one_gpu(
    tmp_path: Path, model: str, entry: dict[str, Any], head: str, size: str, hours: str
) -> None:
    found = plan_lines(tmp_path, model, **entry)
    assert found[0].startswith(f"finetune.train own: {head}") and found[0].endswith("625 steps")
    assert found[1].startswith("  memory of a process: ") and found[1].endswith(f"an h100 of 80 GB: {size}")
    assert hours in found[2] and "an MFU of 35%, assumed" in found[2] and len(found) == 3


def test_what_does_not_fit_says_what_would(tmp_path: Path) -> None:
    found = plan_lines(tmp_path, "8b")
    assert found[1].endswith("an h100 of 80 GB: DOES NOT FIT")
    assert re.search(
        r"finetune\.train\.adapter to lora \(engine torch, zero_stage 0\), which trains again \(45\.\d GB\)", found[2]
    )


def test_a_continued_pre_training_on_longer_windows(tmp_path: Path) -> None:
    root, entry = write_headers(tmp_path / "1b", "1b"), {"precision": "bf16", "activation_checkpointing": True}
    found = lines_of(root, {**entry, "tokens": 10**9, "context": 4096, "micro_batch": 2}, "pretrain.continue")
    assert found[0] == (
        "pretrain.continue own: all weights, 1.24 B parameters are trained; 1 B tokens, 1,908 steps of 128 windows of 4,096 tokens"
    )
    assert found[1].endswith("an h100 of 80 GB: fits") and "GPU-hours" in found[2]


def lines_of_models(root: Path, models: dict[str, Any], step: str) -> list[str]:
    """Of the last of models that come from `root`, which a step makes."""
    tree = {
        "pretrain": {"train": {"enabled": False}, "plan": {"gpu": "h100"}},
        "models": {"root": {"path": str(root)}, **models},
    }
    task = Task(
        step.replace(".", "_"), {"output": f"results/main/{step.replace('.', '/')}/{[*models][-1]}.manifest.json"}
    )
    return list(tuning.tuning_lines([task], Work(LastRun(root), [task], {"main": config.validate(tree)}, {})))


def test_a_pruned_model_and_its_distillation(tmp_path: Path) -> None:
    """Half of the layers and of the neurons of a Llama of 1B; its teacher is the whole."""
    root, keys = (
        write_headers(tmp_path / "1b", "1b"),
        {"precision": "bf16", "activation_checkpointing": True, "micro_batch": 1},
    )
    keys |= {"batch_tokens": 131_072 * 2, "engine": "torch"}
    small = {"from": "root", "step": "compress.prune", "layers": 0.5, "neurons": 0.5, **keys}
    found = lines_of_models(root, {"small": {**small, "retrain_tokens": 10**9}}, "compress.prune")
    assert found[0] == (
        "compress.prune small: all weights, 548 M parameters are trained; 1 B tokens, 3,815 steps of 2 windows of 131,072 tokens"
    )
    assert "an h100 of 80 GB: " in found[1] and "GPU-hours" in found[-1]
    (untrained,) = lines_of_models(root, {"small": small}, "compress.prune")
    assert (
        untrained
        == "compress.prune small: nothing is trained; memory: 7.7 GB, the model and what is left of it in fp32"
    )
    taught = {"from": "small", "step": "compress.distil", "teacher": "root", "tokens": 10**9, **keys}
    beside = lines_of_models(root, {"small": small, "taught": taught}, "compress.distil")
    assert beside[0].startswith(
        "compress.distil taught: all weights, 548 M parameters are trained by a teacher of 1.24 B; "
    )
    assert "teacher 11.6)" in beside[1] and hours(beside) > hours(found)
    for more in ({"top_k": 8}, {"text_share": 1}):
        alone = lines_of_models(root, {"small": small, "taught": {**taught, **more}}, "compress.distil")
        assert "teacher" not in "".join(alone) and hours(alone) == hours(found)


def hours(lines: list[str]) -> float:
    """GPU-hours of the last line."""
    words = re.search(r"([\d,.]+) GPU-hours", lines[-1])
    assert words
    return float(words[1].replace(",", ""))


def test_windows_are_as_long_as_the_context_of_the_root(tmp_path: Path) -> None:
    (found, *_) = lines_of(write_headers(tmp_path / "1b", "1b"), {"batch_tokens": 262_144}, "pretrain.continue")
    assert found.endswith("windows of 131,072 tokens")


def test_preferences_are_two_sequences_and_a_reference(tmp_path: Path) -> None:
    found = plan_lines(tmp_path, "1b", "align.train", method="dpo", adapter="lora")
    assert found[0].startswith("align.train own: lora, 11.3 M of 1.24 B parameters are trained; at most ")
    assert "GPU-hours" in found[-1]
    (*_, unknown) = plan_lines(tmp_path, "1b", "align.train", method="grpo", rewards=[{"reward": "length"}])
    assert unknown == "  hours are not known: they are those of the answers that it draws"


def test_a_quantized_model_is_not_trained(tmp_path: Path) -> None:
    write_headers(tmp_path / "gptq", "1b", quantization_config={"quant_method": "gptq"})
    (found,) = lines_of(tmp_path / "gptq", {}, "finetune.train")
    assert (
        found
        == "finetune.train own: what it takes is not known yet: models.root: its weights are quantized, and cannot be trained"
    )
