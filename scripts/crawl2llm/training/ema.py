"""The EMA of the weights, a mean over the last steps, for validation and the model that is written (Polyak and Juditsky 1992).

After each update ema ← ema + w · (weights − ema), in fp32, with w = 1 − min(decay, (1 + step) / (10 + step)), so that the random
weights of the beginning are soon forgotten (TensorFlow's ExponentialMovingAverage with num_updates). Each process averages the part of
the fp32 weights that it holds.
"""

from __future__ import annotations

EMA = "ema"  # a kind in a checkpoint's neutral form, and the folder of its files in DeepSpeed's


def update_weight(decay: float, step: int) -> float:
    """How far the EMA goes towards the weights after step 1, 2, …"""
    return 1 - min(decay, (1 + step) / (10 + step))
