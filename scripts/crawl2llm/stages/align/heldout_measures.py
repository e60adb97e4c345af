"""Measures the held-out rows of an alignment every `measure_every` steps."""

from __future__ import annotations

from collections.abc import Callable

from crawl2llm.training.callback import Callback
from crawl2llm.training.loop import Room
from crawl2llm.training.run_state import RunState


class HeldoutMeasures(Callback):
    """Hands what `measure` finds to `show`, every so many steps except after the last.

    measure: a collective call. room: explains a lack of memory (`Run.room`).
    """

    def __init__(
        self,
        every: int,
        last: int,
        measure: Callable[[], dict[str, float]],
        show: Callable[[dict[str, float]], None],
        room: Room,
    ) -> None:
        self.every, self.last, self.measure, self.show, self.room = every, last, measure, show, room

    def after_step(self, state: RunState) -> None:
        if state.step % self.every == 0 and state.step < self.last:
            with self.room(f"step {state.step:,}"):
                self.show(self.measure())
