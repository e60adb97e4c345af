"""The S-curve, and the pairs that it says were missed."""

from pathlib import Path

import pytest

from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import plots, tables
from crawl2llm.stages.report.candidates import candidate_probability, expected_missed_pairs


def test_the_curve_of_the_defaults() -> None:
    """The percentages of docs/filters/dedup.md, by their formula computed otherwise: no band agrees with probability Π (1 − s^8)."""
    for similarity, percent in ((0.75, 77.2), (0.8, 92.4), (0.85, 98.8), (0.9, 99.96)):
        none = 1.0
        for _ in range(14):
            none *= 1 - similarity**8
        assert candidate_probability(similarity, 14, 8) == pytest.approx(1 - none)
        assert 100 * candidate_probability(similarity, 14, 8) == pytest.approx(percent, abs=0.05)
    assert (candidate_probability(0, 14, 8), candidate_probability(1, 14, 8)) == (0, 1)


def test_missed_pairs() -> None:
    counts = [0] * 15 + [100, 50, 0, 0, 10]
    p = candidate_probability(0.825, 14, 8)
    assert expected_missed_pairs(counts, 0.8, 14, 8) == pytest.approx(50 * (1 - p) / p, abs=1e-3)
    assert expected_missed_pairs(counts, 0.81, 14, 8) < 1e-3, "a bin that the threshold cuts is left out"
    assert expected_missed_pairs([], 0.8, 14, 8) == 0


def test_the_page_says_what_minhash_proposed(manifests: list[Path]) -> None:
    """Of the fixture's 7 measured pairs 4 reach 0.8: in the bins from 0.9 and from 0.95."""
    run = Run.read(manifests)
    config = {"dedup": {"signature": {"bands": 14, "rows": 8}, "select": {"threshold": 0.8}}}
    said = {name: (value, note) for name, value, note in tables.corpus_facts(run, config)}
    assert said["False candidates"][0] == "42.86 %"
    value, note = said["Near-duplicate pairs not found"]
    assert value == "0.0" and "at or above 0.8" in note and "14 bands" in note
    assert "14 bands of 8 rows: 0 to 1" in (plots.candidate_figure(config) or "")
    assert plots.candidate_figure({}) is None and "Near-duplicate pairs not found" not in dict(
        (row[0], row) for row in tables.corpus_facts(run)
    )
