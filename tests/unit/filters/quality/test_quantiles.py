"""Quantiles of scores, what is fused of them, buckets and thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.filters.quality.calibrate import language_cutoffs
from crawl2llm.filters.quality.combine import document_buckets
from crawl2llm.filters.quality.quantiles import METHODS, fuse_quantiles, quantile_table, quantiles_of
from crawl2llm.filters.quality.score import SIGNAL
from crawl2llm.filters.quality.select import Task, judge_batch
from crawl2llm.filters.quality.settings import CombineRequire
from crawl2llm.filters.quality.threshold_logic import COLUMNS, apply_requirements, failure_columns

SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.5]) | st.floats(-1e6, 1e6), min_size=1, max_size=50)
RULE: dict[str, Any] = {"method": "linear", "weights": {}, "rank_constant": 60}


@given(SCORES, SCORES)
def test_quantiles_rise_with_the_score_and_stay_within_their_range(reference: list[float], values: list[float]) -> None:
    made = quantile_table(np.array(reference))
    found = quantiles_of(np.array(sorted(values)), made)
    assert found.min() >= 0 and found.max() <= 1
    assert (np.diff(found) >= -1e-12).all()
    assert quantiles_of(np.array(sorted(values)), made, "low") == pytest.approx(1 - found)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60))
def test_a_quantile_is_the_share_of_documents_below(values: list[int]) -> None:
    """To a document: equal ones count half."""
    scores = np.array(values, float)
    found = quantiles_of(scores, quantile_table(scores))
    for score, at in zip(scores, found, strict=True):
        below, equal = (scores < score).sum(), (scores == score).sum()
        assert at == pytest.approx((below + equal / 2) / len(scores), abs=1.01 / len(scores))


def test_of_no_score_nothing_is_known() -> None:
    assert quantile_table(np.array([np.nan])) == [] and np.isnan(quantiles_of(np.array([1.0]), [])).all()
    assert np.isnan(quantiles_of(np.array([np.nan]), [0.0, 1.0])).all()


QUANTILES = st.lists(st.tuples(st.floats(0, 1) | st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=20)


@given(QUANTILES, st.sampled_from(sorted(METHODS)), st.floats(0, 0.2))
def test_a_better_quantile_never_lowers_what_is_fused(
    pairs: list[tuple[float, float]], method: str, more: float
) -> None:
    columns = {"a": np.array([a for a, _ in pairs]), "b": np.array([b for _, b in pairs])}
    rule = {**RULE, "method": method}
    before = fuse_quantiles(columns, rule, 1000)
    after = fuse_quantiles({**columns, "b": np.minimum(columns["b"] + more, 1)}, rule, 1000)
    assert (after >= before - 1e-12).all()


def test_methods_by_hand() -> None:
    columns = {"a": np.array([1.0, 0.5, np.nan]), "b": np.array([0.0, 0.5, 0.2])}
    assert fuse_quantiles(columns, RULE, 101) == pytest.approx([0.5, 0.5, 0.2])
    assert fuse_quantiles(columns, {**RULE, "weights": {"a": 3}}, 101) == pytest.approx([0.75, 0.5, 0.2])
    assert fuse_quantiles(columns, {**RULE, "weights": {"a": 0}}, 101) == pytest.approx([0.0, 0.5, 0.2])
    assert fuse_quantiles(columns, {**RULE, "method": "minimum"}, 101) == pytest.approx([0.0, 0.5, 0.2])
    assert fuse_quantiles(columns, {**RULE, "method": "maximum"}, 101) == pytest.approx([1.0, 0.5, 0.2])
    # Ranks 1 and 101, and 51 twice, of 101 documents.
    found = fuse_quantiles(columns, {**RULE, "method": "reciprocal_rank"}, 101)
    assert found[:2] == pytest.approx([(1 / 61 + 1 / 161) / 2, 1 / 111])


def test_buckets_are_those_of_cc_net() -> None:
    scores = np.arange(100.0)
    parts = language_cutoffs(scores, ["en"] * 50 + [None] * 50, [0.3, 0.6], "low")
    assert parts == {"any": pytest.approx([64.7, 79.4]), "en": pytest.approx([14.7, 29.4])}
    found = document_buckets(scores, ["en"] * 50 + [None] * 50, parts, "low")
    assert [found.count(name) for name in ("head", "middle", "tail")] == [30, 30, 40]
    assert found[14:16] == ["head", "middle"] and found[50] == "head"
    assert document_buckets(np.array([1.0, np.nan]), ["fr", "en"], parts, "low") == [None, None]
    up = document_buckets(scores, ["en"] * 100, language_cutoffs(scores, ["en"] * 100, [0.7, 0.4], "low"), "high")
    assert up.count("head") + up.count("middle") + up.count("tail") == 100
    high = document_buckets(scores, ["en"] * 100, language_cutoffs(scores, ["en"] * 100, [0.3, 0.6], "high"), "high")
    assert [high.count(name) for name in ("head", "middle", "tail")] == [30, 30, 40] and high[99] == "head"


REQUIRE = [
    [CombineRequire(scorer="edu", min=2.5), CombineRequire(scorer="lm", buckets=["head", "middle"])],
    [CombineRequire(scorer="lm", max=100.0), CombineRequire(scorer="edu", quantile_min=0.5)],
]


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 300), st.floats(0, 1), st.sampled_from(["head", "tail", None])),
        max_size=15,
    )
)
def test_and_within_an_alternative_or_between_them(made: list[tuple[float, float, float, str | None]]) -> None:
    scores = {"edu": np.array([row[0] for row in made]), "lm": np.array([row[1] for row in made])}
    found = failure_columns(scores, {"edu": np.array([row[2] for row in made])}, [row[3] for row in made], REQUIRE)
    for row, (edu, lm, part, bucket) in enumerate(made):
        stays = (edu >= 2.5 and bucket != "tail") or (lm <= 100 and part >= 0.5)
        assert (found["failed"][row] == []) == stays
        if not stays and edu < 2.5:
            assert (found["failed"][row][0], found["value"][row], found["threshold"][row]) == ("edu_min", edu, 2.5)
        elif not stays:
            assert (found["failed"][row][0], found["detail"][row], found["value"][row]) == ("lm_bucket", "tail", None)


def test_a_score_that_is_not_there_fails_nothing() -> None:
    nothing = {"edu": np.array([np.nan]), "lm": np.array([np.nan])}
    assert failure_columns(nothing, {"edu": np.array([np.nan])}, [None], REQUIRE)["failed"] == [[]]
    assert failure_columns(nothing, {}, [None], [])["failed"] == [[]]


def test_verdicts_have_the_rule_that_drops_them() -> None:
    settings = Task(skipped_by=["wiki"])
    schema = pa.schema([*SIGNAL, *COLUMNS.items()])
    base = {"source": "web", "curated": False, "failed": [], "value": None, "threshold": None, "detail": None}
    fails = {"score": None, "failed": ["edu_min", "lm_bucket"], "value": 1.0, "threshold": 2.5}
    signals = pa.RecordBatch.from_pylist(
        [
            {**base, "id": "good", "score": 0.9},
            {**base, "id": "low", "score": 0.1},
            {**base, "id": "fails", **fails},
            {**base, "id": "curated", "curated": True, **fails},
            {**base, "id": "skips", "source": "wiki", **fails},
        ],
        schema=schema,
    )
    skipped = np.array([False, False, False, False, True])
    found = {
        row["id"]: row for row in apply_requirements(signals, judge_batch(signals, settings, 0.5), skipped).to_pylist()
    }
    assert [found[name]["kept"] for name in found] == [True, False, False, True, True]
    assert (found["low"]["rule"], found["low"]["value"]) == ("fraction", 0.1)
    assert (found["fails"]["rule"], found["fails"]["value"], found["fails"]["threshold"]) == ("edu_min", 1.0, 2.5)
    assert found["skips"]["rules"] == found["fails"]["rules"] == ["edu_min", "lm_bucket"]
    assert found["curated"]["rules"] == [] and found["skips"]["rule"] is None
