"""What a run is refused for before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.workflow.config import validate
from scripts.workflow.errors import InputError
from scripts.workflow.project import check_curve, check_judge


def config(train: dict[str, Any] | None = None, **evaluate: Any) -> dict[str, Any]:
    return validate({"pretrain": {"train": train or {}}, "evaluate": evaluate})


@pytest.mark.parametrize(
    ("every", "kept", "fits"), [(0, 0, True), (500, 500, True), (500, 100, True), (500, 0, False), (500, 300, False)]
)
def test_a_learning_curve_needs_checkpoints_that_stay(every: int, kept: int, fits: bool) -> None:
    given = config({"keep_every": kept}, curve={"every": every})
    if fits:
        check_curve(given)
        return
    with pytest.raises(
        InputError, match=f"evaluate.curve.every is 500, and pretrain.train.keep_every, which is {kept}, keeps no"
    ):
        check_curve(given)


def test_a_judge_needs_answers() -> None:
    check_judge(config())
    check_judge(config(judge={"model": "big"}, generate={"questions": 3}))
    with pytest.raises(InputError, match="answers to judge"):
        check_judge(config(judge={"model": "big"}))
