"""quality.select: the cut and the Pareto draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.quality.select import cut, judge, pareto

SETTINGS: dict[str, Any] = {"method": "fraction", "seed": 0, "alpha": 9.0}


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]) | st.floats(0, 1), max_size=40), st.floats(0, 1))
@example([0.1, 0.5, 0.9], 0.5)
def test_cut_keeps_the_best_and_no_more_than_ties_force(values: list[float], fraction: float) -> None:
    scores = np.array(values)
    threshold = cut(scores, fraction)
    kept = int((scores >= threshold).sum())
    wanted = round(len(scores) * fraction)
    assert kept >= wanted
    assert int((scores > threshold).sum()) <= wanted or fraction >= 1


def test_cut_without_scores() -> None:
    assert cut(np.empty(0), 0.5) == 0.0


@pytest.mark.parametrize("alpha", [1.0, 9.0])
def test_draws_are_lomax(alpha: float) -> None:
    draws = np.array([pareto(3, f"{n}", alpha) for n in range(20_000)])
    assert draws.min() >= 0
    for quantile in (0.1, 0.5, 0.9):
        # NumPy's pareto(a): P(X > x) = (1 + x) ** -a
        expected = (1 - quantile) ** (-1 / alpha) - 1
        assert np.quantile(draws, quantile) == pytest.approx(expected, rel=0.05)


def test_pareto_keeps_a_score_as_often_as_gpt3_did() -> None:
    for score in (0.0, 0.5, 0.9):
        rows = [{"id": f"{n}", "curated": False, "score": score} for n in range(20_000)]
        kept = sum(judge(row, {**SETTINGS, "method": "pareto"}, 0.0)["kept"] for row in rows) / len(rows)
        # np.random.pareto(9) > 1 - score
        assert kept == pytest.approx((2 - score) ** -9.0, abs=0.006)


def test_verdict_says_what_was_measured_and_against_what() -> None:
    row = {"id": "a", "curated": False, "score": 0.3}
    assert judge(row, SETTINGS, 0.4) == {
        "id": "a",
        "kept": False,
        "rule": "fraction",
        "value": 0.3,
        "threshold": 0.4,
        "rules": ["fraction"],
    }
    assert judge(row, SETTINGS, 0.3)["kept"]
    dropped = judge({**row, "score": 0.0, "id": "b"}, {**SETTINGS, "method": "pareto"}, 0.0)
    assert dropped["rule"] == "pareto" and dropped["value"] <= dropped["threshold"]


@pytest.mark.parametrize("row", [{"curated": True, "score": 0.0}, {"curated": False, "score": None}])
@pytest.mark.parametrize("method", ["fraction", "pareto"])
def test_curated_and_unscored_documents_stay(row: dict[str, Any], method: str) -> None:
    assert judge({"id": "a", **row}, {**SETTINGS, "method": method}, 0.99)["kept"]
