"""Answers token by token: what the host asks the device for while they are drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crawl2llm.training import sampling

VOCABULARY, END = 5, 0


class Asked(TorchDispatchMode):
    """Values that the host waits for, by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in ("_local_scalar_dense", "nonzero", "masked_select", "equal"):
            self.calls[name] += 1
        return function(*args, **(kwargs or {}))


def following(inputs: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
    """After token t comes t − 1, to the end token: from prompts of several lengths answers of several lengths."""
    return torch.eye(VOCABULARY)[(inputs[:, -1] - 1) % VOCABULARY], cache


@pytest.mark.parametrize("rows", [1, 3])
def test_a_token_asks_the_device_once_for_all_rows(rows: int) -> None:
    prompts = [[1, 2, 3], [4], [1, 2]][:rows]
    draws = torch.zeros(rows, 6, dtype=torch.float64)
    with Asked() as asked:
        found = sampling.generate_answers(following, prompts, draws, 0.0, END, lambda going: bool(going.any()))
    assert found == [[2, 1, 0], [3, 2, 1, 0], [1, 0]][:rows]
    assert asked.calls["_local_scalar_dense"] <= max(map(len, found)) and not asked.calls["nonzero"]


def test_answers_end_with_the_end_token_or_after_as_many_tokens_as_are_drawn() -> None:
    draws = torch.zeros(3, 2, dtype=torch.float64)
    found = sampling.generate_answers(
        following, [[1, 2, 3], [4], [1]], draws, 0.0, END, lambda going: bool(going.any())
    )
    assert found == [[2, 1], [3, 2], [0]]
    assert sampling.generate_answers(following, [], draws[:0], 0.0, END, lambda going: True) == []
