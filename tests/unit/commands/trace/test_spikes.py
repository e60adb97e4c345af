"""What stands out is what the trainer's guard would say of each step."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.commands.trace.spikes import LEAST_STEPS, loss_deviations
from crawl2llm.training.spikes import LEAST_STEPS as GUARDS
from crawl2llm.training.spikes import SpikeDetector

LOSS = st.floats(0, 10, allow_nan=False, width=32)


@given(st.lists(LOSS, max_size=80), st.integers(GUARDS, 60), st.floats(0.5, 8))
@settings(max_examples=60)
def test_deviations_are_those_of_the_trainers_guard(losses: list[float], window: int, sigma: float) -> None:
    assert LEAST_STEPS == GUARDS
    guard, found = SpikeDetector(sigma, window, ()), loss_deviations(np.array(losses, np.float64), window)
    for number, loss in enumerate(losses):
        spike = guard.is_spike(loss, 0.0) and guard.quantity == "loss"
        if number + 1 < max(LEAST_STEPS, window // 2) or math.isclose(found[number], sigma, rel_tol=1e-9):
            continue
        if spike:
            assert found[number] > sigma
        elif len(set(losses[max(0, number - window) : number])) > 1:
            assert found[number] <= sigma


def test_a_short_training_has_none() -> None:
    assert np.isneginf(loss_deviations(np.ones(5), 128)).all() and len(loss_deviations(np.zeros(0), 128)) == 0
