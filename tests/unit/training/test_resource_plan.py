"""Memory, hours and price of a planned training, and the GPUs it may run on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core import record
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.slurm import queue
from crawl2llm.stages.pretrain.plan import training_facts
from crawl2llm.training import auto, cost_estimate, gpus, resource_plan
from crawl2llm.training.auto import training_flops_per_token
from crawl2llm.training.checkpoint import Checkpoint, KeepPolicy
from crawl2llm.training.memory import TOLERANCE, attention_widths
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings
from tests.unit.training.typed import shape_settings, train_settings

SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "layers": 24, "heads": 16, "kv_heads": 16, "context": 2048}
OWN = PlanSettings()
LAST: dict[str, Any] = {
    "flops": 4e14, "mfu": 0.42, "device": "NVIDIA H100 80GB HBM3", "cuda": True, "precision": "bf16", "threads": 1,
    "parameters": 345_000_000,
}  # fmt: skip


def trained(**keys: Any) -> TrainSettings:
    """pretrain.train, complete, of a model of 350 million parameters on one GPU."""
    given = {"model": SHAPE, "tokens": 7 * 10**9, "global_batch_tokens": 2**19, "precision": "bf16", "device": "cuda"}
    return train_settings(**{**given, **keys})


def plan(own: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    train = trained(**keys)
    return resource_plan.plan_resources(
        training_facts(train, None, 32_768), train, PlanSettings(**({"gpu": "h100"} if own is None else own)), last=last
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("h100", ("h100", 80e9, 989e12)),
        ("NVIDIA H100 80GB HBM3", ("h100", 80e9, 989e12)),
        ("nvidia_h100_80gb_hbm3", ("h100", 80e9, 989e12)),  # as SLURM's autodetection writes it
        ("NVIDIA A100-SXM4-40GB", ("a100-40gb", 40e9, 312e12)),
        ("NVIDIA A100-PCIE-40GB", ("a100-40gb", 40e9, 312e12)),
        ("a100_80gb", ("a100-80gb", 80e9, 312e12)),
        ("NVIDIA GH200 144G HBM3e", ("gh200-144gb", 144e9, 989e12)),
        ("H200", ("h200", 141e9, 989e12)),
        ("a100", None),
        ("gtx1080", None),
    ],
)
def test_a_gpu_by_its_names(name: str, found: tuple[str, float, float] | None) -> None:
    gpu = gpus.find(name)
    assert (gpu and (gpu.name, gpu.memory, gpu.peak)) == found


def test_every_gpu_of_the_table_has_a_peak() -> None:
    for name in gpus.KINDS:
        assert (gpu := gpus.find(name)) and gpu.peak and gpu.memory >= 40e9 and gpu.name == name
        assert gpus.name_in_profile(f"gpu:{name}:2") == name and queue.count_gpus(f"gpu:{name}:2") == 2


def test_a_gpu_of_the_profile_without_a_name_is_not_taken_for_a_cpu(tmp_path: Path) -> None:
    assert gpus.name_in_profile("'gpu:2'") == gpus.name_in_profile("nvme:1,gpu") == gpus.UNNAMED
    assert gpus.name_in_profile("") == gpus.name_in_profile("nvme:1") == gpus.name_in_profile("gpus_of_mine:1") == ""
    with pytest.raises(InputError, match=r"the profile asks for a GPU without a name: which one is not known; set "):
        gpus.training_gpu(OWN, "auto", gpus.name_in_profile("gpu:4"), tmp_path)
    with pytest.raises(
        InputError, match=r"pretrain\.train\.device is cuda, and no GPU is named: which one is not known"
    ):
        gpus.training_gpu(OWN, "cuda", "", tmp_path)
    assert (gpu := gpus.training_gpu(PlanSettings(gpu_memory=24), "cuda", "", tmp_path)) and gpu.memory == 24e9
    assert gpus.training_gpu(PlanSettings(gpu="h100"), "cpu") is None  # the training would run on a CPU


def test_which_gpu_is_meant(tmp_path: Path) -> None:
    assert gpus.name_in_profile("'gpu:h100:4'") == "h100" and gpus.name_in_profile("") == ""
    nothing = tmp_path / "none"
    assert gpus.training_gpu(OWN, "auto", "", nothing) is None
    assert (gpu := gpus.training_gpu(OWN, "auto", "h200", nothing)) and gpu.name == "h200"
    assert gpus.training_gpu(OWN, "cpu", "h200", nothing) is None
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0/information").write_text("Model: \t\t NVIDIA H200\nIRQ: 16\n")
    assert (gpu := gpus.training_gpu(OWN, "auto", "", tmp_path)) and gpu.name == "h200"
    with pytest.raises(
        InputError, match=r"the GPU of the profile is 'a100', whose memory is not known: set .*gpu_memory"
    ):
        gpus.training_gpu(OWN, "auto", "a100")
    assert (gpu := gpus.training_gpu(PlanSettings(gpu_memory=64), "auto", "a100")) and (gpu.memory, gpu.peak) == (
        64e9,
        None,
    )


def test_hours_are_operations_over_what_is_used_of_the_peak() -> None:
    summary = training_facts(trained(), None, 32_768)
    one, eight = plan(), plan(processes=4, nodes=2)
    assert one["hours"] == pytest.approx(summary["flops"]["total"] / (0.35 * 989e12) / 3600)
    assert one["gpu_hours"] == one["hours"] and "assumed" in one["basis"] and "price" not in one
    assert eight["hours"] == pytest.approx(one["hours"] / 8) and eight["gpu_hours"] == pytest.approx(one["gpu_hours"])
    dear = plan({"gpu": "h100", "gpu_hour_price": 3.0, "currency": "EUR"})
    assert dear["price"] == pytest.approx(3 * one["gpu_hours"])
    assert f"{dear['price']:,.0f} EUR" in "\n".join(resource_plan.plan_lines(summary, dear))
    assert plan(activation_checkpointing=True)["hours"] == pytest.approx(4 / 3 * one["hours"])


def test_what_new_writes_for_h100s_has_the_speed_that_new_says() -> None:
    """Before pretrain.plan has counted the very step; any other GPU, model or setting has what is assumed."""
    row = auto.TABLE[-1]
    shape = {name: getattr(row, name) for name in SHAPE}
    one, eight = ({"model": shape, **cost_estimate.gpu_settings(2**20, row.context, number)} for number in (1, 8))
    by_number = cost_estimate.PREDICTED_MFU[row.hidden_size, row.layers]
    assert [plan(global_batch_tokens=2**20, **keys)["mfu"] for keys in (one, eight)] == list(by_number)
    assert "predicted for what `crawl2llm new --gpus` writes" in plan(global_batch_tokens=2**20, **one)["basis"]
    others: list[dict[str, Any]] = [
        {"compile_layers": False}, {"autocast": True}, {"nodes": 2}, {"micro_batch": 8}, {"optimizer": "muon"},
        {"activation_checkpointing": True}, {"model": {**shape, "layers": 24}},
    ]  # fmt: skip
    for changed in others:
        assert plan(global_batch_tokens=2**20, **{**one, **changed})["mfu"] == cost_estimate.MFU
    assert plan({"gpu": "h200"}, global_batch_tokens=2**20, **one)["mfu"] == cost_estimate.MFU
    assert plan({"gpu": "h100", "mfu": 0.5}, global_batch_tokens=2**20, **one)["mfu"] == 0.5
    assert plan(last={**LAST, "parameters": 10**9}, global_batch_tokens=2**20, **one)["mfu"] == 0.42
    small = {name: getattr(auto.TABLE[0], name) for name in SHAPE}
    tiny = plan(global_batch_tokens=4096, model=small, **cost_estimate.gpu_settings(4096, small["context"], 1))
    assert tiny["basis"].startswith("an MFU of 0.19%, predicted")


def test_without_a_peak_for_the_precision_there_are_no_hours() -> None:
    summary, single = training_facts(trained(precision="fp32"), None, 32_768), plan(precision="fp32")
    assert single["basis"] == "no peak of an h100 is known for fp32"
    assert not single.keys() & {"hours", "gpu_hours", "price", "mfu"}
    assert "hours are not known: no peak of an h100 is known for fp32" in resource_plan.plan_lines(summary, single)
    assert "no peak of an a100 is known" in plan({"gpu": "a100", "gpu_memory": 40})["basis"]


def test_mfu_that_is_set_comes_before_what_was_measured_and_that_before_what_is_assumed() -> None:
    last = LAST
    assert plan(last=last)["mfu"] == 0.42 and "as the last training here" in plan(last=last)["basis"]
    assert plan({"gpu": "h100", "mfu": 0.5}, last)["mfu"] == 0.5
    assert plan(last={**last, "mfu": None, "cuda": False})["mfu"] == cost_estimate.MFU  # a CPU says nothing of a GPU


@pytest.mark.parametrize(
    "changed",
    [
        {"device": "NVIDIA A100-SXM4-80GB"},
        {"device": "NVIDIA H100 PCIe"},
        {"device": "Something New"},
        {"precision": "fp32"},
        {"parameters": 28_192},
        {"parameters": 7_000_000_000},
    ],
)
def test_the_speed_of_another_training_says_nothing(changed: dict[str, Any]) -> None:
    found, without = plan(last={**LAST, "mfu": 0.02, **changed}), plan()
    assert found["hours"] == without["hours"] and found["mfu"] == cost_estimate.MFU
    assert "assumed; the last training here was another: " in found["basis"]
    assert str(changed.get("device", "H100")) in found["basis"] and "another" not in without["basis"]
    assert "another" not in plan({"gpu": "h100", "mfu": 0.5}, {**LAST, **changed})["basis"]
    near = {**LAST, "parameters": 2 * LAST["parameters"]}
    assert plan(last=near)["mfu"] == 0.42 and "another" not in plan(last=near)["basis"]


def test_on_a_cpu_too_the_last_training_counts_where_it_was_alike() -> None:
    keys = {"device": "cpu", "precision": "fp32", "threads": 8, "processes": 1}
    last = {
        **LAST,
        "flops": 1e11,
        "mfu": None,
        "device": "Intel(R) Xeon(R) Processor",
        "cuda": False,
        "precision": "fp32",
    }
    without, found = plan({}, **keys), plan({}, {**last, "threads": 8}, **keys)
    assert (
        "100 GFLOP/s of a process, as the last training here" in found["basis"] and found["hours"] != without["hours"]
    )
    for changed in ({"parameters": 28_192}, {"threads": 1}, {"precision": "bf16"}, {"cuda": True}):
        other = plan({}, {**last, "threads": 8, **changed}, **keys)
        assert other["hours"] == without["hours"] and "assumed; the last training here was another" in other["basis"]


def test_what_an_earlier_training_measured(tmp_path: Path) -> None:
    folder = tmp_path / "results/main/pretrain/train"
    folder.mkdir(parents=True)
    assert cost_estimate.read_last_training(folder) is None
    shape = {**dict(trained().model), "vocabulary": 32_768}
    made = Manifest("pretrain.train", "test", summary={"shape": shape})
    made.write(folder / "manifest.json", [])
    facts_of_run = {"device": "cuda", "devices": {"NVIDIA H100 80GB HBM3": 8}, "processes": 8}
    told = '{"config": {"precision": "bf16"}}'
    record.write(folder / "manifest.json", told, facts_of_run)
    rows = [
        {"step": 10, "tokens_per_second": 1.0},
        {"step": 20, "tokens_per_second": 1e6},
        {"step": 30, "tokens_per_second": 1e6},
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = cost_estimate.read_last_training(folder)
    assert found and found["flops"] == pytest.approx(
        1e6 * training_flops_per_token(shape_settings(**shape), 32_768) / 8
    )
    assert found["mfu"] == pytest.approx(found["flops"] / 989e12)
    assert (
        found["parameters"] == training_facts(trained(), None, 32_768)["parameters"]["total"]
        and found["precision"] == "bf16"
    )
    record.write(folder / "manifest.json", told.replace("bf16", "fp32"), facts_of_run)
    assert (
        (single := cost_estimate.read_last_training(folder))
        and single["mfu"] is None
        and single["flops"] == found["flops"]
    )
    (folder / "metrics.jsonl").write_text("{damaged")
    assert cost_estimate.read_last_training(folder) is None


def test_the_lines_say_that_eight_bits_are_counted_as_bf16() -> None:
    line = "precision is fp8, and memory and speed are estimated as for bf16"
    for precision, is_said in (("fp8", True), ("bf16", False)):
        summary = training_facts(trained(precision=precision, engine="torch"), None, 32_768)
        found = plan(precision=precision, engine="torch")
        assert (line in resource_plan.plan_lines(summary, found)) is is_said
        measured = resource_plan.plan_lines(summary, found | {"source": "measured"})
        assert ("precision is fp8, and memory is estimated as for bf16" in measured) is is_said


def test_the_lines_say_whether_it_fits_and_what_helps() -> None:
    summary = training_facts(trained(micro_batch=64), None, 32_768)
    found = plan(micro_batch=64)
    text = "\n".join(resource_plan.plan_lines(summary, found))
    assert not found["fits"] and "DOES NOT FIT" in text and "to make it fit: set pretrain.train.micro_batch to " in text
    better = int(found["changes"][0].split("micro_batch to ")[1].split()[0])
    assert plan(micro_batch=better)["fits"] and not plan(micro_batch=2 * better)["fits"]
    roomy = plan({"gpu": "h100", "gpu_memory": 1000}, micro_batch=64)
    assert roomy["fits"] and not roomy["tight"]


def test_between_what_there_is_and_what_is_refused_it_says_that_it_may_not_fit() -> None:
    total, summary = plan()["memory"]["total"] / 1e9, training_facts(trained(), None, 32_768)

    def found(part: float) -> dict[str, Any]:
        return plan({"gpu": "h100", "gpu_memory": total / part})

    assert [found(part)["fits"] for part in (0.5, 0.95, 1.1, 1.2)] == [True, True, False, False]
    assert [found(part)["tight"] for part in (0.5, 0.95, 1.1, 1.2)] == [False, True, True, False]
    assert [found(part)["refused"] for part in (0.5, 0.95, 1.1, 1.2)] == [False, False, False, True]
    assert 1.1 < TOLERANCE < 1.2
    assert (
        "may not fit" in resource_plan.plan_lines(summary, found(1.1))[1]
        and "DOES NOT FIT" in resource_plan.plan_lines(summary, found(1.2))[1]
    )
    assert "to make it fit: " in resource_plan.plan_lines(summary, found(1.1))[2]


def test_the_memory_of_each_engine_is_its_own() -> None:
    """On one GPU FSDP2 has a copy of the weights to compute with, and no gradients in bf16 beside those in fp32."""
    for stage in range(4):
        ours, theirs = (plan(engine=name, zero_stage=stage)["memory"] for name in ("torch", "deepspeed"))
        assert ours != theirs
    eight = {"engine": "torch", "processes": 8}
    shared, gathered = (plan(**eight, zero_stage=stage)["memory"] for stage in (3, 2))
    assert shared["weights"] < gathered["weights"] / 2 and shared["optimizer"] == gathered["optimizer"]


@given(
    st.integers(1, 200), st.integers(1, 30), st.integers(1, 4), st.integers(0, 40), st.integers(0, 30), st.randoms(),
    st.booleans(),
)  # fmt: skip
def test_checkpoints_on_the_disk_are_never_more_than_planned(
    steps: int, every: int, newest: int, apart: int, between: int, chance: random.Random, best: bool
) -> None:
    """Against the rule that the trainer keeps them by, with losses of validations that fall or do not."""
    keys = {"checkpoint_every": every, "keep_checkpoints": newest, "keep_every": apart, "keep_best": best}
    train = trained(**keys, steps=steps, tokens=None, validate_every=between)
    kept, there, most, lowest = KeepPolicy(newest, apart, best), [], 0, 2.0
    for step in range(1, steps + 1):
        loss = chance.random() if step == steps or (between and step % between == 0) else None
        record_low = loss is not None and loss < lowest
        lowest = min(lowest, loss) if loss is not None else lowest
        if step == steps or step % every == 0 or (apart and step % apart == 0) or (best and record_low):
            made = Checkpoint(
                path=Path(f"{step}"), step=step, processes=1, zero_stage=0, settings="", code={}, validation=loss
            )
            most = max(most, len(there) + 1)
            there = kept.checkpoints_to_keep([*there, made])
    planned = resource_plan.max_checkpoints(training_facts(train, None, 32_768), train)
    assert most <= planned <= most + (2 if best else 0) + (steps // apart if best and apart else 0)
    assert best or planned == most


def test_before_the_steps_are_known_every_nth_is_said_beside() -> None:
    train = trained(tokens=None, epochs=1, keep_every=1000)
    summary = training_facts(train, None, 32_768)
    found = resource_plan.plan_resources(summary, train, PlanSettings(gpu="h100"))
    assert resource_plan.plan_lines(summary, found)[-1].endswith(", and a checkpoint more for every 1,000 steps")


def test_the_shape_has_the_widths_that_the_parameters_are_counted_with() -> None:
    model = {
        **dict(trained().model),
        "type": "gpt2",
        "kv_heads": None,
        "intermediate_size": None,
        "overrides": {"n_inner": 512},
    }
    found = resource_plan.shape_of({"shape": {**model, "vocabulary": 1000}}, "adamw")
    assert (found.intermediate, found.width, found.kv) == (512, 1024, 1024)
    grouped = {**dict(trained().model), "kv_heads": 4, "overrides": {"head_dim": 32}}
    found = resource_plan.shape_of({"shape": {**grouped, "vocabulary": 1000}}, "adamw")
    assert (found.intermediate, found.width, found.kv) == (2816, 512, 128)


def test_a_trainer_estimates_with_the_widths_of_the_model_that_it_builds() -> None:
    """A Gemma 2 has 4 heads of keys where none are set: a plan, which counts it as a Llama, cannot know it; the trainer does."""
    from transformers import AutoConfig

    from crawl2llm.training.model import build_config, count_parameters

    model = {**dict(trained().model), "type": "gemma2", "kv_heads": None}
    summary = {"shape": {**model, "vocabulary": 1000}}
    built = build_config(shape_settings(**model), 1000, 0)
    found = resource_plan.shape_as_built(summary, "adamw", built, count_parameters(built))
    assert (found.parameters, found.width, found.kv) == (count_parameters(built), 1024, 4 * 64)
    assert resource_plan.shape_of(summary, "adamw").kv == 1024
    # Of a configuration whose heads do not share out the hidden size, such as that of a published model.
    own = AutoConfig.for_model("qwen3", hidden_size=1024, num_attention_heads=16, num_key_value_heads=8)
    assert attention_widths(own) == (16 * 128, 8 * 128)
    assert attention_widths(AutoConfig.for_model("mamba")) == (0, 0)


def test_a_laptop_is_measured_with_all_its_processes() -> None:
    train = trained(device="cpu", processes=2, precision="fp32")
    summary = training_facts(train, None, 32_768)
    one = resource_plan.plan_resources(summary, train, OWN, has=1e12)
    need = 2 * one["memory"]["total"]
    assert resource_plan.plan_resources(summary, train, OWN, has=need)["fits"]
    short = resource_plan.plan_resources(summary, train, OWN, has=need - 1)
    assert not short["fits"] and any("pretrain.train.processes from 2 to 1" in words for words in short["changes"])
    assert one["gpu_hours"] == 0 and "a thread, assumed" in one["basis"]
