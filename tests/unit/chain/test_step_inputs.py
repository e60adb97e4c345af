"""What steps are told beside their own settings."""

from __future__ import annotations

from crawl2llm.chain import step_inputs
from crawl2llm.chain.config import validate
from crawl2llm.chain.filter_order import EXEMPTING
from crawl2llm.chain.steps import STEPS


def test_all_are_steps() -> None:
    assert EXEMPTING < set(step_inputs.EXTRA_SETTINGS) < set(STEPS)
    assert step_inputs.extra_settings("tokenize.train", validate({})) == {}


def test_a_calibration_is_told_thresholds_and_who_skips_it() -> None:
    found = step_inputs.extra_settings("heuristics.calibrate", validate({}))
    assert found.keys() == {"select", "skipped_by"} and "languages" not in found["select"]
