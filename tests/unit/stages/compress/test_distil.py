"""compress.distil and compress.teach as programs: the loss is that of the logits, and stops, processes and engines change nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import checks, teach
from crawl2llm.stages.compress.settings import DistilSettings
from crawl2llm.training import text_run
from crawl2llm.training.processes import RESUBMIT
from tests.unit.stages.compress.conftest import tiny
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.copies import finished

STEPS = 8
KEYS = {
    "tokens": STEPS * 8 * tiny.CONTEXT,
    "batch_tokens": 8 * tiny.CONTEXT,
    "micro_batch": 3,
    "threads": 1,
    "validation_tokens": 2000,
    "learning_rate": 0.003,
}


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a model half as wide as `base`, with its tokenizer."""
    return tiny.write_model(tmp_path_factory.mktemp("student"), tiny.pages(), hidden=32, layers=1)


def config(out: Path, teacher: str = "base", teaching: dict[str, Any] | None = None, **keys: Any) -> str:
    """A config file with a model of compress.distil. teaching: keys of compress.teach."""
    out.mkdir(parents=True, exist_ok=True)
    entry = {"from": "base", "step": "compress.distil", "teacher": teacher, **KEYS, **keys}
    path = out / "config.json"
    path.write_text(json.dumps({"models": {"small": entry}, "compress": {"teach": teaching or {}}}))
    return str(path)


def start_distilling(
    teacher: Path,
    student: Path,
    tokens: list[Path],
    out: Path,
    processes: int = 1,
    taught: Path | None = None,
    **keys: Any,
) -> copies.Launched:
    options = [
        "--config", config(out, **keys), "--model", str(student), "--teacher", str(teacher), "--tokens", *map(str, tokens),
        *(["--taught", str(taught)] if taught else []),
        "--checkpoints", str(out / "checkpoints"), "--manifest", str(out / "small.manifest.json"), "--checkpoint-every", "3",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return copies.Launched(
        ["--processes", str(processes), "crawl2llm.stages.compress.distil", *options], out, environment
    )


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "small/losses.jsonl").read_text().splitlines()]


def first_loss(teacher: Path, student: Path, tokens: list[Path], reverse: bool) -> float:
    """The divergence on the first step's windows, by the models' whole logits in fp64."""
    windows = text_run.Windows(tokens, DistilSettings(**KEYS), tiny.CONTEXT, 0, 1, "compress.distil")
    inputs = torch.cat([inputs for inputs, _ in windows.micro_batches(1, 0)])
    ours, theirs = (
        functional.log_softmax(AutoModelForCausalLM.from_pretrained(path.parent / "model")(inputs).logits.double(), -1)
        for path in (student, teacher)
    )
    pair = (theirs, ours) if reverse else (ours, theirs)
    return functional.kl_div(*pair, reduction="sum", log_target=True).item() / inputs.numel()


@pytest.fixture(scope="module")
def distillation(base: Path, student: Path, tokens: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student that was trained by DeepSpeed."""
    out = tmp_path_factory.mktemp("distilled")
    finished(start_distilling(base, student, tokens, out))
    return out


@pytest.mark.slow
def test_the_loss_is_that_of_the_logits_and_falls(
    distillation: Path, base: Path, student: Path, tokens: list[Path]
) -> None:
    rows, summary = losses(distillation), Manifest.read(distillation / "small.manifest.json").summary
    assert rows[0] == pytest.approx(first_loss(base, student, tokens, reverse=False), rel=1e-4)
    assert len(rows) == summary["steps"] == STEPS and rows[-1] < rows[0]
    assert (summary["teacher"], summary["divergence"]) == ("base", "forward")
    assert AutoModelForCausalLM.from_pretrained(distillation / "small/model").num_parameters() == summary["parameters"]
    assert not list((distillation / "checkpoints").rglob("*.safetensors"))


@pytest.mark.slow
def test_stopped_and_resumed_to_the_same_bytes(
    distillation: Path, base: Path, student: Path, tokens: list[Path], tmp_path: Path
) -> None:
    process = start_distilling(base, student, tokens, tmp_path)
    while process.poll() is None and not list(tmp_path.glob("checkpoints/*/step-000003/checkpoint.json")):
        pass
    process.send_signal(signal.SIGTERM)
    finished(process, RESUBMIT)
    finished(start_distilling(base, student, tokens, tmp_path))
    for name in ("small.manifest.json", "small/losses.jsonl", "small/model/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (distillation / name).read_bytes(), name


@pytest.mark.slow
def test_zeros_stay_over_two_distillations(student: Path, base: Path, tokens: list[Path], tmp_path: Path) -> None:
    shutil.copytree(student.parent / "model", tmp_path / "sparse/model")
    weights = load_file(tmp_path / "sparse/model/model.safetensors")
    for name in (names := [name for name in weights if "proj" in name]):
        weights[name][::2] = 0
    save_file(weights, tmp_path / "sparse/model/model.safetensors", {"format": "pt"})
    sparse = Manifest("compress.prune", "0" * 16, summary={"zeros": 1})
    sparse.write(tmp_path / "sparse.manifest.json", sorted((tmp_path / "sparse/model").iterdir()))
    finished(start_distilling(base, tmp_path / "sparse.manifest.json", tokens, tmp_path / "one"))
    finished(start_distilling(base, tmp_path / "one/small.manifest.json", tokens, tmp_path / "two"))
    weights = load_file(tmp_path / "two/small/model/model.safetensors")
    assert all((weights[name][::2] == 0).all() and (weights[name][1::2] != 0).any() for name in names)


@pytest.mark.slow
def test_three_processes_of_torch_with_parts_of_the_weights_come_to_the_same(
    distillation: Path, base: Path, student: Path, tokens: list[Path], tmp_path: Path
) -> None:
    """Eight windows of a step on three processes: the last of their micro-batches is smaller."""
    finished(start_distilling(base, student, tokens, tmp_path, 3, engine="torch", zero_stage=3))
    assert losses(tmp_path) == pytest.approx(losses(distillation), rel=1e-3)


@pytest.mark.slow
def test_a_teacher_that_was_written(base: Path, student: Path, tokens: list[Path], tmp_path: Path) -> None:
    """All but one of its tokens: nearly the whole distribution, in reverse too. An interrupted writing comes to the same bytes."""
    vocabulary = AutoModelForCausalLM.from_pretrained(base.parent / "model").config.vocab_size
    keys = {
        "teaching": {"top_k": vocabulary - 1, "threads": 1, "tokens": KEYS["tokens"]},
        "top_k": vocabulary - 1,
        "divergence": "reverse",
    }
    out = tmp_path / "teach" / "base.manifest.json"
    words = [
        "--config",
        config(tmp_path, **keys),
        "--model",
        str(base),
        "--tokens",
        *map(str, tokens),
        "--manifest",
        str(out),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teach, "PART_BYTES", 40 * tiny.CONTEXT * vocabulary * 6)
        assert teach.main(words) == 0
        written = {path.name: path.read_bytes() for path in (out.parent / "base").iterdir()}
        assert len(written) == 4 and np.load(out.parent / "base/00000.ids.npy").shape == (
            40,
            tiny.CONTEXT,
            vocabulary - 1,
        )
        mark = teach.digest(teach.canonical_json([Manifest.read(out).fingerprint, teach.files_read(arguments(words))]))
        Manifest.remove_with_copy(out)
        (out.parent / "base/00001.ids.npy").unlink()
        (out.parent / "base" / teach.MARK).write_text(mark)
        kept = (out.parent / "base/00000.ids.npy").stat().st_mtime_ns
        assert teach.main(words) == 0
    assert (out.parent / "base/00000.ids.npy").stat().st_mtime_ns == kept
    assert {path.name: path.read_bytes() for path in (out.parent / "base").iterdir()} == written
    finished(start_distilling(base, student, tokens, tmp_path / "one", taught=out, **keys))
    assert losses(tmp_path / "one")[0] == pytest.approx(first_loss(base, student, tokens, reverse=True), rel=2e-3)


def arguments(words: list[str]) -> Any:
    """The arguments of compress.teach."""
    return teach.command_line.parse_arguments(teach.main.parser(), words)


@pytest.mark.parametrize(
    ("models", "why"),
    [
        ({"small": {"teacher": "other"}}, "models.small.teacher names 'other', which is no model; allowed: base"),
        ({"small": {"teacher": "small"}}, "models.small.teacher names 'small', the model itself; allowed: base"),
        (
            {"small": {"teacher": "sft"}, "sft": {"from": "small", "step": "finetune.train"}},
            "models.small.teacher names 'sft', which is made from it; allowed: base",
        ),
        (
            {"small": {"teacher": "int8"}, "int8": {"from": "base", "step": "compress.quantize"}},
            "models.small.teacher names 'int8', which compress.quantize makes, and no other model is made from one of those; allowed: base",
        ),
        ({"small": {"top_k": 80}}, "models.small.top_k is 80; allowed: with top_k at most compress.teach.top_k, 64"),
        (
            {"small": {"top_k": 8, "temperature": 2}},
            "models.small.temperature is 2; allowed: with top_k only compress.teach.temperature, 1",
        ),
    ],
)
def test_a_teacher_that_cannot_be_is_named(models: dict[str, Any], why: str) -> None:
    models = {name: {"from": "base", "step": "compress.distil", **entry} for name, entry in models.items()}
    with pytest.raises((ConfigError, InputError), match=re.escape(why) + "$"):
        checks.check_compression(validate({"models": models}))


def test_the_last_step_reads_what_was_written() -> None:
    """Steps are whole: a student may read more than its tokens."""
    models = {"small": {"from": "base", "step": "compress.distil", "top_k": 8, "tokens": 10000}}
    why = "models.small.tokens is 10000; allowed: in whole steps, here 10240, with top_k at most compress.teach.tokens, 10239"
    with pytest.raises(InputError, match=re.escape(why) + "$"):
        checks.check_compression(validate({"models": models, "compress": {"teach": {"tokens": 10239}}}))
    checks.check_compression(validate({"models": models, "compress": {"teach": {"tokens": 10240}}}))


def test_a_published_students_type_is_not_that_of_the_pre_training() -> None:
    models = {"own": {"path": "folder"}, "small": {"from": "own", "step": "compress.distil", "teacher": "own"}}
    checks.check_compression(validate({"models": models, "pretrain": {"train": {"model": {"type": "gemma2"}}}}))
