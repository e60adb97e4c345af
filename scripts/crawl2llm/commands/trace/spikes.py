"""The steps of a training whose loss stands out: how many standard deviations it is above the mean of the steps before.

The measure of the trainer's own guard (training/spikes.py), over the same window, whether that is switched on or not. The guard
waits for half of its window too; here short trainings have an answer as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.commands.trace.data_order import TRAIN
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.errors import InputError

LEAST_STEPS = 20  # steps before any is judged, the judged one included: OLMo-core's
MOST_SPIKES = 5
OUTLYING = 3.0  # standard deviations from which a step stands out
LOSSES = "losses.jsonl"


def loss_deviations(losses: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """How many standard deviations each loss is above the mean of the `window` before it, [steps]; −inf of the first LEAST_STEPS − 1."""
    out = np.full(len(losses), -np.inf)
    number = np.minimum(np.arange(len(losses)), window)
    for size in range(LEAST_STEPS - 1, min(window, len(losses) - 1) + 1):
        at = np.flatnonzero(number == size)
        before = np.lib.stride_tricks.sliding_window_view(losses[:-1], size)[at - size]
        spread = before.std(axis=1, ddof=1)
        above = losses[at] - before.mean(axis=1)
        out[at] = np.divide(above, spread, out=np.where(above > 0, np.inf, 0.0), where=spread > 0)
    return out


def largest_spikes(results: Results, most: int = MOST_SPIKES) -> list[dict[str, Any]]:
    """The steps of the base model's training that stand out most, the farthest first. Raises InputError for a training of too few steps."""
    manifest = results.read_manifest(TRAIN)
    if manifest is None:
        raise InputError(
            f"{results.manifest_path(TRAIN)} does not exist: no training has ended whose steps can be shown"
        )
    rows = [row for row in manifest.rows(LOSSES) if "loss" in row]
    if len(rows) < LEAST_STEPS:
        raise InputError(
            f"--spike compares a step with those before it; the training has {len(rows)} steps, and {LEAST_STEPS} are the least"
        )
    deviations = loss_deviations(
        np.array([row["loss"] for row in rows], np.float64), results.config["pretrain"]["train"]["spike_window"]
    )
    order = [at for at in np.argsort(-deviations, kind="stable")[:most] if deviations[at] > -np.inf]
    return [
        {"step": rows[at]["step"], "loss": rows[at]["loss"], "deviations": round(float(deviations[at]), 2)}
        for at in order
    ]
