"""The steps of a training whose loss stands out: how many standard deviations it is above the mean of the steps before.

The measure of the trainer's own guard (training/skips.py), over the same window, whether that is switched on or not. The guard
waits for half of its window too; here short trainings have an answer as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.commands.trace.data_order import TRAIN
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.errors import InputError

LEAST = 20  # steps before any is judged, the judged one included: OLMo-core's
SHOWN = 5
OUT = 3.0  # standard deviations from which a step stands out
LOSSES = "losses.jsonl"


def deviations(losses: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """How many standard deviations each loss is above the mean of the `window` before it, [steps]; −inf of the first LEAST − 1."""
    out = np.full(len(losses), -np.inf)
    number = np.minimum(np.arange(len(losses)), window)
    for size in range(LEAST - 1, min(window, len(losses) - 1) + 1):
        at = np.flatnonzero(number == size)
        before = np.lib.stride_tricks.sliding_window_view(losses[:-1], size)[at - size]
        spread = before.std(axis=1, ddof=1)
        above = losses[at] - before.mean(axis=1)
        out[at] = np.divide(above, spread, out=np.where(above > 0, np.inf, 0.0), where=spread > 0)
    return out


def largest(results: Results, most: int = SHOWN) -> list[dict[str, Any]]:
    """The steps of the base model's training that stand out most, the farthest first. Raises InputError for a training of too few steps."""
    made = results.made(TRAIN)
    if made is None:
        raise InputError(f"{results.path(TRAIN)} is not there: no training has ended whose steps could be told")
    rows = [row for row in made.rows(LOSSES) if "loss" in row]
    if len(rows) < LEAST:
        raise InputError(
            f"--spike compares a step with those before it; the training has {len(rows)} steps, and {LEAST} are the least"
        )
    found = deviations(
        np.array([row["loss"] for row in rows], np.float64), results.config["pretrain"]["train"]["spike_window"]
    )
    order = [at for at in np.argsort(-found, kind="stable")[:most] if found[at] > -np.inf]
    return [
        {"step": rows[at]["step"], "loss": rows[at]["loss"], "deviations": round(float(found[at]), 2)} for at in order
    ]
