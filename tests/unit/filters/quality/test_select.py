"""quality.select: the cut and the Pareto draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawl2llm.filters.quality.score import SIGNAL
from crawl2llm.filters.quality.select import Task, judge_batch, pareto_draw, top_fraction_threshold

SETTINGS = Task(skipped_by=[])


def verdicts(rows: list[dict[str, Any]], settings: Task, threshold: float) -> list[dict[str, Any]]:
    return judge_batch(pa.RecordBatch.from_pylist(rows, schema=SIGNAL), settings, threshold).to_pylist()  # type: ignore[no-any-return]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]) | st.floats(0, 1), max_size=40), st.floats(0, 1))
@example([0.1, 0.5, 0.9], 0.5)
def test_cut_keeps_the_best_and_no_more_than_ties_force(values: list[float], fraction: float) -> None:
    scores = np.array(values)
    threshold = top_fraction_threshold(lambda: [scores], fraction)
    kept = int((scores >= threshold).sum())
    wanted = round(len(scores) * fraction)
    assert kept >= wanted
    assert int((scores > threshold).sum()) <= wanted or fraction >= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 1), st.integers(1, 7))
def test_the_cut_is_that_of_all_scores_sorted(values: list[float], fraction: float, size: int) -> None:
    """Whatever parts they come in: the histogram only says where to look."""
    parts = [np.array(values[start : start + size]) for start in range(0, len(values), size)]
    drop = len(values) - round(len(values) * fraction)
    wanted = sorted(values)[drop] if drop < len(values) else float(np.nextafter(max(values), 2))
    if fraction >= 1:
        wanted = 0.0
    assert top_fraction_threshold(lambda: parts, fraction) == wanted


def test_cut_without_scores() -> None:
    assert top_fraction_threshold(lambda: [np.empty(0)], 0.5) == 0.0


@pytest.mark.parametrize("alpha", [1.0, 9.0])
def test_draws_are_lomax(alpha: float) -> None:
    draws = np.array([pareto_draw(3, f"{n}", alpha) for n in range(20_000)])
    assert draws.min() >= 0
    for quantile in (0.1, 0.5, 0.9):
        # NumPy's pareto(a): P(X > x) = (1 + x) ** -a
        expected = (1 - quantile) ** (-1 / alpha) - 1
        assert np.quantile(draws, quantile) == pytest.approx(expected, rel=0.05)


def test_pareto_keeps_a_score_as_often_as_gpt3_did() -> None:
    for score in (0.0, 0.5, 0.9):
        rows = [{"id": f"{n}", "curated": False, "score": score} for n in range(20_000)]
        found = verdicts(rows, Task(method="pareto", skipped_by=[]), 0.0)
        kept = sum(row["kept"] for row in found) / len(rows)
        # np.random.pareto(9) > 1 - score
        assert kept == pytest.approx((2 - score) ** -9.0, abs=0.006)


def test_verdict_says_what_was_measured_and_against_what() -> None:
    row = {"id": "a", "curated": False, "score": 0.3}
    (found,) = verdicts([row], SETTINGS, 0.4)
    assert {key: value for key, value in found.items() if value is not None} == {
        "id": "a",
        "kept": False,
        "rule": "fraction",
        "value": 0.3,
        "threshold": 0.4,
        "rules": ["fraction"],
    }
    rows = [{**row, "id": f"{n}", "score": n / 10} for n in range(5)]
    assert [one["rules"] for one in verdicts(rows, SETTINGS, 0.3)] == [["fraction"]] * 3 + [[]] * 2
    (dropped,) = verdicts([{**row, "score": 0.0, "id": "b"}], Task(method="pareto", skipped_by=[]), 0.0)
    assert dropped["rule"] == "pareto" and dropped["value"] <= dropped["threshold"]


@pytest.mark.parametrize("row", [{"curated": True, "score": 0.0}, {"curated": False, "score": None}])
@pytest.mark.parametrize("method", ["fraction", "pareto"])
def test_curated_and_unscored_documents_stay(row: dict[str, Any], method: str) -> None:
    (found,) = verdicts([{"id": "a", **row}], Task(method=method, skipped_by=[]), 0.99)
    assert found["kept"] and found["rule"] is None and found["value"] is None and found["rules"] == []


@pytest.mark.parametrize("method", ["fraction", "pareto"])
def test_a_source_that_skips_it_stays_with_the_rule_that_it_fails(method: str) -> None:
    """Its neighbours have the verdicts that they have without it."""
    settings = Task(method=method, skipped_by=[])
    rows = [{"id": f"{n}", "source": f"{n % 3}", "curated": n % 2 == 0, "score": n / 40} for n in range(40)]
    rows.append({"id": "unscored", "source": "1", "curated": False, "score": None})
    before, after = verdicts(rows, settings, 0.5), verdicts(rows, Task(method=method, skipped_by=["1", "9"]), 0.5)
    for row, one, other in zip(rows, before, after, strict=True):
        if row["source"] == "1":
            one = {**one, "kept": True, "rule": None, "value": None, "threshold": None}
        assert one == other
    assert any(row["kept"] and row["rules"] for row in after)
