"""What a run is refused for before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.workflow.config import validate
from scripts.workflow.errors import InputError
from scripts.workflow.project import Project, check_curve, check_judge


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


def test_pairs_of_a_model_that_a_variant_alone_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`align.pairs.from` names a model of the variant; main has neither it nor the step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A page.")
    models = {"chat": {"from": "base", "step": "finetune.train"}, "dpo": {"from": "chat", "step": "align.train"}}
    tree = {
        "ingest": {"extract": {"sources": [{"name": "a", "kind": "text", "paths": ["a.txt"]}]}},
        "align": {"pairs": {"from": "chat", "rewards": [{"reward": "length", "least": 1}]}},
        "variants": {"v": {"models": models}},
    }
    project = Project(validate(tree))
    project.check()
    assert project.folder("v", "align.pairs") == "results/v/align/pairs"
