"""`precision: fp8`: which layers multiply in eight bits, how far that is from bf16, and where it is refused. Emulated: no GPU is needed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import snakemake.api  # noqa: F401 - first, since the modules import each other
import torch
from snakemake.exceptions import WorkflowError

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, float8, gpus, initial, model
from crawl2llm.training.float8 import check_precision
from crawl2llm.workflow import start
from tests.unit.stages.pretrain.test_engines import side_by_side
from tests.unit.training.test_masking import EOS, shape
from tests.unit.training.typed import train_settings

needs_torchao = pytest.mark.skipif(not float8.has_torchao(), reason="make fp8-tools first")


@needs_torchao
@pytest.mark.parametrize("kind", checks.FP8_TYPES)
def test_layers_multiply_in_eight_bits(kind: str) -> None:
    """All matrices of the layers, and no others; not those of experts and routers. Parameters are what they were."""
    config = model.build_config(shape(kind), 64, EOS, ("kv_heads", "intermediate_size"))
    built = initial.empty_model(config)
    before = {name: id(value) for name, value in built.named_parameters()}
    converted = float8.convert_layers(initial.decoder_layers(built), 32, emulate=True)
    assert {name: id(value) for name, value in built.named_parameters()} == before
    names = {name for name, module in built.named_modules() if type(module).__name__ == "Float8Linear"}
    matrices = {name.removesuffix(".weight") for name, value in built.named_parameters() if value.ndim == 2}
    outside = {name for name in matrices if ".layers." not in name}
    routers = {name for name in matrices if name.endswith(".mlp.gate")}
    assert len(outside) in (1, 2) and len(routers) == (2 if kind in ("mixtral", "olmoe") else 0)
    assert names == matrices - outside - routers and len(names) == converted


@needs_torchao
def test_a_model_without_a_size_that_16_divides_is_refused() -> None:
    """It would be trained in bf16 without a word."""
    narrow = shape("llama").model_copy(update={"hidden_size": 40, "intermediate_size": 64})
    built = initial.empty_model(model.build_config(narrow, 64, EOS))
    with pytest.raises(InputError, match="no layer of the model has two sizes that 16 divides"):
        float8.convert_layers(initial.decoder_layers(built), 32, emulate=True)


@needs_torchao
@pytest.mark.slow
def test_20_steps_are_those_of_bf16(tmp_path: Path) -> None:
    """Within 0.02 nats, by two processes; a checkpoint holds tensors of the same types, by the same names."""
    side_by_side("eight_bits", 2, str(tmp_path))
    cases = json.loads((tmp_path / "eight_bits.json").read_text())
    plain = cases.pop("bf16")
    assert plain["losses"][0] - plain["losses"][-1] > 1
    for case in cases.values():
        losses = plain["losses"][: len(case["losses"])]
        assert case["losses"] == pytest.approx(losses, abs=0.02) and case["losses"] != losses
        assert case["state"] == plain["state"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "deepspeed"}, "engine deepspeed: set pretrain.train.engine to torch"),
        ({"device": "cpu"}, "device cpu: set pretrain.train.device to auto or cuda"),
        ({"model": {"type": "gpt2"}}, "model.type gpt2: set pretrain.train.model.type to gemma2 or"),
        ({"parallel": {"tensor": 2}, "processes": 2}, "parallel is set, which was not tried together"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, Any], words: str) -> None:
    settings = train_settings(**{"precision": "fp8", "engine": "torch", **changes})
    with pytest.raises(InputError) as caught:
        checks.check_settings(settings, settings.processes)
    assert str(caught.value).startswith("pretrain.train.precision is fp8, and ") and words in str(caught.value)
    checks.check_settings(train_settings(precision="fp8", engine="torch"), 1)


def test_devices_without_eight_bits_are_refused() -> None:
    float8.check_capability("NVIDIA L40S", (8, 9))
    float8.check_capability("NVIDIA B200", (10, 0))
    with pytest.raises(
        InputError, match=r"trains on NVIDIA A100-SXM4-80GB, of compute capability 8\.0: .*precision to bf16"
    ):
        float8.check_capability("NVIDIA A100-SXM4-80GB", (8, 0))
    with pytest.raises(InputError, match="trains on a CPU"):
        float8.check_capability()
    for name in ("h100", "NVIDIA L40S", "", "unknown"):
        check_precision("fp8", name)
    check_precision("bf16", "a100-40gb")
    with pytest.raises(
        InputError, match=r"precision is fp8, and an a100-40gb has no products of eight bits \(h100, .*l40s have\)"
    ):
        check_precision("fp8", "a100-40gb")


def test_it_needs_torchao(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CRAWL2LLM_FP8", str(tmp_path))
    other = tmp_path / "site/torchao-0.5.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: torchao\nVersion: 0.5.0\n")
    monkeypatch.syspath_prepend(str(other.parent))
    with pytest.raises(InputError, match=r"precision is fp8, and torchao is not in .*make fp8-tools .*; or set"):
        float8.check_torchao()


def eight_bit_config(device: str = "auto", gpu: str | None = None) -> dict[str, Any]:
    """What start.check_training reads of a config."""
    train = {"precision": "fp8", "compile_layers": False, "device": device}
    return {"pretrain": {"train": train, "plan": {"gpu": gpu}}}


def test_a_run_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On this machine without a GPU, or with an A100; a cluster has other GPUs than the machine that plans."""
    config = eight_bit_config()
    project: Any = SimpleNamespace(variants={"main": config}, manifest_path=lambda *_: tmp_path / "manifest.json")
    monkeypatch.setattr(float8, "has_torchao", lambda: True)
    monkeypatch.setattr(gpus, "local_gpu_name", lambda: "NVIDIA A100-SXM4-80GB")
    for has_gpus, words in ((False, "trains on a CPU"), (True, "an a100-80gb has no products of eight bits")):
        with pytest.raises(InputError, match=words):
            start.check_training(project, has_gpus, runs_here=True)
    start.check_training(project, has_gpus=False, runs_here=False)
    monkeypatch.setattr(gpus, "local_gpu_name", lambda: "NVIDIA H100 80GB HBM3")
    start.check_training(project, has_gpus=True, runs_here=True)


@pytest.mark.parametrize(("device", "gpu"), [("cuda", None), ("auto", "h100")])
def test_a_cpu_machine_may_plan_for_a_gpu_and_not_train(
    device: str, gpu: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The chip is looked at before torchao, which nobody needs for a plan."""
    variants = {"main": eight_bit_config(device, gpu)}
    project: Any = SimpleNamespace(variants=variants, manifest_path=lambda *_: tmp_path / "manifest.json")
    monkeypatch.setattr(float8, "has_torchao", lambda: False)
    start.check_training(project, has_gpus=False, runs_here=True)
    job = SimpleNamespace(rule=SimpleNamespace(name="pretrain_train"), wildcards_dict={"variant": "main"})
    workflow: Any = SimpleNamespace(
        touch=False,
        dag=SimpleNamespace(needrun_jobs=lambda: [job]),
        resource_settings=SimpleNamespace(nodes=None),
        deployment_settings=SimpleNamespace(deployment_method=set()),
    )
    with pytest.raises(WorkflowError, match="trains on a CPU"):
        start.check_planned_training(workflow, project, [])
    job.rule.name = "pretrain_plan"
    start.check_planned_training(workflow, project, [])
    for lasting in (eight_bit_config("cpu", gpu), eight_bit_config()):
        variants["main"] = lasting
        with pytest.raises(InputError, match=r"trains on a CPU.*to plan for a GPU elsewhere, set .*plan\.gpu"):
            start.check_training(project, has_gpus=False, runs_here=True)
    with pytest.raises(InputError, match="trains on a CPU"):
        float8.check_device(torch.device("cpu"))
