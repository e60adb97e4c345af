"""Text to calibrate on: windows of the training text in the order that a training would take them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from crawl2llm.training import data


def first_windows(stream: data.Stream, context: int, tokens: int, seed: int) -> data.Tokens:
    """The first windows of a training by `seed`, of about so many tokens: int64 [n, context]; at most all that the stream has.

    Raises InputError as `data.count_windows`.
    """
    have = data.count_windows(stream, context)
    number = max(1, min(tokens // context, have))
    indices = data.windows_from(0, number, have, seed)
    return data.read_windows(stream, indices[None], context)[0][:, :-1].astype(np.int64)


def calibration_windows(tokens: Iterable[Path], context: int, number: int, seed: int) -> data.Tokens:
    """The same of manifests of tokenize.encode. number: of tokens."""
    return first_windows(data.open_split(tokens, "train"), context, number, seed)
