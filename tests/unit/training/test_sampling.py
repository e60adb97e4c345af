"""Answers token by token: what the host asks the device for while they are drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crawl2llm.training import sampling

VOCABULARY, END = 5, 0
GREEDY = sampling.Choice(END, 0.0)


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


def following(
    inputs: torch.Tensor, mask: torch.Tensor | None, places: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """After token t comes t − 1, to the end token: from prompts of several lengths answers of several lengths."""
    return torch.eye(VOCABULARY)[(inputs[:, -1] - 1) % VOCABULARY], cache


@pytest.mark.parametrize("rows", [1, 3])
def test_a_token_asks_the_device_once_for_all_rows(rows: int) -> None:
    prompts = [[1, 2, 3], [4], [1, 2]][:rows]
    draws = torch.zeros(rows, 6, dtype=torch.float64)
    with Asked() as asked:
        answers = sampling.draw_together(following, prompts, draws, GREEDY)
    found = [answer.ids for answer in answers]
    assert found == [[2, 1, 0], [3, 2, 1, 0], [1, 0]][:rows]
    assert asked.calls["_local_scalar_dense"] <= max(map(len, found)) and not asked.calls["nonzero"]


def test_answers_end_with_the_end_token_or_after_as_many_tokens_as_are_drawn() -> None:
    draws = torch.zeros(3, 2, dtype=torch.float64)
    found = sampling.draw_together(following, [[1, 2, 3], [4], [1]], draws, GREEDY)
    assert [answer.ids for answer in found] == [[2, 1], [3, 2], [0]]
    assert sampling.draw_together(following, [], draws[:0], GREEDY, lambda going: True) == []


def test_what_is_drawn_before_the_host_looks_changes_nothing() -> None:
    """Tokens behind an end are left out, and a listener hears each token once and may end an answer."""
    prompts, draws = [[1, 2, 3], [4], [1, 2]], torch.zeros(3, 6, dtype=torch.float64)
    once = sampling.draw_together(following, prompts, draws, GREEDY)
    seldom = sampling.draw_together(following, prompts, draws, GREEDY, stride=4)
    assert seldom == once
    heard: list[list[int]] = [[], [], []]

    def listen(number: int, ids: list[int]) -> bool:
        heard[number] += ids
        return True

    sampling.draw_together(following, prompts, draws, GREEDY, stride=2, listen=listen)
    assert heard == [answer.ids for answer in once]
    ended = sampling.draw_together(following, prompts[1:2], draws[:1], GREEDY, listen=lambda number, ids: ids != [2])
    assert ended[0].ids == [3, 2]
    first_ended = sampling.draw_together(following, prompts, draws, GREEDY, listen=lambda number, ids: number > 0)
    assert [answer.ids for answer in first_ended] == [once[0].ids[:1], once[1].ids, once[2].ids]
