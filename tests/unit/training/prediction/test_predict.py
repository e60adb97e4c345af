"""Predicted steps beside measured ones, and what a plan says of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import predicted_steps
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain import plan
from crawl2llm.training import cost_estimate, gpus, resource_plan
from crawl2llm.training.prediction import predict
from crawl2llm.training.prediction.operations import COMMUNICATION, ELEMENTWISE, HOST, OPTIMIZER
from crawl2llm.training.prediction.rates import Rates, sheet_rates
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings
from tests.unit.training.typed import train_settings

WITHIN = 0.06
SMALL = {"hidden_size": 1024, "intermediate_size": 2816, "layers": 4, "heads": 16, "kv_heads": 4, "context": 1024}


def rates() -> Rates:
    gpu = gpus.find("h100")
    found = sheet_rates(gpu) if gpu else None
    assert found
    return found


@pytest.mark.parametrize("name", ["bf16", "compiled"])
def test_a_prediction_is_near_what_an_h100_was_measured_at(name: str) -> None:
    row = next(each for each in predicted_steps.measured_rows() if each.name == name)
    predicted, _ = predicted_steps.predicted_rate(row)
    assert predicted == pytest.approx(row.tokens_per_second, rel=WITHIN)


def test_all_that_was_measured_was_compared() -> None:
    """benchmarks/results/predicted_steps.json is of the measurements that are there."""
    rows = json.loads((predicted_steps.RESULTS / "predicted_steps.json").read_text())["rows"]
    measured = {row.name: round(row.tokens_per_second) for row in predicted_steps.measured_rows()}
    assert {row["settings"]: row["measured"] for row in rows} == measured
    assert max(abs(row["error"]) for row in rows) < WITHIN


def test_what_processes_exchange() -> None:
    found, step = rates(), predict.Step(1, 8, 8, 10**9, 0, 2, 4)
    assert predict.exchange_seconds(step, found) == pytest.approx(7 / 8 * 8e9 / found.link)
    by_stage = [predict.exchange_seconds(predict.Step(4, 8, 8, 10**9, stage, 2, 4), found) for stage in range(4)]
    assert [seconds / by_stage[1] for seconds in by_stage] == pytest.approx([8 / 6, 1, 18 / 6, 32 / 6])
    alone = predict.exchange_seconds(predict.Step(1, 8, 1, 10**9, 0, 2, 4), found)
    assert alone == pytest.approx(7 / 8 * 8e9 / found.network), "a GPU of each node has one network card"
    assert predict.exchange_seconds(predict.Step(1, 1, 1, 10**9, 0, 2, 4), found) == 0


def test_a_step_of_several_micro_batches_updates_once() -> None:
    parts = {ELEMENTWISE: 0.1, OPTIMIZER: 0.02, HOST: 0.01}
    seconds, every = predict.add_up(parts, predict.Step(4, 1, 1, 0, 0, 2, 4), rates())
    assert seconds == pytest.approx(0.42) and every[HOST] == 0 and every[COMMUNICATION] == 0
    seconds, every = predict.add_up(parts | {HOST: 0.5}, predict.Step(1, 2, 2, 0, 1, 2, 4), rates())
    assert every[OPTIMIZER] == pytest.approx(0.01), "two processes share it out"
    assert seconds == pytest.approx(0.5), "the GPU waits for the processor"


def planned(train: TrainSettings, **own: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]:
    """(summary, resources, prediction) of pretrain.plan on an H100."""
    summary, settings = plan.training_facts(train, None, 4096), PlanSettings(gpu="h100", **own)
    resources = partial(resource_plan.plan_resources, summary, plan_settings=settings)
    found = plan.predict_speed(
        summary, train, settings, "", resources(train=train), lambda each: resources(train=each)["fits"]
    )
    return summary, resources(train=train, predicted=found), found


@pytest.mark.filterwarnings("error:Accessing the data pointer of FakeTensor")
def test_a_plan_says_what_is_predicted_where_nothing_was_measured() -> None:
    train = train_settings(
        model=SMALL, tokens=10**9, global_batch_tokens=2**16, precision="bf16", device="cuda", processes=8, engine="torch",
        activation_checkpointing=True,
    )  # fmt: skip
    summary, resources, found = planned(train)
    assert found and resources["mfu"] == found["mfu"] and resources["basis"].endswith("predicted by the data sheet")
    assert found["compiled"]["mfu"] > found["eager"]["mfu"] == found["mfu"] and sum(found["shares"].values()) > 0.99
    best, second, third = found["changes"]
    assert best["settings"] == {"compile_layers": True, "loss_chunk": 4096} and best["gain"] > second["gain"] > 0
    assert second["settings"] == {"activation_checkpointing": False}
    assert third["settings"] == {"selective_checkpointing": True}
    text = "\n".join(resource_plan.plan_lines(summary, resources | {"predicted": found}))
    assert "predicted, not measured" in text and "compile_layers: true, loss_chunk: 4096 (+" in text
    other = train.model_copy(update={"micro_batch": 4})
    moved = resource_plan.plan_resources(summary, other, PlanSettings(gpu="h100"), predicted=found)
    assert moved["source"] == "assumed", "it says nothing of another placement"
    assert planned(train, mfu=0.4)[2] is None


def test_what_cannot_be_counted_is_assumed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    train = train_settings(
        model=SMALL, tokens=10**9, global_batch_tokens=2**17, precision="bf16", device="cuda", engine="torch"
    )
    monkeypatch.setattr(predict, "whole_step", lambda *_: 1 / 0)
    _, resources, found = planned(train)
    assert found is None and resources["source"] == "assumed"
    parallel = train.model_copy(update={"processes": 2, "parallel": train.parallel.model_copy(update={"tensor": 2})})
    assert planned(parallel)[2] is None


@pytest.mark.parametrize(
    "change", [{"autocast": False}, {"document_masking": True}, {"shard_over": "node"}, {"nodes": 2}]
)
def test_a_prediction_is_not_that_of_other_settings(change: dict[str, Any], tmp_path: Path) -> None:
    train = train_settings(
        model=SMALL, tokens=10**9, global_batch_tokens=2**17, precision="bf16", device="cuda", engine="torch"
    )
    summary, gpu = {"shape": {}, "global_batch_tokens": 2**17}, gpus.find("h100")
    assert gpu
    key = cost_estimate.speed_key(summary, train, PlanSettings(), gpu)
    assert key == cost_estimate.speed_key(summary, train.model_copy(), PlanSettings(mfu=0.3), gpu)
    assert key != cost_estimate.speed_key(summary, train.model_copy(update=change), PlanSettings(), gpu)
    (check := tmp_path / "check.json").write_text("{}")
    assert key != cost_estimate.speed_key(summary, train, PlanSettings(gpu_check=str(check)), gpu)


def test_a_later_plan_reads_the_prediction_in_the_record(tmp_path: Path) -> None:
    assert cost_estimate.read_prediction(tmp_path) is None
    Manifest("pretrain.plan", "test", summary={}).write(tmp_path / "manifest.json", [])
    predicted = {"of": "0123456789abcdef", "mfu": 0.4, "basis": "the data sheet"}
    for plan_record, expected in (
        ({"predicted": predicted}, predicted),
        ({"predicted": {"mfu": 0.4}}, None),
        ({}, None),
    ):
        record.write(tmp_path / "manifest.json", "{}", {"plan": plan_record})
        assert cost_estimate.read_prediction(tmp_path) == expected
