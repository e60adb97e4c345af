"""How long operations take, and what a compiler makes of them."""

from __future__ import annotations

import pytest

from crawl2llm.training import gpus
from crawl2llm.training.prediction.operations import (
    ATTENTION,
    ELEMENTWISE,
    PRODUCTS,
    Operation,
    fused_bytes,
    step_seconds,
)
from crawl2llm.training.prediction.rates import Rates, sheet_rates

MB = 10**6


def rates() -> Rates:
    gpu = gpus.find("h100")
    found = sheet_rates(gpu) if gpu else None
    assert found
    return found


def pointwise(
    reads: list[int], writes: list[int], backward: bool = False, name: str = "mul", layer: int = 1
) -> Operation:
    return Operation(ELEMENTWISE, 0.0, dict.fromkeys(reads, MB), dict.fromkeys(writes, MB), layer, backward, name=name)


def product(reads: list[int], writes: list[int], backward: bool = False) -> Operation:
    return Operation(PRODUCTS, 1e9, dict.fromkeys(reads, MB), dict.fromkeys(writes, MB), 1, backward)


def test_a_chain_between_products_is_one_kernel() -> None:
    """1 → 2 → 3 → product: 1 is read and 3 is written; 2 is neither."""
    assert fused_bytes([pointwise([1], [2]), pointwise([2], [3]), product([3], [4])]) == [2 * MB]


def test_what_the_backward_pass_alone_reads_is_computed_again() -> None:
    """2 is not written: the backward pass reads 1 instead."""
    chain = [
        pointwise([1], [2]),
        pointwise([2], [3]),
        product([3], [4]),
        pointwise([5, 2], [6], True),
        product([6], [7], True),
    ]
    assert fused_bytes(chain) == [2 * MB, 3 * MB]


def test_a_residual_over_a_product_is_written_and_read_again() -> None:
    """2 is read by a product and, behind that, by a sum, whose result another layer reads."""
    chain = [
        pointwise([1], [2]),
        product([2], [3]),
        pointwise([2, 3], [4]),
        pointwise([4], [5], layer=2),
        product([5], [6]),
    ]
    assert fused_bytes(chain) == [2 * MB, 3 * MB, 2 * MB]


def test_casts_of_one_tensor_are_one() -> None:
    chain = [pointwise([1], [number], name="_to_copy") for number in (2, 3)]
    assert fused_bytes([*chain, product([2], [4]), product([3], [5])]) == [2 * MB]


def test_an_operation_takes_its_arithmetic_or_its_bytes() -> None:
    found = rates()
    large = Operation(PRODUCTS, found.products, {1: 1}, {2: 1})
    wide = Operation(PRODUCTS, 1.0, {1: int(found.copy)}, {2: 1})
    attention = Operation(ATTENTION, found.attention_rate(64, True), {1: 1}, {2: 1}, backward=True, head=80)
    seconds = step_seconds([large, wide, attention], found, compiled=False)
    assert seconds[PRODUCTS] == pytest.approx(2) and seconds[ATTENTION] == pytest.approx(1)
    assert step_seconds([pointwise([1], [2])], found, compiled=True)[ELEMENTWISE] > 0
