"""Who goes on after a rung: the best settings and main's, the same whatever the order in which losses come."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.pretrain import halve
from crawl2llm.stages.pretrain.halving import judging

NAMES = ["main", "a", "b", "c", "d", "e"]
LOSS = st.one_of(st.none(), st.floats(0.5, 3, allow_nan=False), st.just(1.0), st.just(math.inf))
LOSSES = st.dictionaries(st.sampled_from(NAMES), LOSS, min_size=1).filter(lambda found: "main" in found)
KEEP = st.floats(0.01, 0.99)


def alone(losses: dict[str, Any]) -> dict[str, str]:
    return {name: name for name in losses}


@given(LOSSES, KEEP, st.randoms())
def test_the_order_of_the_losses_is_nothing(losses: dict[str, Any], keep: float, chance: random.Random) -> None:
    other = list(losses.items())
    chance.shuffle(other)
    assert judging.rank_settings(losses, alone(losses), keep) == judging.rank_settings(dict(other), alone(losses), keep)


@given(LOSSES, KEEP)
def test_the_best_stay_and_main(losses: dict[str, Any], keep: float) -> None:
    rows = judging.rank_settings(losses, alone(losses), keep)
    stay = judging.staying_contenders(rows)
    assert "main" in stay and len(stay) in (math.ceil(keep * len(rows)), math.ceil(keep * len(rows)) + 1)
    values = {name: value if value is not None and math.isfinite(value) else math.inf for name, value in losses.items()}
    gone = losses.keys() - stay
    assert all(values[name] <= values[other] for name in stay - {"main"} for other in gone)


@given(LOSSES, KEEP)
def test_seeds_of_a_setting_go_together(losses: dict[str, Any], keep: float) -> None:
    settings = {name: "main" if name in ("main", "a") else "b" for name in losses}
    stay = judging.staying_contenders(judging.rank_settings(losses, settings, keep))
    for setting in ("main", "b"):
        names = {name for name in losses if settings[name] == setting}
        assert names <= stay or not names & stay


def test_a_lucky_seed_does_not_win() -> None:
    losses = {"main": 1.5, "x": 1.0, "x-seed-1": 1.8, "y": 1.3, "y-seed-1": 1.35}
    rows = judging.rank_settings(losses, {"main": "main", "x": "x", "x-seed-1": "x", "y": "y", "y-seed-1": "y"}, 0.3)
    assert [(row["setting"], row["stays"]) for row in rows] == [("y", True), ("x", False), ("main", True)]
    assert rows[1]["bits_per_byte"] == pytest.approx(1.4)
    assert (
        judging.stop_reason(rows, "x")
        == "1.4000 bits per byte, the mean of 2 seeds, place 2 of 3 settings, of which 2 went on"
    )


def test_ties_are_by_name_and_what_is_not_finite_is_last() -> None:
    losses = {"main": 2.0, "b": 1.0, "a": 1.0, "n": None, "o": math.nan}
    rows = judging.rank_settings(losses, alone(losses), 0.2)
    assert [row["setting"] for row in rows] == ["a", "b", "main", "n", "o"]
    assert judging.staying_contenders(rows) == {"a", "main"}
    assert "no finite loss, place 4 of 5" in judging.stop_reason(rows, "n")


@pytest.mark.parametrize(("share", "steps", "step"), [(0.25, 40, 10), (0.25, 41, 11), (0.001, 40, 1), (0.999, 40, 40)])
def test_a_rung_is_the_first_step_with_its_share(share: float, steps: int, step: int) -> None:
    assert judging.step_of(share, steps) == step


def test_one_share_of_many_settings_is_not_rounded_up_by_binary_fractions() -> None:
    losses = {f"v{number:02d}": float(number) for number in range(15)} | {"main": 0.0}
    kept = judging.staying_contenders(
        judging.rank_settings({name: losses[name] for name in losses if name != "v14"}, alone(losses), 0.2)
    )
    assert len(kept) == 3


def test_what_was_stopped_at_which_rung_and_why() -> None:
    def row(name: str, rung: int, bits: float | None) -> dict[str, Any]:
        own = {"contender": name, "rung": rung, "in": bits is not None}
        return own | ({"step": 10 * rung, "steps": 40, "bits_per_byte": bits} if bits is not None else {})

    rows = [row("main", 1, 2.0), row("a", 1, 1.0), row("b", 1, 3.0), row("c", 1, 1.5)]
    rows += [row("main", 2, 1.9), row("a", 2, 0.9), row("b", 2, None), row("c", 2, 1.4)]
    settings = halve.Task(rungs=[0.25, 0.5], keep=0.5, settings=alone({"main": 0, "a": 0, "b": 0, "c": 0}))
    found = halve.judge_rungs(rows, settings)
    assert found["stopped"] == {
        "b": {"rung": 1, "step": 10, "why": "3.0000 bits per byte, place 4 of 4 settings, of which 3 went on"},
    }
    assert [one["setting"] for one in found["rungs"][1]["settings"]] == ["a", "c", "main"]
    assert halve.judge_rungs(rows[::-1], settings) == found
