"""pretrain.train on two real processes: killed and resumed, stopped by a signal, on another number of processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from crawl2llm.chain import config, config_schema
from crawl2llm.core.manifest import canonical_json, digest
from crawl2llm.training import export
from tests.unit.stages.pretrain.conftest import TINY
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for

pytestmark = pytest.mark.slow  # starts trainings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


LATER = [
    (0, "bf16", {}),
    (1, "bf16", {}),
    (3, "bf16", {}),
    (0, "fp32", {"optimizer": "muon"}),
    (0, "bf16", {"optimizer": "muon"}),
    (0, "fp32", {"engine": "torch"}),
    (2, "bf16", {"engine": "torch"}),
    (3, "bf16", {"engine": "torch"}),
    (1, "fp32", {"engine": "torch", "optimizer": "muon"}),
]


@pytest.mark.parametrize(
    ("stage", "precision", "more"),
    [
        (1, "fp32", {}),
        (3, "bf16", {"engine": "torch", "optimizer": "muon"}),
        *(pytest.param(*case, marks=pytest.mark.long) for case in LATER),
    ],
)
def test_killed_and_resumed_is_the_same_to_the_byte(
    start: Any, folder: Path, stage: int, precision: str, more: dict[str, str]
) -> None:
    changes = {"zero_stage": stage, "precision": precision, **more}
    name = "-".join([f"{stage}-{precision}", *more.values()])
    whole, killed = folder / f"{name}-whole", folder / f"{name}-killed"
    finish(start(whole, 2, changes))
    process = start(killed, 2, changes)
    wait_for(process, killed, "checkpoints/*/step-000010")
    kill(process)
    assert not (killed / "out" / "manifest.json").exists()
    errors = finish(start(killed, 2, changes))
    assert "resuming after step" in errors and "other code" not in errors
    same(whole, killed)

    manifest = json.loads((whole / "out/manifest.json").read_text())
    assert {"model/model.safetensors", "model/config.json", "model/tokenizer.json", "losses.jsonl"} <= set(
        manifest["files"]
    )
    assert "metrics.jsonl" not in manifest["files"]
    summary = manifest["summary"]
    assert summary["steps"] == 24 and summary["tokens"] == 24 * 256
    # Neither the digest in a checkpoint nor the shape knows keys that are tracked unless they have their default.
    told = config_schema.tracked_section(config.validate({"pretrain": {"train": TINY | changes}}), "pretrain.train")
    assert "size" not in told["model"] and ("engine" in told) == ("engine" in more)
    facts = json.loads(next(whole.glob("checkpoints/*/step-000024/checkpoint.json")).read_text())
    assert facts["settings"] == digest(
        canonical_json([{**told, "epochs": None}, 24])
    )  # epochs: auto is no budget beside steps
    assert summary["shape"] == {**told["model"], "vocabulary": 300}
    assert summary["parameters"]["total"] == 300 * 32 + summary["parameters"]["non_embedding"]
    losses = rows(whole / "out/losses.jsonl")
    assert [row["step"] for row in losses if "loss" in row] == list(range(1, 25))
    assert [row["step"] for row in losses if "bits_per_byte" in row] == [8, 16, 24]
    assert losses[0]["loss"] > 5.5 > 4.5 > summary["loss"]  # from about ln 300 = 5.7 down
    assert [row["step"] for row in rows(killed / "out/metrics.jsonl") if "loss" in row] == list(range(1, 25))
    assert all(row["grad_norm"] > 0 for row in rows(killed / "out/metrics.jsonl") if "loss" in row)


def test_a_micro_batch_that_is_lowered_for_a_batch_that_is_auto_is_told(start: Any, tmp_path: Path) -> None:
    changes = {"global_batch_tokens": "auto", "steps": 1, "validate_every": 0}
    errors = finish(start(tmp_path, 1, changes, "--micro-batch", "3"))
    assert "micro_batch 3 → 2, which divides the batch that auto chose" in errors  # of 16 sequences


def test_a_finished_training_that_is_started_again_keeps_the_record_of_who_trained(start: Any, folder: Path) -> None:
    """After `test_killed_and_resumed…`: nothing is trained, and neither host nor versions are those of the second start."""
    whole = folder / "1-fp32-whole"
    if not whole.exists():
        finish(start(whole, 2, {"zero_stage": 1, "precision": "fp32"}))
    path, files = whole / "out/run.json", ("manifest.json", "model/model.safetensors", "losses.jsonl")
    record = json.loads(path.read_text()) | {"machine": {"host": "another"}}
    path.write_text(json.dumps(record))
    before = [(whole / "out" / name).read_bytes() for name in files]
    assert "resuming after step 24 of" in finish(start(whole, 2, {"zero_stage": 1, "precision": "fp32"}))
    assert json.loads(path.read_text()) == record
    assert [(whole / "out" / name).read_bytes() for name in files] == before


@pytest.mark.parametrize("name", ["1-fp32", "3-bf16-torch"])
def test_a_checkpoint_exports_as_the_model_of_the_result(start: Any, folder: Path, tmp_path: Path, name: str) -> None:
    """After `test_killed_and_resumed…`: of the last step the very bytes; of another step a model that loads, and another dtype."""
    whole = folder / f"{name}-whole"
    if not whole.exists():
        stage, precision, *kind = name.split("-")
        finish(
            start(whole, 2, {"zero_stage": int(stage), "precision": precision, **({"engine": "torch"} if kind else {})})
        )
    last, before = (str(next(whole.glob(f"checkpoints/*/step-0000{step}"))) for step in (24, 20))
    assert export.main([last, str(tmp_path / "last")]) == 0
    expected = {path.name: path.read_bytes() for path in (whole / "out/model").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "last").iterdir()} == expected
    assert export.main([before, str(tmp_path / "before"), "--dtype", "bf16"]) == 0
    weights = load_file(tmp_path / "before/model.safetensors")
    assert {str(value.dtype) for value in weights.values()} == {"torch.bfloat16"}
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "before").num_parameters() == 28192
    assert export.main([last, str(tmp_path / "last")]) == 1 and export.main([str(tmp_path), str(tmp_path / "x")]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"last", "before"}


def test_loads_in_transformers_with_the_loss_it_reported(start: Any, folder: Path, shards: list[Path]) -> None:
    from transformers import AutoTokenizer

    from crawl2llm.stages.evaluate.heldout_loss import measure_heldout
    from crawl2llm.training.heldout import CARRY, choose_documents

    out = folder / "1-fp32-whole" / "out"
    model = AutoModelForCausalLM.from_pretrained(out / "model")
    assert model.dtype == torch.float32 and not model.training
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    assert tokenizer.decode(tokenizer("The river bends").input_ids) == "The river bends"
    # The evaluation's own measure, on the same documents: one number for one model.
    documents, _ = choose_documents(shards, 1500, 0)
    found, _ = measure_heldout(model, 0, documents, 32, CARRY, 4)
    summary = json.loads((out / "manifest.json").read_text())["summary"]
    assert summary["bits_per_byte"] == pytest.approx(found["bits_per_byte"], rel=1e-5)
    assert summary["validation_loss"] == pytest.approx(found["loss"], rel=1e-5)
    for key in ("tokens", "bytes", "documents"):
        assert summary[f"validation_{key}"] == found[key]


@pytest.mark.parametrize(
    ("stage", "precision"),
    [
        (1, "fp32"),
        *(pytest.param(stage, "fp32", marks=pytest.mark.long) for stage in (0, 2, 3)),
        *(pytest.param(stage, "bf16", marks=pytest.mark.long) for stage in (0, 1, 2, 3)),
    ],
)
def test_stopped_and_resumed_on_one_process(start: Any, folder: Path, stage: int, precision: str) -> None:
    """Every ZeRO stage trains; a signal saves and exits with 85; one process instead of two trains on to the same loss."""
    changes = {"zero_stage": stage, "precision": precision}
    reference = folder / f"{stage}-{precision}-whole"
    if not (reference / "out/manifest.json").exists():
        finish(start(reference, 2, changes))
    stopped = folder / f"stopped-{stage}-{precision}"
    process = start(stopped, 2, changes)
    wait_for(process, stopped, "checkpoints/*/step-000005")
    process.send_signal(signal.SIGTERM)
    finish(process, 85)
    assert "was saved by 2 processes" in finish(start(stopped, 1, changes)) or stage == 0
    expected, found = rows(reference / "out/losses.jsonl"), rows(stopped / "out/losses.jsonl")
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    close = 1e-4 if precision == "fp32" else 2e-3
    for one, other in zip(expected, found, strict=True):
        assert one == pytest.approx(other, abs=close)


def test_says_what_is_wrong(start: Any, tmp_path: Path) -> None:
    errors = finish(start(tmp_path, 1, {"global_batch_tokens": 160}), 1)
    assert "pretrain.train.micro_batch × processes × pretrain.train.model.context = 2 × 1 × 32 = 64" in errors
    assert "128 and 192" in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("where", "name", "options"),
    [
        ("checkpoints", "torch", ()),
        pytest.param("checkpoints", "torch", ("--async-checkpoints", "true"), marks=pytest.mark.long),
        *(pytest.param(where, "deepspeed", (), marks=pytest.mark.long) for where in ("checkpoints", "out")),
    ],
)
def test_a_full_disk_is_named(start: Any, tmp_path: Path, where: str, name: str, options: tuple[str, ...]) -> None:
    """Too small for the first checkpoint, or for the weights; with more space it resumes."""
    changes = {"engine": name}
    full = tmp_path / where
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "crawl2llm", str(full)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of one's own cannot be mounted here")
    try:
        errors = finish(start(tmp_path, 1, changes, *options), 1)
        assert re.search(rf"\S*{where}\S*: No space left on device: free some space, then run again", errors)
        assert "Traceback" not in errors
        assert not (tmp_path / "out/manifest.json").exists()
        if where == "checkpoints":  # a second time, with the first one's log
            assert "Traceback" not in finish(start(tmp_path, 1, changes, *options), 1)
        subprocess.run([*mount[:4], "remount,size=64m", str(full)], check=True)
        errors = finish(start(tmp_path, 1, changes, *options))
        assert ("resuming after step" in errors) == (where == "out")
        assert (tmp_path / "out/manifest.json").exists()
    finally:
        subprocess.run(["umount", "--lazy", str(full)], check=True)
