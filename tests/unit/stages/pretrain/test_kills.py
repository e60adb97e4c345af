"""A sample of what `python -m tests.kills` does, and more of it where CRAWL2LLM_LONG is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import Case, run

pytestmark = pytest.mark.slow  # starts trainings

LONG = [
    Case("deepspeed", 0, "fp32"),
    Case("deepspeed", 2, "bf16"),
    Case("deepspeed", 3, "fp32"),
    Case("torch", 0, "bf16", beside=True),
    Case("torch", 3, "fp32"),
]


def test_killed_at_random_moments_ends_the_same(tmp_path: Path) -> None:
    tally = run(Case("torch", 3, "fp32", beside=True, steps=40), tmp_path, 1, seed=1)
    assert tally.kills.total() == 1 and tally.trainings


@pytest.mark.long
@pytest.mark.parametrize("case", LONG, ids=str)
def test_killed_again_and_again_ends_the_same(tmp_path: Path, case: Case) -> None:
    tally = run(case, tmp_path, 10, seed=2)
    assert tally.kills.total() == 10 and tally.writing and tally.resumed and tally.trainings
