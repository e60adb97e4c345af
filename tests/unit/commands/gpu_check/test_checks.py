"""What the checks compute, on a CPU."""

from __future__ import annotations

import math
from typing import Any

import torch

from crawl2llm.commands.gpu_check import attention, models, numerics, speed, steps
from crawl2llm.commands.gpu_check.lines import OK, SLOW
from crawl2llm.training import gpus, initial
from crawl2llm.training.prediction import data_sheets


class GpusOfANode:
    """A place among GPUs whose rates are given."""

    on_gpu, device = True, None

    def __init__(self, *rates: float) -> None:
        self.rates, self.processes = rates, len(rates)

    def gather(self, _: Any) -> list[Any]:
        return [(rate, f"GPU-{number}") for number, rate in enumerate(self.rates)]


def test_weights_are_given_for_every_name() -> None:
    config = models.llama_config("tiny", 512, 64)
    model = initial.empty_model(config)
    drawn = {name: tuple(value.shape) for name, value in models.draw_weights(config, "cpu")}
    assert drawn == {name: tuple(value.shape) for name, value in [*model.named_parameters(), *model.named_buffers()]}


def test_every_kind_of_gpu_has_a_data_sheet() -> None:
    assert data_sheets.SHEETS.keys() == gpus.KINDS.keys()


def test_a_straggler_is_named_by_its_uuid(monkeypatch: Any) -> None:
    monkeypatch.setattr(speed, "uuid_of", lambda device: "")
    place: Any = GpusOfANode(3e12, 3e12, 2.8e12)
    line = speed.rate_line(place, "memory", "copy", 0, 3.3e12, 0.8, "TB/s")
    assert line.verdict == SLOW and line.note == "GPU-2 reaches 2.80"
    assert speed.rate_line(GpusOfANode(3e12, 3e12), "memory", "copy", 0, 3.3e12, 0.8, "TB/s").verdict == OK  # type: ignore[arg-type]
    line = speed.rate_line(GpusOfANode(1e12), "memory", "copy", 0, 3.3e12, 0.8, "TB/s")  # type: ignore[arg-type]
    assert line.verdict == SLOW and line.note == "GPU-0 reaches 1.00"


def test_the_way_of_nccl_is_read_from_its_log(tmp_path: Any) -> None:
    (tmp_path / speed.NCCL_LOG).write_text(
        "node1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
        "node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    )
    ways = speed.nccl_ways(tmp_path)
    assert ways == ["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", "via P2P/CUMEM"]


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


def test_muon_is_estimated_with_one_moment_of_a_matrix() -> None:
    config = models.llama_config("tiny", 512, 64)
    adam, muon = (
        steps.estimate_memory(config, models.engine_settings(optimizer=kind), 2)["optimizer"]
        for kind in ("adamw", "muon")
    )
    assert muon < 0.7 * adam
