"""The training loop: the order of what happens, and its ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from crawl2llm.training import loop
from crawl2llm.training.callback import Callback
from crawl2llm.training.engine import Update
from crawl2llm.training.run_state import RunState
from tests.unit.training.callbacks.conftest import one_process  # noqa: F401

HOOKS = (
    "before_training",
    "before_step",
    "before_update",
    "after_step",
    "before_checkpoint",
    "after_training",
    "close",
)


class Slope:
    """A training that fits a slope by gradient descent: it takes real steps, and notes what the loop has it do."""

    def __init__(self, steps: int) -> None:
        self.state, self.folder, self.last_step = RunState(), Path("checkpoints"), steps
        self.weight = torch.zeros(1, requires_grad=True)
        self.calls: list[Any] = []

    def next_batch(self, step: int) -> torch.Tensor:
        self.calls.append(("next_batch", step))
        return torch.full((4,), 2.0 + step % 2)  # (rows,)

    @contextlib.contextmanager
    def room(self, task: str) -> Any:
        self.calls.append(task)
        yield

    def take_step(self, state: RunState, batch: torch.Tensor) -> None:
        loss = ((self.weight * batch - 3 * batch) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, self.weight)
        with torch.no_grad():
            self.weight -= 0.05 * gradient
        state.update = Update(loss.detach().double(), None, float(gradient.norm()), True)
        state.loss = loop.reduce_loss(state, torch.device("cpu"), 1)

    def end_reading(self) -> None:
        self.ends = getattr(self, "ends", 0) + 1

    def save(self, state: RunState) -> None:
        self.calls.append(("save", state.step))


class Noting(Callback):
    """Notes each call, with the step."""

    def __init__(self, calls: list[Any], name: str = "") -> None:
        for hook in HOOKS[:-1]:
            setattr(self, hook, lambda state, hook=hook: calls.append((name + hook, state.step)))
        self.close = lambda: calls.append(name + "close")  # type: ignore[method-assign]


class At(Callback):
    """Sets something of the state after a step, once."""

    def __init__(self, step: int, **values: Any) -> None:
        self.step, self.values = step, values

    def after_step(self, state: RunState) -> None:
        if state.step == self.step and self.values:
            for name, value in self.values.items():
                setattr(state, name, value)
            self.values = {}


pytestmark = pytest.mark.usefixtures("one_process")


def test_the_order_of_what_happens() -> None:
    training = Slope(2)
    assert loop.train(training, [At(2, save=True), Noting(training.calls)])
    assert training.calls == [
        ("before_training", 0),
        ("before_step", 1), ("next_batch", 1), ("before_update", 1), "step 1", ("after_step", 1),
        ("before_step", 2), ("next_batch", 2), ("before_update", 2), "step 2", ("after_step", 2),
        ("before_checkpoint", 2), ("save", 2), "close", ("after_training", 2),
    ]  # fmt: skip


def test_it_learns() -> None:
    training = Slope(30)
    losses: list[float] = []

    class Losses(Callback):
        def after_step(self, state: RunState) -> None:
            losses.append(state.loss)

    assert loop.train(training, [Losses()])
    assert losses[-1] < 1e-6 < losses[0]


def test_a_signal_ends_it_after_a_checkpoint_and_the_end_is_not_announced() -> None:
    training = Slope(5)
    training.state.signals = []

    class Signal(Callback):
        def before_step(self, state: RunState) -> None:
            if state.step == 2:
                state.signals.append(15)

        def after_step(self, state: RunState) -> None:
            state.save = state.stop

    assert not loop.train(training, [Signal(), Noting(training.calls)])
    assert training.state.step == 2 and ("save", 2) in training.calls
    assert ("after_training", 2) not in training.calls and training.calls[-1] == "close"


def test_an_early_stop_is_an_end() -> None:
    training = Slope(5)
    assert loop.train(training, [At(3, over=True), Noting(training.calls)])
    assert training.state.step == 3 and training.calls[-1] == ("after_training", 3)


@pytest.mark.parametrize("step", [3, 5])
def test_an_early_stop_is_an_end_also_if_a_signal_comes_in_its_step(step: int) -> None:
    training = Slope(5)
    assert loop.train(training, [At(step, over=True, stop=True), Noting(training.calls)])
    assert training.calls[-1] == ("after_training", step)


def test_going_back_begins_the_steps_again_and_leaves_out_the_rest_of_the_step() -> None:
    training = Slope(4)
    training.state.done = 1
    assert loop.train(training, [At(3, goes_back=True), Noting(training.calls)])
    steps = [call[1] for call in training.calls if call[0] == "next_batch"]
    assert steps == [2, 3, 2, 3, 4]
    assert training.calls.count(("after_step", 3)) == 1 and training.calls.count("close") == training.ends == 2


def test_callbacks_are_closed_in_the_reverse_order_after_an_error() -> None:
    training = Slope(4)

    class Broken(Callback):
        def after_step(self, state: RunState) -> None:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        loop.train(training, [Noting(training.calls, "first "), Noting(training.calls, "second "), Broken()])
    assert training.calls[-2:] == ["second close", "first close"]


@pytest.mark.parametrize(("done", "stopped"), [(4, 0), (2, 2)])
def test_a_training_that_has_ended_takes_no_step(done: int, stopped: int) -> None:
    training = Slope(4)
    training.state.done, training.state.stopped = done, stopped
    assert loop.train(training, [Noting(training.calls)])
    assert training.calls == [("before_training", 0), "close", ("after_training", 0)]
