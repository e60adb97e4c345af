"""Which weights become zero."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import masks
from crawl2llm.stages.compress.settings import PruneSettings


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.05, 0.95), st.integers(0, 99))
def test_the_smallest_share_goes(rows: int, columns: int, sparsity: float, seed: int) -> None:
    weight = torch.randint(
        -4, 5, (rows, columns), generator=torch.Generator().manual_seed(seed)
    ).float()  # with equal ones
    kept = masks.magnitude_mask(weight, sparsity)
    assert int((~kept).sum()) == round(sparsity * weight.numel())
    if 0 < int(kept.sum()) < weight.numel():
        assert weight[kept].abs().min() >= weight[~kept].abs().max()
    assert torch.equal(kept, masks.magnitude_mask(-weight, sparsity))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_two_of_four_keeps_the_largest_sum(rows: int, groups: int, seed: int) -> None:
    weight = torch.randn(rows, 4 * groups, generator=torch.Generator().manual_seed(seed))
    kept = masks.two_of_four(weight).reshape(-1, 4)
    for values, mask in zip(weight.abs().reshape(-1, 4), kept, strict=True):
        assert int(mask.sum()) == 2
        assert float(values[mask].sum()) == pytest.approx(
            max(float(values[list(pair)].sum()) for pair in combinations(range(4), 2))
        )


def test_two_of_four_needs_a_multiple_of_four() -> None:
    with pytest.raises(InputError, match=r"compress.prune.method is '2:4', and x.proj has 6 inputs, no multiple of 4"):
        masks.weight_mask(torch.zeros(4, 6), "x.proj", PruneSettings(method="2:4"))


def test_zeros_stay_zero_under_adamw_with_decay() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8, bias=False)
    layer.weight.data *= masks.magnitude_mask(layer.weight.data, 0.5)
    before = layer.weight.detach().clone()
    masks.keep_zeros(layer, ["weight"])
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.randn(3, 8)).square().sum().backward()
        optimizer.step()
    assert torch.equal(layer.weight == 0, before == 0)
    assert (layer.weight != before).sum() == 32
