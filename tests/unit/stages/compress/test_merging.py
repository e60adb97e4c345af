"""The ways to merge tensors, each beside a few lines in fp64 that follow the papers and not the code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from crawl2llm.stages.compress import merging
from crawl2llm.stages.compress.settings import MergeSettings

SHAPES = ((7,), (5, 3), (64, 48))


def tensors(number: int, shape: tuple[int, ...] = SHAPES[-1], seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) for _ in range(number)]


def ties_by_place(base: Tensor, values: list[Tensor], weights: list[float], density: float) -> Tensor:
    """arXiv:2306.01708, algorithm 1, one number after another."""
    vectors = [(value - base).double() for value in values]
    kept = []
    for vector in vectors:
        least = sorted(vector.abs().flatten().tolist(), reverse=True)[max(1, int(density * vector.numel())) - 1]
        kept.append(torch.where(vector.abs() >= least, vector, 0.0))
    result = base.double().clone().flatten()
    for at in range(result.numel()):
        column = [(float(vector.flatten()[at]), weight) for vector, weight in zip(kept, weights, strict=True)]
        sign = 1 if sum(value * weight for value, weight in column) >= 0 else -1
        agreeing = [(value, weight) for value, weight in column if value * weight * sign > 0]
        if agreeing:
            result[at] += sum(value * weight for value, weight in agreeing) / sum(weight for _, weight in agreeing)
    return result.reshape(base.shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.2, 0.5, 0.7]])
def test_each_method_is_what_its_paper_says(shape: tuple[int, ...], weights: list[float]) -> None:
    base, *values = tensors(4, shape)
    weighted = [weight * value.double() for value, weight in zip(values, weights, strict=True)]
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(merging.average(values, weights).double(), sum(weighted) / sum(weights), **close)
    target = base.double() + sum(part - weight * base.double() for part, weight in zip(weighted, weights, strict=True))
    torch.testing.assert_close(merging.task_arithmetic(base, values, weights).double(), target, **close)
    for density in (0.2, 0.7, 1.0):
        expected = ties_by_place(base, values, weights, density)
        torch.testing.assert_close(merging.ties(base, values, weights, density).double(), expected, **close)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_slerp_is_the_point_on_the_arc(t: float) -> None:
    first, second = (value / value.norm() for value in tensors(2))
    angle = math.acos(float((first.double() * second.double()).sum()))
    result = merging.slerp(first, second, t).double()
    assert float(result.norm()) == pytest.approx(1, abs=1e-6), "it stays on the sphere"
    assert math.acos(min(1.0, float((result * first.double()).sum()))) == pytest.approx(t * angle, abs=1e-3)
    assert math.acos(min(1.0, float((result * second.double()).sum()))) == pytest.approx((1 - t) * angle, abs=1e-3)


def test_slerp_of_a_large_tensor_is_as_exact() -> None:
    """A length that is summed up in fp32 has few right digits: 3,575 units in the last place, of 12 million numbers."""
    first, change = tensors(2, (3000, 1000))
    second = first + 0.1 * change
    angle = math.acos(
        float(torch.nn.functional.cosine_similarity(first.double().view(1, -1), second.double().view(1, -1)))
    )
    parts = [
        math.sin(0.7 * angle) / math.sin(angle) * first.double(),
        math.sin(0.3 * angle) / math.sin(angle) * second.double(),
    ]
    torch.testing.assert_close(merging.slerp(first, second, 0.3).double(), sum(parts), rtol=1e-6, atol=1e-7)


def test_slerp_of_one_direction_or_none_is_a_line() -> None:
    first, zero = tensors(1)[0], torch.zeros(SHAPES[-1])
    torch.testing.assert_close(merging.slerp(first, 3 * first, 0.5), 2 * first)
    torch.testing.assert_close(merging.slerp(first, -first, 0.5), zero)
    assert (
        torch.isfinite(merging.slerp(zero, first, 0.5)).all() and torch.isfinite(merging.slerp(zero, zero, 0.5)).all()
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.lists(st.floats(0.01, 10), min_size=12, max_size=12), st.integers(0, 99))
def test_the_average_of_one_model_with_itself_is_that_model(number: int, weights: list[float], seed: int) -> None:
    value = tensors(1, seed=seed)[0]
    assert torch.equal(merging.average([value] * number, weights[:number]), value)


def test_what_is_given_stays_as_it_is() -> None:
    base, *values = tensors(3)
    before = [value.clone() for value in (base, *values)]
    merging.ties(base, values, [1.0, 2.0], 0.5)
    merging.average(values, [1.0, 2.0])
    merging.slerp(*values, 0.5)
    assert all(torch.equal(*pair) for pair in zip((base, *values), before, strict=True))


@pytest.mark.parametrize("weighting", ["uniform", "sqrt", "cosine", "ema"])
def test_weights_of_checkpoints(weighting: Any) -> None:
    weights = merging.checkpoint_weights(weighting, 5, 0.8)
    assert math.fsum(weights) == pytest.approx(1) and min(weights) > 0
    if weighting == "ema":
        mean = 0.0
        for at, value in enumerate(values := [3.0, 1.0, 4.0, 1.0, 5.0]):
            mean = value if at == 0 else 0.8 * mean + 0.2 * value
        assert math.fsum(map(math.prod, zip(weights, values, strict=True))) == pytest.approx(mean)
        return
    # The mean of checkpoints is the oldest and each later update times what the schedule leaves of its rate.
    rates = {
        "uniform": lambda s: 1 - s,
        "sqrt": lambda s: 1 - s**0.5,
        "cosine": lambda s: (1 + math.cos(math.pi * s)) / 2,
    }
    assert [math.fsum(weights[at:]) for at in range(5)] == pytest.approx([rates[weighting](at / 5) for at in range(5)])


def test_the_settings_choose_the_method() -> None:
    base, *values = tensors(3)
    chosen = {
        "average": merging.average(values, [1.0, 2.0]),
        "checkpoints": merging.average(values, [1.0, 2.0]),
        "slerp": merging.slerp(*values, 0.25),
        "task_arithmetic": merging.task_arithmetic(base, values, [1.0, 2.0]),
        "ties": merging.ties(base, values, [1.0, 2.0], 0.5),
    }
    for method, expected in chosen.items():
        own = MergeSettings.model_validate({"method": method, "t": 0.25, "density": 0.5})
        over = base if method in ("task_arithmetic", "ties") else None
        assert torch.equal(merging.merge_tensors(iter(values), [1.0, 2.0], over, own), expected), method
