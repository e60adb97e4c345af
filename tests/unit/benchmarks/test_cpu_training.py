"""benchmarks.cpu_training: every contender trains the demo's step, and the ratio is that of the fastest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cpu_training


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_a_step_has_the_demos_tokens(processes: int) -> None:
    plan = cpu_training.plan(cpu_training.parsed([]), processes)
    tokens = plan.micro_batch * plan.accumulation * plan.context * processes
    assert tokens == cpu_training.demo()["pretrain"]["train"]["global_batch_tokens"]


def test_as_many_processes_as_cores_where_they_can_share_the_step() -> None:
    assert [cpu_training.most(cores) for cores in (1, 2, 3, 6, 8, 16)] == [1, 2, 2, 4, 8, 8]
    with pytest.raises(SystemExit, match="--processes 3: the 8 sequences of the demo's step do not divide by it"):
        cpu_training.main(["--only", "torch", "--processes", "3"])


@pytest.mark.slow
@pytest.mark.long
def test_contenders_train_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--rounds", "1", "--warmup", "1", "--steps", "5", "--processes", "1", "--out", str(tmp_path / "x.json")]
    assert cpu_training.main(["--only", "torch", "plain", *short]) == 0
    found = json.loads((tmp_path / "x.json").read_text())
    ours, plain = (found["contenders"][name] for name in ("torch × 1", "plain × 1"))
    assert found["ratio"] == pytest.approx(ours["tokens_per_second"] / plain["tokens_per_second"], abs=1e-3)
    assert ours["parameters"] == plain["parameters"] and ours["mfu"] is None
    assert f"our fastest is {found['ratio']:.2f} times" in capsys.readouterr().out


def test_one_that_is_not_here() -> None:
    with pytest.raises(SystemExit, match="--only nanogpt: not among torch, deepspeed, plain"):
        cpu_training.main(["--only", "nanogpt"])
