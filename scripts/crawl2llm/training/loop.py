"""The loop of every training: pretrain.train and its rungs, finetune.train, align.reward, align.train and compress.prune.

What happens around a step (rows, speed, spikes, roll backs, validation, early stop, checkpoints) is a callback: training/callbacks/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.training.callback import Callback
from crawl2llm.training.run_state import RunState

Room = Callable[
    [str], contextlib.AbstractContextManager[None]
]  # explains a lack of memory in a part of a training, named in words


class Training(Protocol):
    """What the loop trains, on one process."""

    state: RunState
    folder: Path  # of its checkpoints

    @property
    def last_step(self) -> int:
        """The last step of the training."""

    def next_batch(self, step: int) -> Any:
        """This process's data of a step, on the CPU."""

    def take_step(self, state: RunState, batch: Any) -> None:
        """One optimizer update; sets what the state says of the step. A collective call."""

    def room(self, task: str) -> contextlib.AbstractContextManager[None]:
        """Turns a lack of memory in this part of the training into an error that says what to change."""

    def end_reading(self) -> None:
        """Forget a batch that was read ahead."""

    def save(self, state: RunState) -> None:
        """Write a checkpoint after `state.step`. A collective call."""


def train(training: Training, callbacks: Sequence[Callback]) -> bool:
    """Train to the last step or an early stop; False if a signal ended it before, after a checkpoint. A collective call."""
    state = training.state
    while take_steps(training, callbacks):
        pass  # a roll back: begin again after an earlier step
    if state.stop and not state.over and state.step < training.last_step:
        log.info("stopped by a signal after step %s; the checkpoint is in %s", f"{state.step:,}", training.folder)
        return False
    for callback in reversed(callbacks):
        callback.after_training(state)
    return True


def take_steps(training: Training, callbacks: Sequence[Callback]) -> bool:
    """Take the steps after `state.done`; True if they have to begin again after an earlier step."""
    state = training.state
    state.begin()
    with contextlib.ExitStack() as closing:
        closing.callback(training.end_reading)
        for callback in callbacks:
            closing.callback(callback.close)
            callback.before_training(state)
        for step in range(state.done + 1, (state.stopped or training.last_step) + 1):
            state.step = step
            for callback in callbacks:
                callback.before_step(state)
            batch = training.next_batch(step)
            for callback in callbacks:
                callback.before_update(state)
            with training.room(f"step {step:,}"):
                training.take_step(state, batch)
            for callback in callbacks:
                callback.after_step(state)
                if state.goes_back:
                    return True
            if state.save:
                with state.clock.pause():
                    for callback in callbacks:
                        callback.before_checkpoint(state)
                    training.save(state)
            if state.stop or state.over:
                break
    return False


def all_reduce_loss(state: RunState, device: torch.device, processes: int, loss: torch.Tensor) -> torch.Tensor:
    """(mean loss of the global batch in nats a token, how many processes got a signal): float64 on the device. A collective call.

    loss: of this process's part. One all-reduce has both, so that all processes stop together.
    """
    # Made on the device: to put a number of the host into a tensor would wait for it.
    signals = torch.full((), float(bool(state.signals)), dtype=torch.float64, device=device)
    total = torch.stack([(loss / processes).double(), signals])
    dist.all_reduce(total)
    return total


def reduce_loss(state: RunState, device: torch.device, processes: int) -> float:
    """The mean loss of the global batch in nats a token, after `state.update`; sets `state.stop`.

    A collective call, unless the update has what `all_reduce_loss` made.
    """
    reduced = state.update.reduced
    if reduced is None:
        reduced = all_reduce_loss(state, device, processes, state.update.loss).tolist()
    loss, stopping = reduced
    state.stop = stopping > 0
    return float(loss)
