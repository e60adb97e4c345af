"""Trainings that are judged at rungs: who goes on has the model of a training without rungs, who stops that of a rung."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import halving
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import config_of_variant, fingerprint
from crawl2llm.core.manifest import Manifest, consumed_inputs, record_inputs
from crawl2llm.stages.pretrain import halve
from crawl2llm.stages.pretrain.halving import contender, judging
from crawl2llm.training import auto, data, packing
from crawl2llm.training.packed_windows import PACKING, Packing, read_totals
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.conftest import TINY
from tests.unit.stages.pretrain.runs import finish, kill, rows, wait_for
from tests.unit.training.typed import train_settings

RATE = "pretrain.train.learning_rate"
QUICK = {"steps": 16, "validate_every": 6}
QUIET = [
    "--device",
    "cpu",
    "--micro-batch",
    "2",
    "--checkpoint-every",
    "5",
    "--log-every",
    "1",
    "--wandb",
    "disabled",
    "--tensorboard",
    "false",
]


class Sweep:
    """A sweep over learning rates in a folder, whose programs are called as its rules call them."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Path,
        tokens: list[Path],
        rates: list[float],
        halved: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.folder, self.tokenizer, self.tokens = folder, tokenizer, tokens
        halved = halved or {"rungs": [0.25, 0.5], "keep": 0.5}
        self.config = validate(
            {"pretrain": {"train": TINY | QUICK | more}, "sweep": {"grid": {RATE: rates}, "halving": halved}}
        )
        folder.mkdir(exist_ok=True)

    def rung(self, task: str) -> Path:
        return self.folder / f"results/main/pretrain/rung/{task}.manifest.json"

    def train(self, name: str) -> Path:
        return self.folder / f"results/{name}/pretrain/train/manifest.json"

    def begin(self, module: str, mark: str, manifest: Path, *options: str, processes: int = 1) -> Any:
        own = ["--config", mark, "--tokenizer", str(self.tokenizer), "--manifest", str(manifest), *QUIET]
        command = [
            copies.LAUNCHER,
            "--processes",
            str(processes),
            module,
            *own,
            "--tokens",
            *map(str, self.tokens),
            *options,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return copies.Launched([*command], self.folder, environment)

    def to_rung(self, task: str, **more: Any) -> Any:
        mark = fingerprint("pretrain.rung", self.config, task=task)
        before = [str(self.rung(one)) for one in halving.tasks_before(task, self.config)]
        return self.begin("crawl2llm.stages.pretrain.rung", mark, self.rung(task), "--before", *before, **more)

    def judge(self) -> dict[str, Any]:
        """All rungs, and the judgement."""
        for task in halving.rung_tasks(self.config):
            finish(self.to_rung(task))
        out = self.folder / "results/main/pretrain/halve/manifest.json"
        rungs = [str(self.rung(task)) for task in halving.rung_tasks(self.config)]
        assert (
            halve.main(
                ["--config", fingerprint("pretrain.halve", self.config), "--rungs", *rungs, "--manifest", str(out)]
            )
            == 0
        )
        return dict(json.loads((out.parent / judging.FATES_FILE).read_text()))

    def end(self, name: str, **more: Any) -> Manifest:
        judged = self.folder / "results/main/pretrain/halve/manifest.json"
        mark = fingerprint("pretrain.train", config_of_variant(self.config, name))
        options = ("--halving", str(judged), "--contender", name)
        finish(self.begin("crawl2llm.stages.pretrain.halving.contender", mark, self.train(name), *options, **more))
        return Manifest.read_unchecked(self.train(name))


def files(made: Manifest) -> dict[str, Any]:
    return {name: facts for name, facts in made.files.items()}


def test_windows_of_another_context_name_no_other_checkpoints(
    tokenizer: Path, shards: list[Path], tmp_path: Path
) -> None:
    """As where a contender of another context is added: the others go on from their checkpoints, and read the same."""
    tokens = data.open_split(shards, "train")

    def checkpoints_and_consumed(name: str, contexts: list[int], context: int | str) -> tuple[Path, dict[str, Any]]:
        path = tmp_path / name / "manifest.json"
        made = [packing.write_packing(tokens, each, path.parent) for each in contexts]
        totals = {str(each): totals[0] for each, (_, totals) in zip(contexts, made, strict=True)}
        Manifest("pretrain.pack", name, summary={PACKING: totals}).write(
            path, [file for files, _ in made for file in files]
        )
        args = argparse.Namespace(
            step="pretrain.rung", config=json.dumps({"step": "pretrain.rung", "config": {}}), tokens=shards, packs=[path],
            manifest=tmp_path / "main-rung1.manifest.json", tokenizer=tokenizer, checkpoints=tmp_path,
        )  # fmt: skip
        settings = train_settings(packing="best_fit", model={"context": context}, global_batch_tokens=256)
        size = context if isinstance(context, int) else auto.resolve_context(len(tokens), 256)
        with record_inputs() as opened:
            read_totals([path], size)
            Packing(Manifest.read(path), tokens, size)
        return contender.folder_of(args, settings, [0.5]), consumed_inputs(opened)

    chosen = auto.resolve_context(len(tokens), 256)
    for context, packed in (64, 64), ("auto", chosen):
        alone, added = (
            checkpoints_and_consumed(f"{context}-{len(sizes)}", sizes, context) for sizes in ([packed], [packed, 128])
        )
        assert alone == added
    other = checkpoints_and_consumed("other", [64, 128], 128)
    assert other[0] != alone[0]


@pytest.mark.slow  # starts trainings
def test_who_goes_on_has_the_model_of_a_training_without_rungs_and_who_stops_that_of_the_rung(
    start: Any, tokenizer: Path, shards: list[Path], tmp_path: Path
) -> None:
    good, bad = "learning_rate-0_02", "learning_rate-1e-06"
    sweep = Sweep(tmp_path / "sweep", tokenizer, shards, [0.02, 1e-6])
    found = sweep.judge()
    assert found["stopped"].keys() == {bad} and found["stopped"][bad]["rung"] == 1
    assert json.loads((sweep.rung(f"{bad}-rung2").parent / f"{bad}-rung2.json").read_text())["in"] is False

    whole = tmp_path / "whole"
    finish(start(whole, 1, QUICK | {"learning_rate": 0.02}))
    ended = sweep.end(good)
    assert files(ended) == files(Manifest.read_unchecked(whole / "out/manifest.json")), (
        "weights and losses, byte for byte"
    )
    assert "stopped" not in ended.summary

    stopped = sweep.end(bad)
    assert stopped.summary["stopped"] == found["stopped"][bad] and stopped.summary["steps"] == 4
    assert stopped.summary["notes"][0].startswith("Stopped at rung 1, after step 4 of 16: ")
    losses = rows(sweep.train(bad).with_name("losses.jsonl"))
    assert max(row["step"] for row in losses) == 4
    there = json.loads((sweep.rung(f"{bad}-rung1").parent / f"{bad}-rung1.json").read_text())
    assert stopped.summary["bits_per_byte"] == there["bits_per_byte"] == losses[-1]["bits_per_byte"]

    # Another judgement, as where a variant is added: the one that went on stops now, and its model is that of the rung.
    out = sweep.folder / "results/main/pretrain/halve"
    made = json.loads((out / judging.FATES_FILE).read_text())
    made["stopped"] = {good: {"rung": 2, "step": 8, "why": "a test"}}
    (out / judging.FATES_FILE).write_text(json.dumps(made))
    rungs = Manifest.read_unchecked(out / "manifest.json").summary
    Manifest("pretrain.halve", "test", {}, rungs).write(out / "manifest.json", [out / judging.FATES_FILE])
    again = sweep.end(good)
    assert again.summary["steps"] == 8 and again.summary["stopped"]["why"] == "a test"
    assert max(row["step"] for row in rows(sweep.train(good).with_name("losses.jsonl"))) == 8
    # And the one that was stopped goes on to its end.
    assert sweep.end(bad).summary["steps"] == 16


@pytest.mark.slow  # starts trainings
def test_killed_in_a_rung_it_ends_with_the_same_bytes(tokenizer: Path, shards: list[Path], tmp_path: Path) -> None:
    """By as many processes; by others the sums are in another order, and the loss is the same but for rounding."""
    whole, killed, alone = (Sweep(tmp_path / name, tokenizer, shards, [0.02], steps=24) for name in ("a", "b", "c"))
    task = "main-rung1"
    finish(whole.to_rung(task, processes=2))
    process = killed.to_rung(task, processes=2)
    wait_for(process, killed.folder, "checkpoints/*/step-000005")
    kill(process)
    finish(killed.to_rung(task, processes=2))
    finish(alone.to_rung(task))
    paths = [sweep.rung(task).parent / f"{task}.json" for sweep in (whole, killed, alone)]
    first, _, third = (json.loads(path.read_text()) for path in paths)
    assert paths[0].read_bytes() == paths[1].read_bytes() and first["step"] == 6
    states = [next(sweep.folder.glob("checkpoints/*/step-000006")) for sweep in (whole, killed)]
    held = [{path.name: path.read_bytes() for path in state.rglob("*") if path.is_file()} for state in states]
    held = [{name: body for name, body in each.items() if name != "training.json"} for each in held]
    assert held[0] and held[0] == held[1], "weights and the optimizer's state"
    assert third["step"] == 6 and third["bits_per_byte"] == pytest.approx(first["bits_per_byte"], rel=1e-5)
    finish(alone.to_rung(task))
    assert json.loads(paths[2].read_text()) == third


@pytest.mark.long
@pytest.mark.slow  # starts trainings
def test_rungs_of_the_same_step_and_at_the_end(start: Any, tokenizer: Path, shards: list[Path], tmp_path: Path) -> None:
    """Shares of so few steps that rungs fall together, and that the last one is the training's last step."""
    good, bad = "learning_rate-0_02", "learning_rate-1e-06"
    rungs = {"rungs": [0.1, 0.2, 0.9], "keep": 0.01}
    sweep = Sweep(tmp_path / "sweep", tokenizer, shards, [0.02, 1e-6], halved=rungs, steps=3)
    found = sweep.judge()
    assert [[row["stays"] for row in one["settings"]].count(True) for one in found["rungs"]] == [2, 2, 2]
    assert found["stopped"].keys() == {bad} and found["stopped"][bad]["step"] == 1
    whole = tmp_path / "whole"
    finish(start(whole, 1, QUICK | {"learning_rate": 0.02, "steps": 3}))
    assert files(sweep.end(good)) == files(Manifest.read_unchecked(whole / "out/manifest.json"))
    assert sweep.end(bad).summary["steps"] == 1


def test_an_early_stop_at_a_rung_is_judged_by_the_best_validation(
    tokenizer: Path, shards: list[Path], tmp_path: Path
) -> None:
    changes = {"early_stop": 2, "validate_every": 2, "steps": 60, "schedule": "constant", "warmup": 0.0}
    # At a rate of 1 the loss doubles in the first steps, on any machine.
    sweep = Sweep(tmp_path, tokenizer, shards, [1, 0.02], {"rungs": [6 / 60], "keep": 0.5}, **changes)
    task = next(name for name in halving.rung_tasks(sweep.config) if name.startswith("learning_rate-1"))
    errors = finish(sweep.to_rung(task))
    (losses,) = tmp_path.glob("checkpoints/*/losses.jsonl")
    bits = {row["step"]: row["bits_per_byte"] for row in rows(losses) if "bits_per_byte" in row}
    assert max(bits) == 6 and "stopped early after step 6: no validation since step 2 was better" in errors
    judged = json.loads((sweep.rung(task).parent / f"{task}.json").read_text())
    assert judged["bits_per_byte"] == min(bits.values()) == bits[2]
