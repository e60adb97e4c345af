"""Checkpoints that are written while training goes on (async_checkpoints): real processes, a slow disk, a full one, signals."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks
from crawl2llm.training.checkpoint import FACTS
from tests.unit.stages.pretrain.runs import finish, same, wait_for

BESIDE = ("--async-checkpoints", "true")
SLOW = "tests.unit.stages.pretrain.slow_disk"


def times(folder: Path, rank: int) -> dict[str, float]:
    return {what: at for at, what in map(json.loads, (folder / f"times-{rank}.jsonl").read_text().splitlines())}


def files(folder: Path) -> dict[str, Any]:
    """Of all checkpoints of the one run below a folder: bytes, and of safetensors, whose header has no order, what is in them.

    Of the seal, the checksums of the other files alone.
    """
    (made,) = folder.glob("checkpoints/*/training.json")
    found = {}
    for path in made.parent.glob("step-*/**/*"):
        if path.suffix == ".safetensors":
            held = load_file(path)
            with safe_open(path, framework="pt") as handle:
                offsets = handle.metadata()
            parts = {name: (value.dtype, value.shape, value.numpy().tobytes()) for name, value in held.items()}
            found[str(path.relative_to(made.parent))] = (path.stat().st_size, offsets, parts)
        elif path.name == FACTS:
            held = json.loads(path.read_text())
            held["digests"] = {
                name: mark for name, mark in held["digests"].items() if not name.endswith(".safetensors")
            }
            found[str(path.relative_to(made.parent))] = held
        elif path.is_file():
            found[str(path.relative_to(made.parent))] = path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"zero_stage": 3},
        *(
            pytest.param(case, marks=pytest.mark.long)
            for case in (
                {"zero_stage": 0, "precision": "bf16"},
                {"zero_stage": 0, "optimizer": "muon", "learning_rate": 0.003},
                {"zero_stage": 2, "precision": "bf16", "ema": 0.9, "early_stop": 2},
            )
        ),
    ],
)
def test_the_same_bytes_while_training_goes_on(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    """Also of every checkpoint: what is written is a copy. The next one waits for the one before."""
    plain, slow = tmp_path / "plain", tmp_path / "slow"
    changes = {"engine": "torch", **more}
    finish(start(plain, 2, changes, "--keep-checkpoints", "9"))
    finish(start(slow, 2, changes, "--keep-checkpoints", "9", *BESIDE, program=SLOW))
    same(plain, slow)
    assert files(plain) == files(slow)
    seen = times(slow, 0)
    writes = {int(what.split("-")[1].removesuffix(".partial")): at for what, at in seen.items() if "writes" in what}
    wrote = {int(what.split("-")[1].removesuffix(".partial")): at for what, at in seen.items() if "wrote" in what}
    assert writes.keys() == wrote.keys() >= {5, 10, 15, 20, 24}
    pairs = list(zip(sorted(writes), sorted(writes)[1:], strict=False))
    assert all(wrote[one] < writes[other] for one, other in pairs)  # one at a time
    # Of any of them: on a busy machine a step may take longer than the disk.
    assert any(
        wrote[one] > seen[f"step {step}"] > writes[one] for one, other in pairs for step in range(one + 1, other + 1)
    )


@pytest.mark.slow
def test_a_signal_waits_for_the_checkpoint(start: Any, tmp_path: Path) -> None:
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    changes = {"engine": "torch", "zero_stage": 1}
    finish(start(plain, 2, changes))
    process = start(stopped, 2, changes, *BESIDE, program=SLOW)
    wait_for(process, stopped, "checkpoints/*/.step-000005.partial")
    process.send_signal(signal.SIGTERM)
    finish(process, 85)
    last = max(int(what.split()[1]) for what in times(stopped, 0) if "step" in what.split()[0])
    assert not list(stopped.glob("checkpoints/*/.step*"))
    assert list(stopped.glob(f"checkpoints/*/step-{last:06d}/checkpoint.json"))
    assert f"resuming after step {last} of" in finish(start(stopped, 2, changes, *BESIDE))
    same(plain, stopped)


@pytest.mark.slow
def test_what_one_process_cannot_write_ends_the_run(start: Any, tmp_path: Path) -> None:
    """At its next step; the checkpoint does not count, and the next start begins before it."""
    changes = {"engine": "torch", "zero_stage": 1}
    errors = finish(start(tmp_path, 2, changes, *BESIDE, program=SLOW, FAILS="1"), 1)
    assert "rank 1" in errors and "No space left on device" in errors
    steps = [what for what in times(tmp_path, 1) if what.startswith("step")]
    assert steps[-1] in ("step 5", "step 6", "step 7")
    assert not list(tmp_path.glob("checkpoints/*/step-*"))
    assert "resuming" not in finish(start(tmp_path, 2, changes, *BESIDE))


def test_not_with_deepspeed() -> None:
    checks.check_async_checkpoints(True, "torch")
    checks.check_async_checkpoints(False, "deepspeed")
    said = r"async_checkpoints is true, and pretrain\.train\.engine deepspeed.*or pretrain\.train\.engine to torch"
    with pytest.raises(InputError, match=said):
        checks.check_async_checkpoints(True, "deepspeed")
    tuned = r"finetune\.train\.async_checkpoints is true, and finetune\.train\.engine deepspeed"
    with pytest.raises(InputError, match=tuned):
        checks.check_async_checkpoints(True, "deepspeed", "finetune.train")
