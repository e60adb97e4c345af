"""Keeps the EMA of the weights (training/ema.py)."""

from __future__ import annotations

from crawl2llm.training.callback import Callback
from crawl2llm.training.ema import update_weight
from crawl2llm.training.engine import Engine
from crawl2llm.training.loop import Room
from crawl2llm.training.run_state import RunState


class UpdateEma(Callback):
    """Moves the EMA after each update that was made. decay: how much of it stays. room: explains a lack of memory (`Run.room`)."""

    def __init__(self, engine: Engine, decay: float, room: Room) -> None:
        self.engine, self.decay, self.room = engine, decay, room

    def after_step(self, state: RunState) -> None:
        if state.update.applied:
            with self.room(f"step {state.step:,}"):
                self.engine.update_ema(update_weight(self.decay, state.step))
