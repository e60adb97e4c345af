"""What the report and the summary say of a difference between two models."""

from __future__ import annotations

import pytest

from scripts.report.compared import change


@pytest.mark.parametrize(
    ("value", "measure", "words"),
    [
        (0.1364, "heldout_text", "+0.136"),
        (-0.00042, "heldout_text", "−0.0004"),
        (0.00096, "heldout_text", "+0.0010"),
        (-1e-9, "heldout_text", "−0.000000"),
        (0.0, "heldout_text", "+0.000"),
        (-0.013, "continuation", "−1.3"),
    ],
)
def test_a_small_difference_keeps_a_digit(value: float, measure: str, words: str) -> None:
    assert change(value, measure) == words
