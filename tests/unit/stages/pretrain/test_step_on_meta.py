"""A step of ZeRO 1 on the meta device, by two processes: what it waits for, and what they tell each other, with AdamW and with Muon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.pretrain.test_engines import side_by_side

BLOCKS = 3  # of FSDP: two layers, and what is around them
# Of Muon's matrices: queries and output, keys and values, both projections of the feed-forward layer, its output.
SHAPES = 4
MICRO_BATCHES = 2
SHARED = ["c10d::_allgather_base_"] * BLOCKS + ["c10d::_reduce_scatter_base_"] * BLOCKS
LOSS = ["c10d::allreduce_"]  # before the update, with the norm
SENT = ["c10d::alltoall_base_"] * 2 * SHAPES  # the parts to a matrix's owner, and its update back


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process wrote."""
    folder: Path = tmp_path_factory.mktemp("meta")
    side_by_side("step_on_meta", 2, str(folder))
    return [json.loads((folder / f"meta-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("adamw", SHARED + LOSS),
        ("muon", SHARED + LOSS + SENT),
        ("muon bf16", SHARED + LOSS + SENT),
        ("documents", SHARED + LOSS),
    ],
)
def test_a_step_waits_once(steps: list[dict[str, Any]], case: str, calls: list[str]) -> None:
    """For loss and norm together. And it gathers and scatters once, whatever the number of micro-batches."""
    for step in steps:
        assert step[case]["values"] == 1
        assert step[case]["calls"] == calls


def test_each_question_more_is_counted(steps: list[dict[str, Any]]) -> None:
    """Under document masking a forward pass asked once for a value, before masking.document_numbers."""
    for step in steps:
        assert step["documents asked for"]["values"] == 1 + MICRO_BATCHES
        assert step["gradients asked for"]["values"] == 1 + step["gradients asked for"]["parameters"]
        assert step["loss asked for"]["values"] == 2
