"""Steps whose loss or gradient is not finite: skipped, counted, named, and the same wherever and however it trains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.training import data, stream_documents
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.training.test_metrics import shown

pytestmark = pytest.mark.slow  # starts trainings

CASES = [
    f"{kind}{stage}-{precision}" for kind in ("", "torch-") for stage in range(4) for precision in ("fp32", "bf16")
]

KINDS = ["0-fp32", "1-bf16", "torch-0-bf16", "torch-3-fp32"]
SHARED_OUT = [(2, KINDS), *(pytest.param(number, CASES, marks=pytest.mark.long) for number in (1, 2))]


def poisoned(
    start: Any, folder: Path, poison: str, processes: int, changes: dict[str, Any], *options: str, **env: str
) -> Any:
    return start(
        folder, processes, changes, *options, program="tests.unit.stages.pretrain.poisoned", POISON=poison, **env
    )


@pytest.mark.parametrize(("processes", "cases"), SHARED_OUT)
def test_a_step_that_is_not_finite_is_skipped(
    start: Any, tmp_path: Path, shards: list[Path], processes: int, cases: list[str]
) -> None:
    """Whether or not a checkpoint follows."""
    changes = {"steps": 9, "validate_every": 0}
    errors = finish(poisoned(start, tmp_path, "loss:3 gradient:5,6", processes, changes, CASES=" ".join(cases)))
    assert errors.count("step 3: the loss is not finite") == len(cases)
    assert errors.count("step 5: the gradient is not finite") == len(cases)
    for case in cases:
        found = rows(tmp_path / f"out/{case}/losses.jsonl")
        left_out = {row["step"]: row for row in found if "skipped" in row}
        assert {step: row["skipped"] for step, row in left_out.items()} == {3: "loss", 5: "gradient", 6: "gradient"}, (
            case
        )
        assert {row["reason"] for row in left_out.values()} == {"not finite"}
        assert [row["step"] for row in found if "loss" in row] == [1, 2, 4, 5, 6, 7, 8, 9]
        summary = json.loads((tmp_path / f"out/{case}/manifest.json").read_text())["summary"]
        assert summary["skipped_steps"] == [3, 5, 6]
        assert any("3 of 9 steps were skipped" in note for note in summary["notes"])
        assert summary["loss"] < found[0]["loss"] - 0.3, case  # it went on learning
        # The documents of a step are those of its whole batch, on any number of processes.
        windows = data.windows_from(4 * 8, 8, (len(data.open_split(shards, "train")) - 1) // 32, 0)
        assert left_out[5]["documents"] == stream_documents.document_ids(shards, data.window_places(windows, 32))


@pytest.mark.slow
def test_a_skipped_step_changes_nothing(start: Any, tmp_path: Path) -> None:
    """The last step is poisoned: the weights are those of the run that ends one step before it, byte for byte.

    A constant learning rate, so that it does not depend on the number of steps.
    """
    changes = {"schedule": "constant", "warmup": 0, "validate_every": 0}
    cases = [f"{kind}-{steps}" for kind in KINDS for steps in (5, 6)]
    errors = finish(poisoned(start, tmp_path, "gradient:6", 1, changes, CASES=" ".join(cases)))
    assert errors.count("step 6: the gradient is not finite") == len(KINDS)
    for kind in KINDS:
        short, long = (tmp_path / f"out/{kind}-{steps}/model/model.safetensors" for steps in (5, 6))
        assert short.read_bytes() == long.read_bytes(), kind


@pytest.mark.long
def test_resumed_between_skipped_steps_is_the_same_to_the_byte(start: Any, tmp_path: Path) -> None:
    poison, changes = "gradient:4,5,13 loss:22", {"validate_every": 0}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(poisoned(start, whole, poison, 2, changes))
    process = poisoned(start, killed, poison, 2, changes)
    wait_for(process, killed, "checkpoints/*/step-000010")
    kill(process)
    assert "resuming after step" in finish(poisoned(start, killed, poison, 2, changes))
    same(whole, killed)
    assert json.loads((killed / "out/manifest.json").read_text())["summary"]["skipped_steps"] == [4, 5, 13, 22]


def test_too_many_are_an_error_and_more_may_be_allowed(start: Any, tmp_path: Path) -> None:
    changes = {"validate_every": 0, "steps": 8}
    most, checkpoints = "--max-skipped-steps", ("--checkpoint-every", "5")
    board = ("--tensorboard", "true")
    errors = finish(poisoned(start, tmp_path, "gradient:4,6,7", 1, changes, most, "2", *checkpoints, *board), 1)
    assert "not finite in 3 steps, the last is step 7; pretrain.train.max_skipped_steps is 2" in errors
    assert "Lower pretrain.train.learning_rate" in errors and "Traceback" not in errors
    assert not (tmp_path / "out/manifest.json").exists()
    assert len(shown(next(tmp_path.glob("checkpoints/*")))) == 6  # what was shown until then is not lost
    again = poisoned(start, tmp_path, "gradient:4,6,7", 1, changes, most, "3", *checkpoints)
    assert "resuming after step 5" in finish(again)


@pytest.mark.slow
def test_a_learning_rate_that_overflows_ends_with_an_error(start: Any, tmp_path: Path) -> None:
    """No injection: the weights themselves grow until nothing is finite."""
    adam = {"epsilon": 1e-30, "beta1": 0.9999, "beta2": 0.0}
    changes = {"learning_rate": 1.0, "weight_decay": 0, "gradient_clipping": 0, **adam}
    errors = finish(start(tmp_path, 1, changes), 1)
    assert re.search("not finite|no longer usable", errors) and "Traceback" not in errors


def test_documents_of_windows_against_a_plain_loop(shards: list[Path]) -> None:
    rng = np.random.default_rng(0)
    spans, base = [], 0
    for path in shards:
        manifest = Manifest.read(path)
        table = pq.read_table(manifest.file(f"train/{path.name[:5]}.docs.parquet")).to_pylist()
        spans += [(base + row["offset"], base + row["offset"] + row["tokens"], row["id"]) for row in table]
        base = spans[-1][1]
    for context, count in ((32, 1), (32, 8), (7, 40), (500, 3)):
        windows = rng.integers(0, (base - 1) // context, count)
        tokens = {int(w) * context + n for w in windows for n in range(context + 1)}
        expected = [name for first, end, name in spans if any(token in tokens for token in range(first, end))]
        assert stream_documents.document_ids(shards, data.window_places(windows, context)) == expected
