"""What steps are told beside their own settings."""

from __future__ import annotations

from scripts.workflow import told
from scripts.workflow.config import validate
from scripts.workflow.filtering import EXEMPTING
from scripts.workflow.steps import STEPS


def test_all_are_steps() -> None:
    assert EXEMPTING < set(told.TOLD) < set(STEPS)
    assert told.of("tokenize.train", validate({})) == {}


def test_a_calibration_is_told_thresholds_and_who_skips_it() -> None:
    found = told.of("heuristics.calibrate", validate({}))
    assert found.keys() == {"select", "skipped_by"} and "languages" not in found["select"]
