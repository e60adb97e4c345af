"""Verdicts of gpu-check, and how its lines are shown."""

from __future__ import annotations

import math

from crawl2llm.commands.gpu_check.lines import (
    OK,
    SKIPPED,
    SLOW,
    WRONG,
    Line,
    at_least,
    at_most,
    exit_status,
    row_text,
    slow_places,
    summary_text,
)


def test_a_rate_is_slow_below_the_least_and_an_error_wrong_above_the_most() -> None:
    assert (at_least(1, 2), at_least(2, 2), at_least(0, None)) == (SLOW, OK, OK)
    assert (at_most(1, 2), at_most(3, 2), at_most(math.nan, 2)) == (OK, WRONG, WRONG)


def test_a_straggler_is_below_the_median_of_all() -> None:
    assert slow_places([100.0, 99.0, 80.0, 101.0]) == [2]
    assert slow_places([100.0]) == []


def test_the_exit_status_is_of_the_worst_line() -> None:
    good = [Line("products", "bf16"), Line("links", "all-reduce", verdict=SKIPPED, note="one process")]
    assert exit_status(good) == 0
    assert exit_status([*good, Line("memory", "copy", verdict=SLOW)]) == 1
    assert exit_status([*good, Line("numerics", "stage 0", verdict=WRONG)]) == 1
    assert summary_text(good) == "1 ok, 0 slow, 0 wrong, 1 skipped"


def test_a_row_says_why() -> None:
    line = Line("memory", "copy", "1.00 TB/s", "≥ 2.68", SLOW, "GPU-1 reaches 1.00")
    assert row_text(line) == "| memory | copy | 1.00 TB/s | ≥ 2.68 | **slow**: GPU-1 reaches 1.00 |"
    assert row_text(Line("a", "b")) == "| a | b | – | – | ok |"
    assert Line("a", "b").as_json() == {"check": "a", "what": "b", "verdict": "ok"}
