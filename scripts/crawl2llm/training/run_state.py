"""Where a training is: what its loop and its callbacks share, and what its checkpoints keep of that."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from crawl2llm.training.checkpoint import Checkpoint
from crawl2llm.training.clock import Clock
from crawl2llm.training.engine import Update


@dataclass
class RunState:
    """The state of a training on one process.

    Whatever decides what comes next is the same on every process. `signals`, `clock`, `update.loss` and the documents in `row` are not.
    """

    # What a checkpoint keeps:
    done: int = 0  # steps before the first one of this start
    skipped: list[int] = field(default_factory=list)  # steps whose update was left out
    overflows: int = 0  # updates that were left out for fp16's loss scale
    lowest: float | None = None  # the lowest validation loss, in nats a token
    stale: int = 0  # validations since then
    stopped: int = 0  # the step of an early stop; 0: there was none
    ahead: int = 0  # sequences that roll backs left out
    rolled: list[dict[str, Any]] = field(default_factory=list)  # the roll backs

    # The step that is taken:
    step: int = 0
    loss: float = math.nan  # mean of the global batch, in nats a token
    update: Update = None  # type: ignore[assignment] # before the first step
    overflowed: bool = False  # its update was left out for fp16's loss scale
    spiked: bool = False  # its update was left out as a spike
    row: dict[str, Any] = field(default_factory=dict)  # what losses.jsonl says of it
    experts: dict[str, float] = field(default_factory=dict)  # the load of a mixture's experts, if it is logged
    measures: list[dict[str, float]] = field(default_factory=list)  # time and memory of each process, if it is logged
    scores: dict[str, Any] | None = None  # of the validation after it

    # What becomes of the training after it:
    signals: list[int] = field(default_factory=list)  # that this process got
    stop: bool = False  # some process got a signal: the training ends with a checkpoint, and resumes
    over: bool = False  # the training ends before its last step, for good
    goes_back: bool = False  # the steps begin again after `done`
    save: bool = False  # a checkpoint is written

    best: int = 0  # the step whose weights were taken at the end, if it may stop early
    clock: Clock = field(default_factory=Clock)

    def restore(self, resume_point: Checkpoint | None) -> None:
        """Be where a checkpoint is; None: at the beginning."""
        kept = resume_point or RunState()
        self.done = resume_point.step if resume_point else 0
        self.skipped, self.rolled = list(kept.skipped), list(kept.rolled)
        self.overflows, self.overflowed = kept.overflows, False
        self.lowest, self.stale, self.stopped, self.ahead = kept.lowest, kept.stale, kept.stopped, kept.ahead

    def begin(self) -> None:
        """Before the first step of this start, or after a roll back."""
        self.stop = self.over = self.goes_back = self.save = False
        self.step, self.clock = 0, Clock()
