"""Shows how tokens are shared out over a mixture's experts: measures in the rows of metrics.jsonl, and a table at each validation."""

from __future__ import annotations

from collections.abc import Callable

from crawl2llm.training.callback import Callback
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.routers import Routers
from crawl2llm.training.run_state import RunState

Load = list[list[int]]  # how often each expert was chosen, by router


class ExpertLoad(Callback):
    """On every process, before `Speed`, whose rows have what `experts` of the state says.

    every, last: steps between rows, and the run's last step, which has one. has_table: whether a step has the table. may_end: whether
    the run may end with a step, which then has a row too. recorder: on process 0.
    """

    def __init__(
        self,
        routers: Routers,
        recorder: Recorder | None,
        every: int,
        last: int,
        has_table: Callable[[int], bool],
        may_end: Callable[[RunState], bool] = lambda _: False,
    ) -> None:
        self.routers, self.recorder = routers, recorder
        self.every, self.last, self.has_table, self.may_end = every, last, has_table, may_end

    def before_training(self, state: RunState) -> None:
        self.of_row: Load = []
        self.of_table: Load = []
        self.routers.since.zero_()  # of steps that a roll back took back

    def after_step(self, state: RunState) -> None:
        row = state.step % self.every == 0 or state.step == self.last
        table = self.has_table(state.step)
        if not (row or table or self.may_end(state)):
            return
        load = self.routers.take_load()
        self.of_row, self.of_table = add_loads(self.of_row, load), add_loads(self.of_table, load)
        state.experts = self.routers.load_measures(self.of_row)
        if table and self.recorder:
            self.recorder.write_table({"step": state.step, "expert_load": self.of_table})
        self.of_row = [] if row else self.of_row
        self.of_table = [] if table else self.of_table


def add_loads(first: Load, second: Load) -> Load:
    """Two loads together; [] is none."""
    if not first:
        return second
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]
