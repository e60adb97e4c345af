"""The scaling law: constants that are known come back, and what cannot be told is not told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.report.sweeps.scaling import OPERATIONS, Law, fit_law, identifiable_powers, law_row, why_no_law

# Hoffmann et al. 2022, arXiv:2203.15556, equation 10.
CHINCHILLA = Law(1.69, 406.4, 0.34, 410.7, 0.28)
SIZES = np.array([44e6, 3e8, 3e9, 1e10])
TOKENS = np.array([1e9, 2e10, 1e11, 4e11])
N, D = (part.ravel() for part in np.meshgrid(SIZES, TOKENS))


def test_the_published_constants_come_back() -> None:
    found = fit_law(N, D, CHINCHILLA.loss(N, D))
    assert found is not None
    for name in ("E", "A", "alpha", "B", "beta"):
        assert getattr(found, name) == pytest.approx(getattr(CHINCHILLA, name), rel=1e-3)


def test_the_published_law_says_what_chinchilla_should_have_lost() -> None:
    """70 billion parameters on 1.4 trillion tokens: 1.69 + 0.08 + 0.16 (arXiv:2404.10102, section 2)."""
    assert float(CHINCHILLA.loss(70e9, 1.4e12)) == pytest.approx(1.94, abs=0.01)


@given(st.floats(1e15, 1e27))
def test_no_other_size_is_better_than_the_optimum(operations: float) -> None:
    best = CHINCHILLA.optimum(operations)
    assert best is not None
    parameters, tokens = best
    assert OPERATIONS * parameters * tokens == pytest.approx(operations)
    least = float(CHINCHILLA.loss(parameters, tokens))
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert float(CHINCHILLA.loss(parameters * factor, tokens / factor)) > least


def test_intervals_hold_the_constants_of_noisy_losses() -> None:
    chance = np.random.default_rng(4)
    losses = CHINCHILLA.loss(N, D) * np.exp(chance.normal(0, 0.002, len(N)))
    found = law_row(list(N), list(D), list(losses), 30, 0.95, seed=0)
    for name in ("alpha", "beta", "E"):
        low, high = (found["constants"][name][end] for end in ("low", "high"))
        wide = high - low
        assert low - wide < getattr(CHINCHILLA, name) < high + wide and wide > 0
    assert [row["operations"] for row in found["optima"]] == pytest.approx([6 * 4e21, 6 * 4e22, 6 * 4e23])
    assert found == law_row(list(N), list(D), list(losses), 30, 0.95, seed=0)


@pytest.mark.parametrize("by", ["parameters", "tokens"])
def test_one_of_the_two_alone(by: str) -> None:
    """Where only one varies, the other's part is in E."""
    if by == "tokens":
        law = fit_law([1e8] * 4, list(TOKENS), list(CHINCHILLA.loss(1e8, TOKENS)))
        assert law is not None and law.A is None and law.beta == pytest.approx(0.28, rel=1e-3)
        assert pytest.approx(1.69 + 406.4 * 1e8**-0.34, rel=1e-3) == law.E and law.optimum(1e20) is None
    else:
        law = fit_law(list(SIZES), [1e10] * 4, list(CHINCHILLA.loss(SIZES, 1e10)))
        assert law is not None and law.B is None and law.alpha == pytest.approx(0.34, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "tokens", "words"),
    [
        ([1, 1, 2], [5, 5, 5], "sizes of model: 2, numbers of tokens: 1"),
        ([1, 2, 3], [1, 2, 2], "both vary"),
        ([1, 2, 3, 4, 5, 6], [20, 40, 60, 80, 100, 120], "on one line"),
    ],
)
def test_what_is_not_identifiable(sizes: list[int], tokens: list[int], words: str) -> None:
    assert identifiable_powers(sizes, tokens) == (False, False)
    assert fit_law(sizes, tokens, [1.0] * len(sizes)) is None
    assert words in why_no_law(sizes, tokens)
    assert words in law_row(sizes, tokens, [1.0] * len(sizes), 9, 0.9, seed=0)["why"]
