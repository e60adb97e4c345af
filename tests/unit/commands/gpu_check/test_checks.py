"""What the checks compute, on a CPU."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from crawl2llm.commands.gpu_check import attention, models, numerics, predicted, speed, steps
from crawl2llm.commands.gpu_check.lines import OK, SLOW
from crawl2llm.training import initial


class GpusOfANode:
    """A place among GPUs whose rates are given."""

    on_gpu, device, name = True, None, ""

    def __init__(self, *rates: float) -> None:
        self.rates, self.processes = rates, len(rates)

    def gather(self, _: Any) -> list[Any]:
        return [(rate, f"GPU-{number}") for number, rate in enumerate(self.rates)]


def test_weights_are_given_for_every_name() -> None:
    config = models.llama_config("tiny", 512, 64)
    model = initial.empty_model(config)
    drawn = {name: tuple(value.shape) for name, value in models.draw_weights(config, "cpu")}
    assert drawn == {name: tuple(value.shape) for name, value in [*model.named_parameters(), *model.named_buffers()]}


def test_a_straggler_is_named_by_its_uuid() -> None:
    copy: Any = ("memory", "copy")
    line = speed.rate_line(GpusOfANode(3e12, 3e12, 2.8e12), copy, 0, 3.3e12, 0.8, "TB/s")  # type: ignore[arg-type]
    assert line.verdict == SLOW and line.note == "GPU-2 reaches 2.80"
    assert speed.rate_line(GpusOfANode(3e12, 3e12), copy, 0, 3.3e12, 0.8, "TB/s").verdict == OK  # type: ignore[arg-type]
    line = speed.rate_line(GpusOfANode(1e12), copy, 0, 3.3e12, 0.8, "TB/s")  # type: ignore[arg-type]
    assert line.verdict == SLOW and line.note == "GPU-0 reaches 1.00"
    line = speed.rate_line(GpusOfANode(3e12, 3e12, 2.8e12), copy, 0, None, 0, "TB/s", alike=0.9)  # type: ignore[arg-type]
    assert line.verdict == OK, "chips of one kind differ so much when they are warm"


def test_a_process_on_a_cpu_is_named_and_not_judged() -> None:
    place: Any = GpusOfANode(3e12, 3e12, 1e12)
    place.on_gpu = False
    line = speed.rate_line(place, ("products", "bf16"), 0, None, 0, "TFLOP/s")
    assert line.verdict == OK and line.note == "GPU-2 reaches 1.00"


def test_differences_are_nan_where_a_number_is_none() -> None:
    assert numerics.differences([(1.0, 2.0)], [(1.5, 1.0)]) == (0.5, 1.0)
    assert math.isnan(numerics.differences([(1.0, math.nan)], [(1.5, 1.0)])[1])


def test_attention_document_by_document_is_that_of_a_mask() -> None:
    borders, width = [0, 3, 4, 9], 8
    queries, keys, values = torch.randn(9, 4, width), torch.randn(9, 2, width), torch.randn(9, 2, width)
    documents = torch.tensor([0] * 3 + [1] + [2] * 5)
    mask = (documents[:, None] == documents[None]) & torch.ones(9, 9).tril().bool()
    masked = torch.nn.functional.scaled_dot_product_attention(
        *(each.transpose(0, 1)[None] for each in (queries, keys, values)), attn_mask=mask, enable_gqa=True
    )[0].transpose(0, 1)
    assert (attention.by_document(queries, keys, values, borders) - masked).abs().max() < 1e-5


class TwoProcesses:
    """A place of two processes on one node, or on two."""

    on_gpu, tiny, sheet, processes = False, True, None, 2

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes


def test_what_is_compared_with_fp32_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics.importlib.util, "find_spec", lambda name: None)
    names = [numerics.case_name(case) for case in numerics.cases(TwoProcesses(1))]  # type: ignore[arg-type]
    assert len(names) == len(set(names)) == 16 + 2 + 3
    assert "stage 0, muon, bf16, without autocast" in names and "stage 3, adamw, bf16, sharded over a node" in names
    alone: Any = TwoProcesses(1)
    alone.processes = 1
    assert not any("sharded over" in numerics.case_name(case) for case in numerics.cases(alone))


def test_halves_of_a_single_node_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for changes, nodes, here in (({"shard_over": "node"}, 1, "1"), ({"shard_over": "node"}, 2, "2"), ({}, 1, "2")):
        with numerics.nodes_for(changes, TwoProcesses(nodes)):  # type: ignore[arg-type]
            assert os.environ["LOCAL_WORLD_SIZE"] == here
    assert os.environ["LOCAL_WORLD_SIZE"] == "2"


def test_steps_are_predicted_as_an_h100_measured_them() -> None:
    """43,137 tokens/s: benchmarks/results/gpu_check.json."""
    (rate,) = predicted.predict_rates("h100", 1, 1, ["eager, stage 0"]).values()
    assert rate == pytest.approx(43_137, rel=0.05)
    assert predicted.predict_rates("h100", 1, 1, [name for name in steps.CASES if "fp8" in name]) == {}


def test_muon_is_estimated_with_one_moment_of_a_matrix() -> None:
    config = models.llama_config("tiny", 512, 64)
    adam, muon = (
        steps.estimate_memory(config, models.engine_settings(optimizer=kind), 2)["optimizer"]
        for kind in ("adamw", "muon")
    )
    assert muon < 0.7 * adam


STAGE_3 = """
import os, sys
from pathlib import Path
import torch
from crawl2llm.commands.gpu_check import numerics
from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.training.group import join_group
from crawl2llm.training.processes import environments, free_port
os.environ.update(environments(0, 1, 1, "127.0.0.1", free_port())[0])
cpu, linear = torch.device("cpu"), torch.nn.functional.linear
join_group(cpu, 1)
numerics.cases = lambda place: [{"zero_stage": 3, "optimizer": "adamw", "precision": "bf16", "engine": "deepspeed"}]
lines = list(numerics.check(Place(cpu, True, Path(), Path())))
assert lines[-1].what.endswith("DeepSpeed") and lines[-1].verdict == "ok", lines
assert torch.nn.functional.linear is linear
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_products_are_torchs_after_deepspeed() -> None:
    """Seen on an H200: `steps`, which comes later in the process, measured 3 to 4 GiB less than a training takes."""
    done = subprocess.run([sys.executable, "-c", STAGE_3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
