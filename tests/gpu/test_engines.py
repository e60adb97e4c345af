"""Every engine, stage and precision on a GPU, beside a plain loop on the CPU (tests/unit/stages/pretrain/side_by_side.py)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import torch

from tests.unit.stages.pretrain.side_by_side import CASES, MORE, named
from tests.unit.stages.pretrain.test_engines import side_by_side

pytestmark = pytest.mark.slow  # starts a process group
ALL = [named(*case) for case in [*CASES, *MORE]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, gpu: torch.device) -> dict[str, Any]:
    """What side_by_side.py wrote of one process on the GPU, by case; `plain` and `plain-muon` are of the CPU."""
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "CRAWL2LLM_LONG", "1")
        side_by_side("side_by_side", 1, str(folder), gpu.type)
    return dict(json.loads((folder / "1.json").read_text()))


@pytest.mark.parametrize("case", ALL)
def test_losses_and_norms_are_those_of_a_plain_loop_on_the_cpu(results: dict[str, Any], case: str) -> None:
    measured, expected = results[case], results["plain-muon" if case.endswith("muon") else "plain"]
    low = "bf16" in case
    for (loss, norm), (plain_loss, plain_norm) in zip(measured["steps"], expected["steps"], strict=True):
        assert loss == pytest.approx(plain_loss, abs=4e-3 if low else 5e-5)
        assert norm == pytest.approx(plain_norm, rel=0.02 if low else 5e-4)
    assert measured["evaluated"] == pytest.approx(expected["evaluated"], rel=5e-3 if low else 2e-5)


@pytest.mark.parametrize("case", ALL)
def test_a_resumed_training_begins_with_the_very_weights_and_ends_alike(results: dict[str, Any], case: str) -> None:
    """A GPU adds up some gradients in another order each time; all else is the same."""
    measured, low = results[case], "bf16" in case
    for way in ("resumed", "back", "staged", "adopted", "given"):
        if way not in measured:
            continue
        if way not in ("adopted", "given"):  # those go on from the other engine's weights
            assert measured[way]["taken"] == measured["half"], way
        if way == "adopted":
            continue
        for (loss, norm), (unbroken, unbroken_norm) in zip(measured[way]["steps"], measured["steps"][2:], strict=True):
            assert loss == pytest.approx(unbroken, abs=4e-3 if low else 5e-5), way
            assert norm == pytest.approx(unbroken_norm, rel=0.02 if low else 1e-3), way
    assert measured["neutral"]


def test_initial_weights_are_those_of_the_cpu(results: dict[str, Any]) -> None:
    digests = {results[case]["initial"] for case in ALL if "fp32" in case}
    assert len(digests) == 1
