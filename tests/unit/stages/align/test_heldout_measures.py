"""What is measured of the held-out rows of an alignment while it trains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from crawl2llm.stages.align.heldout_measures import HeldoutMeasures
from crawl2llm.training.run_state import RunState


def test_it_measures_every_so_many_steps_except_after_the_last_and_explains_a_lack_of_memory() -> None:
    shown: list[dict[str, float]] = []
    tasks: list[str] = []

    @contextlib.contextmanager
    def room(task: str) -> Iterator[None]:
        tasks.append(task)
        yield

    state = RunState()
    measures = HeldoutMeasures(2, 6, lambda: {"heldout_accuracy": state.step / 10}, shown.append, room)
    for state.step in range(1, 7):
        measures.after_step(state)
    assert shown == [{"heldout_accuracy": 0.2}, {"heldout_accuracy": 0.4}] and tasks == ["step 2", "step 4"]
