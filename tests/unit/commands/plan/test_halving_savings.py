"""What a plan says of trainings that are judged at rungs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.commands.plan import halving_savings
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.stages.pretrain.halving import judging
from tests.unit.commands.plan.test_estimate import Folder, task


@given(st.integers(1, 200), st.integers(0, 6), st.floats(0.01, 0.99))
def test_no_more_go_on_than_were_there_and_one_always(number: int, rungs: int, keep: float) -> None:
    left = halving_savings.surviving_settings(number, rungs, keep)
    assert len(left) == rungs + 1 and left[0] == (number, number)
    assert all(1 <= fewest <= most for fewest, most in left)
    for before, after in itertools.pairwise(left):
        assert after[0] <= before[0] and after[1] <= before[1]


@given(st.lists(st.floats(1, 3), min_size=2, max_size=12), st.floats(0.05, 0.95))
def test_what_a_run_lets_go_on_is_among_the_counts(losses: list[float], keep: float) -> None:
    names = ["main", *(f"v{number}" for number in range(1, len(losses)))]
    left, counts = dict(zip(names, losses, strict=True)), halving_savings.surviving_settings(len(names), 2, keep)
    for fewest, most in counts[1:]:
        stay = judging.staying_contenders(judging.rank_settings(left, {name: name for name in left}, keep))
        left = {name: left[name] for name in stay}
        assert fewest <= len(left) <= most


def test_main_stays_beside_the_best() -> None:
    assert halving_savings.surviving_settings(4, 2, 0.5) == [(4, 4), (2, 3), (1, 3)]


def test_stretches_of_a_training_take_what_the_whole_took(tmp_path: Path) -> None:
    sweep = {"grid": {"pretrain.train.learning_rate": [1e-3]}, "halving": {"rungs": [0.25, 0.5]}}
    config = validate({"sweep": sweep})
    variants = {name: config_of_variant(config, name) for name in ("main", *config["variants"])}
    Folder(tmp_path).write_task("pretrain.train", "", 100.0, summary={})
    name = "learning_rate-0_001"
    tasks = [task("pretrain.rung", f"{name}-rung{rung}") for rung in (1, 2)] + [task("pretrain.train", variant=name)]
    work = Work(LastRun(tmp_path), tasks, variants)
    assert [work.seconds(one) for one in tasks] == pytest.approx([25, 25, 50])
    assert [halving_savings.stretch_of(one, 2) for one in tasks] == [0, 1, 2]
    assert halving_savings.stretch_of(task("finetune.train", "sft"), 2) is None
