"""The errors of differences, their verdicts, and whether these keep what they promise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crawl2llm.core.intervals import bootstrap_interval
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import noise, verdicts
from crawl2llm.stages.report.sweeps.differences import Comparison, Measure, set_verdicts
from crawl2llm.stages.report.sweeps.noise import Part
from crawl2llm.stages.report.sweeps.resample import bootstrap_means, bootstrap_variance

SEEDS = 3


def comparison(
    chance: np.random.Generator,
    options: CompareSettings,
    effect: float = 0.0,
    settings: int = 5,
    seeds: int = SEEDS,
    documents: int = 40,
    of_setting: float = 0.0,
) -> Comparison:
    """Trainings of settings whose seeds differ by 0.01 and by 0.05 a document; the second setting has `effect`.

    of_setting: what documents do to a setting, which is the same for all of its seeds.
    """
    base, rows, groups = chance.normal(2, 1, documents), list[Any](), list[tuple[int, ...]]()
    for place in range(settings):
        own = chance.normal(0, of_setting, documents)
        groups.append(tuple(range(len(rows), len(rows) + seeds)))
        rows += [
            base + own + chance.normal(0, 0.01) + chance.normal(0, 0.05, documents) + effect * (place == 1)
            for _ in range(seeds)
        ]
    return Comparison(Measure("bits", np.array(rows), np.ones(documents), tuple(groups), True), options)


def judged(found: Comparison, planned: bool = False) -> list[dict[str, Any]]:
    pairs = found.pairs_with_main()
    rows = [found.difference_row(*pair, family=len(pairs), planned=planned) for pair in pairs]
    set_verdicts(rows, found.options.confidence)
    return rows


@pytest.mark.parametrize("of_setting", [0.0, 0.1])
def test_false_verdicts_are_as_rare_as_promised(options: CompareSettings, of_setting: float) -> None:
    """Of families without any effect, at most 5 % have a verdict: 4 standard errors of 200 families more than that fail the test."""
    chance = np.random.default_rng(3)
    options = options.model_copy(update={"resamples": 100})
    families = [judged(comparison(chance, options, of_setting=of_setting)) for _ in range(200)]
    wrong = sum(any(row["verdict"] != verdicts.UNCLEAR for row in rows) for rows in families)
    alone = np.mean([row["p"] < 0.05 for rows in families for row in rows])
    assert wrong / 200 < 0.05 + 4 * (0.05 * 0.95 / 200) ** 0.5
    assert 0.01 < alone < 0.08  # else the errors are too wide to be of use, or too narrow


def test_a_difference_that_should_be_seen_is_seen_as_often_as_promised(options: CompareSettings) -> None:
    chance = np.random.default_rng(5)
    options = options.model_copy(update={"resamples": 100})
    size = float(np.median([judged(comparison(chance, options), planned=True)[0]["smallest"] for _ in range(15)]))
    seen = np.mean([judged(comparison(chance, options, effect=size))[0]["verdict"] == "worse" for _ in range(150)])
    assert 0.68 < seen < 0.95  # 0.8, a little more since Holm's steps are easier than Bonferroni's


def test_seeds_that_are_needed_show_the_difference(options: CompareSettings) -> None:
    chance = np.random.default_rng(11)
    row = next(
        row
        for _ in range(50)
        for row in judged(comparison(chance, options, effect=0.008, documents=300), planned=True)[:1]
        if row["verdict"] == "unclear" and row["seeds_needed"]
    )
    assert row["seeds_needed"] > SEEDS
    found = comparison(chance, options, effect=row["difference"], documents=300, seeds=row["seeds_needed"])
    assert judged(found, planned=True)[0]["smallest"] == pytest.approx(abs(row["difference"]), rel=0.5)


def test_one_seed_has_no_verdict(options: CompareSettings) -> None:
    rows = judged(comparison(np.random.default_rng(1), options, effect=3.0, seeds=1))
    assert {row["verdict"] for row in rows} == {verdicts.UNKNOWN}
    assert rows[0]["stderr_seeds"] is None and rows[0]["low"] < 3 < rows[0]["high"] + 0.2 and "p" not in rows[0]


def test_welch_knows_nothing_of_a_setting_with_one_seed(options: CompareSettings) -> None:
    found = comparison(np.random.default_rng(1), options.model_copy(update={"noise": "welch"}), settings=3)
    one = Comparison(
        Measure("bits", found.measured.scores, found.measured.sizes, ((0, 1, 2), (3,), (4, 5, 6)), True), found.options
    )
    assert [row["verdict"] for row in judged(one)] == ["unknown", "unclear"]
    assert [row["verdict"] for row in judged(Comparison(one.measured, options))] == ["unclear", "unclear"]  # pooled


def test_welch_is_scipys(options: CompareSettings) -> None:
    one, other = [1.0, 1.4, 1.1], [2.0, 2.9, 2.2, 2.4]
    part = noise.welch_part(one, other)
    wanted = stats.ttest_ind(other, one, equal_var=False)
    assert part is not None and part.freedom == pytest.approx(wanted.df)
    assert verdicts.p_value(np.mean(other) - np.mean(one), part) == pytest.approx(wanted.pvalue)


def test_pooled_noise_of_two_settings_is_students() -> None:
    one, other = [1.0, 1.4, 1.1], [2.0, 2.9, 2.2, 2.4]
    part = noise.pooled_variance([one, other, [7.0]])
    error = noise.between_seeds(noise.Noise(part.variance, int(part.freedom)), (3, 4))
    wanted = stats.ttest_ind(other, one)
    assert verdicts.p_value(np.mean(other) - np.mean(one), error) == pytest.approx(wanted.pvalue)
    assert part.freedom == 5


def test_paired_draws_are_those_of_the_other_bootstrap() -> None:
    chance = np.random.default_rng(0)
    sizes = chance.integers(100, 900, 50).astype(float)
    scores = np.stack([sizes * chance.normal(2, 0.3, 50), sizes * chance.normal(2, 0.3, 50)])
    draws = bootstrap_means(scores, sizes, 2000, [0])
    wide, *_ = bootstrap_interval(scores[1] - scores[0], sizes, 2000, 0.95, [1])
    assert bootstrap_variance(draws[:, 1] - draws[:, 0], 50) ** 0.5 == pytest.approx(wide * (50 / 49) ** 0.5, rel=0.08)
    assert bootstrap_variance(draws[:, 0] - draws[:, 0], 50) == 0


def test_what_documents_do_to_single_trainings_is_counted_once(options: CompareSettings) -> None:
    chance = np.random.default_rng(2)
    found = [comparison(chance, options, settings=10) for _ in range(10)]
    assert np.mean([one.noise.shared for one in found]) == pytest.approx(0.05**2 / 40, rel=0.25)
    parts = [one.error_parts(0, place)[1].variance for one in found for place in range(1, 10)]
    assert np.mean(parts) < 0.5 * 0.05**2 / 40 * 2 / SEEDS  # no setting has any of its own


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm(values: list[float]) -> None:
    found = verdicts.holm_corrected(values)
    assert all(one <= other <= 1 for one, other in zip(values, found, strict=True))
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert all(found[a] <= found[b] for a, b in pairwise(order))
    if values:
        assert min(found) == pytest.approx(min(1, min(values) * len(values)))
        assert max(found) >= max(values)


def test_holm_rejects_what_its_paper_says() -> None:
    assert verdicts.holm_corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.floats(0.1, 6), st.floats(1, 300), st.floats(0.001, 0.2))
@settings(deadline=None)
def test_power_is_that_of_the_noncentral_t(away: float, freedom: float, alpha: float) -> None:
    beyond = stats.t.isf(alpha / 2, freedom)
    wanted = stats.nct.sf(beyond, freedom, away) + stats.nct.cdf(-beyond, freedom, away)
    if np.isfinite(wanted):
        assert verdicts.power(away, Part(1.0, freedom), alpha) == pytest.approx(wanted, abs=2e-3)


@given(st.floats(1e-6, 10), st.floats(1, 100), st.floats(0.0005, 0.2), st.floats(0.3, 0.99))
@settings(deadline=None)
def test_the_smallest_difference_has_the_power(width: float, freedom: float, alpha: float, wanted: float) -> None:
    error = Part(width**2, freedom)
    size = verdicts.smallest_visible(error, alpha, wanted)
    assert verdicts.power(size, error, alpha) == pytest.approx(wanted, abs=1e-3)


@given(st.floats(0.01, 5), st.floats(0.001, 1), st.floats(0, 0.1))
@settings(deadline=None, max_examples=30)
def test_seeds_needed_is_the_smallest_number(difference: float, of_seeds: float, of_documents: float) -> None:
    def error(seeds: int) -> Part:
        return noise.add_parts([Part(of_seeds**2 * 2 / seeds, max(1, 2 * (seeds - 1))), Part(of_documents**2, 99)])

    found = verdicts.seeds_needed(difference, error, 0.05, 0.8)
    if found is None:
        assert verdicts.power(difference, error(verdicts.MOST_SEEDS), 0.05) < 0.8
    else:
        assert verdicts.power(difference, error(found), 0.05) >= 0.8
        assert found == 2 or verdicts.power(difference, error(found - 1), 0.05) < 0.8


def test_verdicts_know_which_way_is_better() -> None:
    assert verdicts.verdict(-1, 0.01, 0.05, True) == "better" == verdicts.verdict(1, 0.01, 0.05, False)
    assert verdicts.verdict(1, 0.01, 0.05, True) == "worse" == verdicts.verdict(-1, 0.01, 0.05, False)
    assert verdicts.verdict(1, 0.06, 0.05, True) == "unclear"


def test_trainings_without_any_noise(options: CompareSettings) -> None:
    """The same training twice: no error, and no division by it."""
    scores = np.ones((4, 20)) * np.array([[1.0], [1.0], [2.0], [2.0]])
    rows = judged(Comparison(Measure("bits", scores, np.ones(20), ((0, 1), (2, 3)), True), options), planned=True)
    assert rows[0]["verdict"] == "worse" and rows[0]["difference"] == 1 and rows[0]["smallest"] == 0
