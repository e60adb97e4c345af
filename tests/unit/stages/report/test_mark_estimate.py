"""Precision and recall from marks on random samples: unbiased, and intervals that hold the true value about as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.report import mark_estimate
from crawl2llm.stages.report.mark_estimate import Estimate, Group, marks_needed, precision, recall, wilson_interval

TIMES = 300


def marked(generator: np.random.Generator, documents: int, share: float, size: int) -> Group:
    """A random sample of a group of which that share is right, marked."""
    right = round(documents * share)
    size = min(size, documents)
    return Group(documents, size, int(generator.hypergeometric(right, documents - right, size)) if size else 0)


def covered(found: list[Estimate], true: float) -> float:
    return sum(one.low - 1e-9 <= true <= one.high + 1e-9 for one in found) / len(found)


# Rules as (documents, share rightly dropped); the sample of each has 20 documents.
CASES = {
    "one rule": [(500, 0.9)],
    "many rules that are alike": [(200, 0.95)] * 12,
    "a large rule and small ones": [(5000, 0.8), (40, 1.0), (15, 0.4), (8, 0.5)],
    "hardly ever wrong": [(400, 0.99), (300, 1.0), (100, 0.97)],
    "often wrong": [(300, 0.3), (900, 0.6)],
    # The largest rule's marks are often all alike, and those of the others are at the other end.
    "a large rule that is wrong, and a small one that is right": [(908, 0.1), (44, 1.0), (10, 0.0)],
    "two rules that differ": [(797, 0.1), (497, 0.97)],
    "a large rule that is right, and others that are not": [
        (2735, 0.9),
        (199, 0.02),
        (131, 0.4),
        (123, 0.99),
        (78, 0.97),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_precision_of_a_filter(case: str) -> None:
    generator = np.random.default_rng(7)
    true = sum(round(n * p) for n, p in CASES[case]) / sum(n for n, _ in CASES[case])
    found = [precision([marked(generator, n, p, 20) for n, p in CASES[case]]) for _ in range(TIMES)]
    known = [one for one in found if one]
    assert len(known) == TIMES
    values = np.array([one.value for one in known])
    assert abs(values.mean() - true) < 4 * values.std() / math.sqrt(TIMES) + 1e-9  # unbiased
    assert covered(known, true) >= 0.92


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kept", "missed"), [(20_000, 0.02), (3000, 0.1), (500, 0.004), (90, 0.1)])
def test_recall_of_a_filter(case: str, kept: int, missed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage, and that the estimate tends to the true value: it is a ratio, so not exactly unbiased."""
    monkeypatch.setattr(mark_estimate, "DRAWS", 1500)  # hundreds of samples: each with fewer draws
    generator = np.random.default_rng(11)
    right = sum(round(n * p) for n, p in CASES[case])
    true = right / (right + round(kept * missed))
    found = [
        recall([marked(generator, n, p, 20) for n, p in CASES[case]], marked(generator, kept, 1 - missed, 100))
        for _ in range(TIMES)
    ]
    known = [one for one in found if one]
    assert len(known) == TIMES
    assert covered(known, true) >= 0.9
    many = recall([Group(n, n, round(n * p)) for n, p in CASES[case]], Group(kept, kept, kept - round(kept * missed)))
    assert many and math.isclose(many.value, true) and math.isclose(many.low, true) and math.isclose(many.high, true)


def test_the_rules_parts_of_recall_add_up() -> None:
    rules, kept = [Group(500, 20, 18), Group(60, 20, 20), Group(9, 9, 3)], Group(4000, 100, 97)
    whole, parts = recall(rules, kept), [recall(rules, kept, [one]) for one in rules]
    assert whole and all(parts)
    assert math.isclose(sum(one.value for one in parts if one), whole.value)
    assert whole.low < whole.value < whole.high


def test_what_cannot_be_said() -> None:
    assert precision([]) is None and precision([Group(10, 0, 0)]) is None and precision([Group(0, 0, 0)]) is None
    assert recall([Group(10, 5, 5)], Group(100, 0, 0)) is None
    assert recall([], Group(100, 10, 9)) is None
    assert recall([Group(10, 5, 0)], Group(100, 10, 10)) is None  # nothing should be dropped
    alone = recall([Group(10, 5, 5)], Group(0, 0, 0))  # nothing is kept
    assert alone and alone.value == 1.0


def test_wilson_as_published() -> None:
    """Brown, Cai and DasGupta 2001; and the numbers of statsmodels' proportion_confint(15, 20, method="wilson")."""
    found = wilson_interval(15 / 20, 20)
    assert math.isclose(found.low, 0.53128, abs_tol=1e-4) and math.isclose(found.high, 0.88814, abs_tol=1e-4)
    assert wilson_interval(1.0, 20).high == 1.0 and math.isclose(wilson_interval(1.0, 20).low, 0.83887, abs_tol=1e-4)
    assert wilson_interval(0.4, math.inf) == Estimate(0.4, 0.4, 0.4)


groups = st.integers(1, 50).flatmap(
    lambda n: st.integers(1, n).flatmap(lambda m: st.integers(0, m).map(lambda right: Group(n, m, right)))
)


@given(st.lists(groups, min_size=1, max_size=6), groups)
def test_numbers_are_shares_in_order(rules: list[Group], kept: Group) -> None:
    for found in (precision(rules), recall(rules, kept), recall(rules, kept, rules[:1])):
        assert found is None or 0 <= found.low <= found.value <= found.high <= 1


def test_more_marks_make_it_surer() -> None:
    few, many = precision([Group(1000, 10, 8)]), precision([Group(1000, 100, 80)])
    assert few and many and many.high - many.low < few.high - few.low
    wanted = marks_needed(0.8, 1000)
    then = precision([Group(1000, wanted, round(0.8 * wanted))])
    assert then and (then.high - then.low) / 2 <= 0.105
    assert marks_needed(0.5, 7) == 7
