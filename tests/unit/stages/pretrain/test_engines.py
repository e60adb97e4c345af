"""Both engines against a plain loop, under every stage and precision, in one process and in two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.stages.pretrain import plan
from crawl2llm.training.parameters import count_model_parameters
from tests.unit.stages.pretrain.side_by_side import CASES as COMMON
from tests.unit.stages.pretrain.side_by_side import COPIES, MORE, named
from tests.unit.training.typed import shape_settings, train_settings

pytestmark = pytest.mark.slow  # starts process groups
PRECISIONS = ("fp32", "bf16")


def cases(wanted: Callable[[str, str], bool] = lambda name, case: True) -> list[Any]:
    """(engine, rest of the name) of those that are wanted; the common tests have no time for some."""
    each = [(named(*case), ()) for case in COMMON] + [(named(*case), pytest.mark.long) for case in MORE]
    pairs = [(name.split("-", 1), marks) for name, marks in each]
    return [pytest.param(*pair, marks=marks) for pair, marks in pairs if wanted(*pair)]


CASES = cases()
STAGED = cases(lambda name, case: "muon" not in case or name == "torch")
BOTH = [pytest.param(one.values[1], marks=one.marks) for one in cases(lambda name, _: name == "deepspeed")]


def side_by_side(program: str, processes: int, *options: str) -> None:
    """Run a program of these tests as one process group."""
    command = [sys.executable, "-m", "tests.unit.stages.pretrain.copied_group", program, str(processes), *options]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What side_by_side.py wrote, by the number of processes."""
    folder = tmp_path_factory.mktemp("engines")
    for processes in (2, 1):
        side_by_side("side_by_side", processes, str(folder))
    return {processes: json.loads((folder / f"{processes}.json").read_text()) for processes in (1, 2)}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_as_a_plain_loop(found: dict[int, dict[str, Any]], name: str, case: str, processes: int) -> None:
    one = found[processes][f"{name}-{case}"]
    expected = found[1]["plain-muon" if case.endswith("muon") else "plain"]
    low = "bf16" in case
    close, norms = (2e-3, 0.01) if low else (2e-5, 2e-4)
    for (loss, norm), (wanted, wanted_norm) in zip(one["steps"], expected["steps"], strict=True):
        assert loss == pytest.approx(wanted, abs=close)
        assert norm == pytest.approx(wanted_norm, rel=norms)
    assert one["evaluated"] == pytest.approx(expected["evaluated"], rel=5e-3 if low else 1e-5)
    assert one["sum"] != expected["sum"] and one["after"][0][0] < one["steps"][-1][0]  # one more step on the last batch


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_resumed_is_the_same_to_the_byte(
    found: dict[int, dict[str, Any]], name: str, case: str, processes: int
) -> None:
    one = found[processes][f"{name}-{case}"]
    assert one["resumed"] == one["back"] == {"taken": one["half"], "steps": one["steps"][2:], "weights": one["weights"]}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_resumed_on_one_process_instead_of_two(found: dict[int, dict[str, Any]], name: str, case: str) -> None:
    one = found[1][f"{name}-{case}"]
    for (loss, _), (wanted, _) in zip(one["other"]["steps"], one["steps"][2:], strict=True):
        assert loss == pytest.approx(wanted, abs=2e-3 if "bf16" in case else 2e-5)


def close(steps: list[Any], expected: list[Any], precision: str) -> None:
    """Losses and norms are the same within the rounding of an engine."""
    for (loss, norm), (wanted, wanted_norm) in zip(steps, expected, strict=True):
        assert loss == pytest.approx(wanted, abs=2e-3 if "bf16" in precision else 2e-5)
        assert norm == pytest.approx(wanted_norm, rel=0.01 if "bf16" in precision else 2e-4)


@pytest.mark.parametrize(("name", "case"), STAGED)
def test_resumes_under_another_stage(found: dict[int, dict[str, Any]], name: str, case: str) -> None:
    """With the very weights: 0 → 1 → 2 → 3 → 0."""
    for cases in found.values():
        one = cases[f"{name}-{case}"]
        assert one["staged"]["taken"] == one["half"]
        close(one["staged"]["steps"], one["steps"][2:], case.split("-")[1])


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.parametrize(("name", "other", "key"), [("torch", "deepspeed", "adopted"), ("deepspeed", "torch", "given")])
def test_goes_on_from_the_other_engines_checkpoint(
    found: dict[int, dict[str, Any]], name: str, other: str, key: str, case: str
) -> None:
    """As that engine went on itself, with the very weights."""
    for cases in found.values():
        theirs, one = cases[f"{other}-{case}"], cases[f"torch-{case}"][key]
        assert one["taken"] == theirs["half"]
        close(one["steps"], theirs["steps"][2:], case.split("-")[1])


@pytest.mark.parametrize("case", BOTH)
def test_deepspeed_goes_on_from_torch_on_one_process_instead_of_two(
    found: dict[int, dict[str, Any]], case: str
) -> None:
    one, theirs = found[1][f"torch-{case}"], found[2][f"torch-{case}"]
    assert one["given other"]["taken"] == theirs["half"]
    close(one["given other"]["steps"], theirs["steps"][2:], case.split("-")[1])


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_neutral_form_has_the_weights(found: dict[int, dict[str, Any]], name: str, case: str) -> None:
    assert all(cases[f"{name}-{case}"]["neutral"] for cases in found.values())


def test_initial_weights_are_the_same_everywhere(found: dict[int, dict[str, Any]]) -> None:
    """By any engine, sharded or not, on any number of processes; DeepSpeed's under bf16 are rounded to it."""
    for precision in PRECISIONS:
        marks = {
            one["initial"]
            for cases in found.values()
            for name, one in cases.items()
            if precision in name and (precision == "fp32" or name.startswith("deepspeed"))
        }
        assert len(marks) == 1, precision
    exact = {one["initial"] for cases in found.values() for name, one in cases.items() if name.startswith("torch")}
    assert exact == {found[1]["torch-0-fp32"]["initial"]}


@pytest.mark.parametrize("name", ["deepspeed-3", "torch-1", "torch-2", "torch-3"])
def test_a_process_holds_its_part_of_a_sharded_model(found: dict[int, dict[str, Any]], name: str) -> None:
    for precision in {precision for precision in PRECISIONS if f"{name}-{precision}" in found[1]}:
        alone, part = (found[processes][f"{name}-{precision}"]["held"] for processes in (1, 2))
        assert alone / 2 <= part <= alone / 2 * 1.01


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_checkpoint_is_as_large_as_planned(found: dict[int, dict[str, Any]], name: str, case: str) -> None:
    """But for names and headers, 36 kB of DeepSpeed's at most; the settings differ by 43 kB and more."""
    stage, precision, *muon = case.split("-")
    more = {
        "engine": name,
        "zero_stage": int(stage),
        "precision": precision.removesuffix(COPIES),
        "optimizer": "muon" if muon else "adamw",
    }
    told = train_settings(**more)
    tiny = {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "context": 16}
    planned = plan.checkpoint_bytes(told, count_model_parameters(shape_settings(**tiny), 101))
    assert 0 < found[1][f"{name}-{case}"]["saved"] - planned < 40_000
