"""A group of one process, a recorder of rows, and a state after a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from crawl2llm.training.engine import Update
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run_state import RunState


@pytest.fixture
def one_process() -> Iterator[None]:
    """A real process group, of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Writes losses.jsonl and metrics.jsonl into `tmp_path`."""
    with Recorder(tmp_path, 0, 0, tensorboard=False, wandb="disabled", project="", config={}) as rows:
        yield rows


def update(applied: bool = True, loss: float = 2.0, norm: float | None = 1.0) -> Update:
    """What became of a step."""
    return Update(torch.tensor(loss, dtype=torch.float64), None, norm, applied)


def state_after(step: int, applied: bool = True, loss: float = 2.0) -> RunState:
    """The state after a step, without skipped steps before it."""
    state = RunState()
    state.step, state.loss, state.update = step, loss, update(applied, loss)
    state.row = {"step": step, "loss": loss}
    return state
