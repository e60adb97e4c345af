"""Models that somebody else trained, in a run: what they add, what is refused, and one that is evaluated, fine-tuned and exported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from crawl2llm.core.manifest import Manifest
from tests.unit.training.tiny_published import write_published
from tests.workflow.conftest import TINY, run
from tests.workflow.plan import planned

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}
TUNED: dict[str, Any] = {"from": "tiny", "step": "finetune.train", "adapter": "lora", "engine": "torch"}
ADDED = {
    "pretrain.published[tiny]", "tokenize.reencode[tiny]", "evaluate.model[tiny]", "evaluate.compare", "report.render",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("published") / "tiny")


def tree(**models: Any) -> dict[str, Any]:
    """The tiny config with its fine-tuned model and these."""
    return {**yaml.safe_load(TINY.read_text(encoding="utf-8")), "models": {"sft": SFT, **models}}


def test_a_published_model_adds_its_own_tasks_alone(complete: Path, tiny: Path) -> None:
    root = {"path": str(tiny)}
    assert planned(complete, tree(tiny=root)) == ADDED
    assert planned(complete, tree(tiny=root, tuned=TUNED)) == {*ADDED, "finetune.train[tuned]", "evaluate.model[tuned]"}
    pruned = {"from": "tiny", "step": "compress.prune"}
    assert planned(complete, tree(tiny=root, small=pruned)) == {
        *ADDED,
        "compress.prune[small]",
        "evaluate.model[small]",
    }


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (shutil.rmtree, "there is no such folder or file"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "a folder without tokenizer"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "safetensors only"),
    ],
)
def test_a_bad_folder_is_refused_before_the_run(
    complete: Path, tiny: Path, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "bad")
    spoil(folder)
    with pytest.raises(BaseException, match=f"models.bad.path is '{folder}': .*{words}"):
        planned(complete, tree(bad={"path": str(folder)}))


@pytest.mark.slow
def test_a_run_from_a_published_model(copy_of: Callable[[], Path], tiny: Path, tmp_path: Path) -> None:
    """It keeps its tokens, template and licence; a folder that moves reruns nothing, and other weights rerun it."""
    folder, config = copy_of(), tmp_path / "published.yaml"
    give = {"from": "tuned", "step": "compress.export"}
    small = {"from": "tiny", "step": "compress.prune"}
    config.write_text(
        yaml.safe_dump(tree(tiny={"path": str(tiny)}, tuned=TUNED, small=small, give=give), sort_keys=False)
    )
    run(folder, config=config)
    results = folder / "results/main"
    made = Manifest.read(results / "pretrain/published/tiny.manifest.json")
    assert made.summary["licence"] == "apache-2.0"
    evaluations = {
        name: json.loads((results / f"evaluate/model/{name}.evaluation.json").read_text())
        for name in ("base", "tiny", "tuned")
    }
    text = {name: evaluation["heldout_text"] for name, evaluation in evaluations.items()}
    assert text["tiny"]["tokens"] == text["tuned"]["tokens"] != text["base"]["tokens"]
    assert len({(part["documents"], part["bytes"]) for part in text.values()}) == 1  # bits per byte of one text
    assert all(evaluation["items"] for evaluation in evaluations.values())
    tuned = Manifest.read(results / "finetune/train/tuned.manifest.json")
    assert tuned.summary["heldout_loss_after"] < tuned.summary["heldout_loss_before"]
    out = results / "compress/export/give"
    assert (out / "chat_template.jinja").read_text() == (tiny / "chat_template.jinja").read_text()
    assert (out / "tokenizer.json").read_bytes() == (tiny / "tokenizer.json").read_bytes()
    card = ModelCard.load(out / "README.md")
    assert card.data.license == "apache-2.0" and card.data.base_model == "Tiny"
    assert (out / "README-parent.md").read_text() == (tiny / "README.md").read_text()

    moved = shutil.copytree(tiny, tmp_path / "moved")
    assert planned(folder, tree(tiny={"path": str(moved)}, tuned=TUNED, small=small, give=give)) == set()
    (moved / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert "pretrain.published[tiny]" in planned(
        folder, tree(tiny={"path": str(moved)}, tuned=TUNED, small=small, give=give)
    )
