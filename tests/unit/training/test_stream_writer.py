"""Checkpoints that are written tensor by tensor: the bytes are safetensors' own, and the file is never in memory."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch.distributed.checkpoint import DefaultSavePlanner

from crawl2llm.training.engines import stream_writer, torch_files

NAME = "shard-00001-model-00001-of-00001.safetensors"
MB = 1 << 20


@pytest.fixture(autouse=True)
def alone() -> Any:
    """torch warns that there is no process group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def split(file: bytes) -> tuple[list[tuple[str, Any]], bytes]:
    """(header in its order, without that of the metadata, which safetensors changes from call to call; tensors)."""
    end = 8 + int.from_bytes(file[:8], "little")
    entries: list[tuple[str, Any]] = json.loads(file[8:end], object_pairs_hook=list)
    return [(key, sorted(value)) for key, value in entries], file[end:]


def test_the_bytes_are_those_of_safetensors(tmp_path: Path) -> None:
    """For every dtype in its place, scalars, empty tensors, tensors that do not lie in one piece, and names of any letters."""
    state = {f'weight/{dtype}.ä"\\b': torch.arange(7).to(dtype) for dtype in reversed(stream_writer.DTYPES)}
    state |= {"step/a": torch.ones(()), "momentum/none": torch.zeros(0, 3), "momentum/turned": torch.randn(3, 5).T}
    torch_files.write_state(state, tmp_path)
    offsets = {name: {"saved_offsets": [0] * value.dim()} for name, value in state.items()}
    metadata = {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
    file = (tmp_path / NAME).read_bytes()
    expected = save({name: value.contiguous() for name, value in state.items()}, metadata)
    (header, tensors), (expected_header, expected_tensors) = split(file), split(expected)
    assert tensors == expected_tensors and len(file) == len(expected)
    for entries in (header, expected_header):  # in the order of the plan, which says nothing
        text = dict(entries[0][1])["DCP_SHARDING_INFO"]
        assert json.loads(text) == offsets
        entries[0] = ("__metadata__", sorted(dict(entries[0][1]).keys() - {"DCP_SHARDING_INFO"}))
    assert header == expected_header
    empty = {name: torch.zeros_like(value) for name, value in state.items()}
    assert not torch_files.read_state(empty, state.keys(), tmp_path, tmp_path)
    assert all(torch.equal(empty[name], value) for name, value in state.items())


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the order of safetensors' metadata is in a process: the plan has one."""
    state = {f"weight/{name}": torch.randn(3) for name in "abc"}
    for folder in (tmp_path / "one", tmp_path / "two"):
        torch_files.write_state(state, folder)
    assert (tmp_path / "one" / NAME).read_bytes() == (tmp_path / "two" / NAME).read_bytes()


def test_the_file_is_not_in_memory(tmp_path: Path) -> None:
    """Of 32 MB torch's writer takes 64 more."""
    state = {f"weight/{number}": torch.zeros(MB) for number in range(8)}
    tracemalloc.start()
    try:
        torch_files.write_state(state, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / NAME).stat().st_size > 32 * MB > 8 * peak


def test_a_process_without_a_part_writes_no_file(tmp_path: Path) -> None:
    writer, planner = stream_writer.StreamWriter(tmp_path), DefaultSavePlanner()
    planner.set_up_planner({}, None, is_coordinator=True)
    (plan,) = writer.prepare_global_plan([planner.create_local_plan()])
    assert writer.write_data(plan, planner).wait() == [] and not list(tmp_path.iterdir())
