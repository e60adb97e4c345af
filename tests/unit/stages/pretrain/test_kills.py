"""A sample of what `python -m tests.kills` does. Kills at known moments are in test_engines.py, and on a cluster in tests/slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import Case, run

pytestmark = pytest.mark.slow  # starts trainings

CASES = [
    Case("deepspeed", 0, "fp32"),
    Case("deepspeed", 2, "bf16"),
    Case("deepspeed", 3, "fp32"),
    Case("torch", 0, "bf16", beside=True),
    Case("torch", 3, "fp32"),
]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_again_and_again_ends_the_same(tmp_path: Path, case: Case) -> None:
    tally = run(case, tmp_path, 10, seed=2)
    assert tally.kills.total() == 10 and tally.writing and tally.resumed and tally.trainings
