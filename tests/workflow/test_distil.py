"""A run with models that are distilled and merged: what it makes, that a kill changes no byte, and what an edit reruns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import distillation
from crawl2llm.commands.serve import sample
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import merge
from tests.workflow.conftest import TINY, differences, run, snapshot
from tests.workflow.plan import planned
from tests.workflow.test_bytes import kill_when

TRAINING = {"batch_tokens": 1024, "tokens": 30 * 1024, "validation_tokens": 2000, "threads": 1, "checkpoint_every": 2}
TUNED: dict[str, Any] = {"from": "base", "step": "finetune.train"}
MODELS: dict[str, dict[str, Any]] = {
    "sft": TUNED,
    "sft2": {**TUNED, "learning_rate": 0.0005, "keep_every": 1},
    "small": {"from": "base", "step": "compress.prune", "layers": 0.5, "calibration_tokens": 2048, "threads": 1},
    "taught": {"from": "small", "step": "compress.distil", "teacher": "base", "keep_every": 10, **TRAINING},
    "top": {"from": "small", "step": "compress.distil", "teacher": "sft", "top_k": 8, **TRAINING, "tokens": 2048},
    "last": {"from": "taught", "step": "compress.merge", "method": "checkpoints", "every": 10, "last": 3},
    "soup": {"from": "sft", "step": "compress.merge", "with": ["sft2"]},
    "give": {"from": "taught", "step": "compress.export"},
}
SHOWN = {"evaluate.compare", "report.render"}
TAUGHT = {"compress.distil[taught]", "evaluate.model[taught]", "compress.export[give]"}
LAST = {"compress.merge[last]", "evaluate.model[last]"}
TOP = {"compress.distil[top]", "evaluate.model[top]"}


def tree(edits: dict[str, Any] | None = None, **teach: Any) -> dict[str, Any]:
    """The tiny config with these models. edits: of keys of models; teach: of compress.teach."""
    tiny = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tiny["models"] = {name: {**keys, **(edits or {}).get(name, {})} for name, keys in MODELS.items()}
    return {**tiny, "compress": {"teach": {"top_k": 16, "tokens": 2048, "threads": 1, **teach}}}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("distil") / "distil.yaml"
    path.write_text(yaml.safe_dump(tree(), sort_keys=False))
    return path


@pytest.fixture(scope="module")
def folder(complete: Path, config: Path) -> Path:
    """A complete run with these models."""
    target = config.with_name("run")
    shutil.copytree(complete, target, symlinks=True)
    run(target, config=config)
    return target


@pytest.mark.slow
def test_models_are_made_compared_exported_and_answer(
    folder: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = folder / "results/main"
    of_model = {
        name: Manifest.read(results / f"compress/distil/{name}.manifest.json").summary for name in ("taught", "top")
    }
    assert all(summary["student_loss_after"] < summary["student_loss_before"] for summary in of_model.values())
    assert {name: summary["teacher"] for name, summary in of_model.items()} == {"taught": "base", "top": "sft"}
    merged_text = Manifest.read(results / "compress/merge/last.manifest.json").summary["merged"]
    assert merged_text == "0.3333 × step 10, 0.3333 × step 20, 0.3333 × step 30"
    comparison = (results / "evaluate/compare/compare.json").read_text()
    assert all(f'"{name}"' in comparison for name in ("small", "taught", "top", "last", "soup"))
    assert "compress.distil" in (results / "compress/export/give/README.md").read_text(encoding="utf-8")
    tuned = {"models": {"sft2": TUNED, "soup": {**MODELS["last"], "from": "sft2", "every": 1, "last": 2}}}
    config.with_name("tuned.json").write_text(json.dumps(tuned))
    words = [
        "--config",
        str(config.with_name("tuned.json")),
        "--model",
        str(results / "finetune/train/sft2.manifest.json"),
    ]
    words += ["--kept", str(folder / "checkpoints"), "--manifest", str(config.with_name("soup.manifest.json"))]
    assert merge.main(words) == 0, "of a fine-tuning"
    words = ["--results", str(results), "--max-tokens", "4", "--temperature", "0"]
    assert sample.main(["The function", "--model", "taught", *words]) == 0
    assert capsys.readouterr().out.startswith("The function")
    scored = Manifest.of_task(results / "evaluate/model/taught.manifest.json").summary["heldout_text"]["bits_per_byte"]
    student = distillation.Student(results, tmp_path, {"tokens": 2048, "seed": 0})
    figures = student.evaluate(results / "compress/distil/taught.manifest.json", "student")
    assert figures["bits_per_byte"] == pytest.approx(scored, rel=0.03), "the benchmark's, on more of the held-out text"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edits", "teach", "runs"),
    [
        ({}, {}, set()),
        ({"taught": {"processes": 2, "checkpoint_every": 0}}, {"batch_size": 4}, set()),
        ({"taught": {"temperature": 2}}, {}, {*TAUGHT, *LAST, *SHOWN}),
        ({}, {"top_k": 12}, {"compress.teach[sft]", *TOP, *SHOWN}),
        ({"last": {"weighting": "ema"}}, {}, LAST | SHOWN),
        (
            {"sft2": {"epochs": 2}},
            {},
            {"finetune.train[sft2]", "evaluate.model[sft2]", "compress.merge[soup]", "evaluate.model[soup]", *SHOWN},
        ),
        (
            {"small": {"neurons": 0.6}},
            {},
            {"compress.prune[small]", "evaluate.model[small]", *TAUGHT, *LAST, *TOP, *SHOWN},
        ),
    ],
)
def test_an_edit_reruns(folder: Path, edits: dict[str, Any], teach: dict[str, Any], runs: set[str]) -> None:
    assert planned(folder, tree(edits, **teach)) == runs


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_distillation_ends_with_the_same_bytes(folder: Path, config: Path) -> None:
    before, target = snapshot(folder), "results/main/compress/distil/taught.manifest.json"
    for path in (folder / target).parent.glob("*taught*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (kept,) = folder.glob("checkpoints/*/step-000010")  # it would go on from the last of these
    shutil.rmtree(kept.parent)
    kill_when(folder, "checkpoints/*/step-000004", target, config=config)
    assert not (folder / target).exists()
    run(folder, target, config=config)
    assert "resuming after step" in (folder / "logs/main/compress/distil/taught.log").read_text()
    assert differences(snapshot(folder), before) == []
