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

from crawl2llm.commands.serve import sample
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import gguf_support, quantize_tools
from crawl2llm.stages.report import summary
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


def preferences(path: Path) -> Path:
    """A file of preferences that the tiny model can tell apart by a word."""
    rows = [{"prompt": f"What is {at}?", "chosen": "A list of names.", "rejected": "Not this."} for at in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def copa(path: Path) -> Path:
    """Rows of a public task."""
    facts = {"choice1": "It is there.", "choice2": "It returns.", "question": "effect"}
    rows = [{"premise": f"The name {at} is there.", **facts, "label": at % 2} for at in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.long
def test_what_is_made_from_a_published_model_without_a_base_model(
    copy_of: Callable[[], Path], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LoRA on two processes, DPO on it, QLoRA, every method of four bits, GGUF files, public tasks; and all of them can be asked."""
    folder, config = copy_of(), tmp_path / "flows.yaml"
    four = {"from": "sft", "step": "compress.quantize", "group_size": 32}
    models: dict[str, Any] = {
        "tiny": {"path": str(tiny)},
        "sft": {**TUNED, "processes": 2, "batch_size": 8},
        "dpo": {
            "from": "sft",
            "step": "align.train",
            "adapter": "lora",
            "engine": "torch",
            "batch_size": 8,
            "heldout_prompts": 2,
        },
        "qlora": {**TUNED, "adapter": "qlora", "zero_stage": 0, "batch_size": 8},
        "int8": {"from": "sft", "step": "compress.quantize"},
        "int4": {**four, "method": "int4"},
    }
    if not quantize_tools.ENVIRONMENT.problem():
        models |= {name: {**four, "method": name, "calibration_tokens": 2000} for name in ("gptq", "awq")}
    if gguf_support.TOOLS.problem() is None:
        models["gguf"] = {"from": "dpo", "step": "compress.export", "types": ["q8_0"], "max_tokens": 300}
    made = {**yaml.safe_load(TINY.read_text(encoding="utf-8")), "models": models}
    made["pretrain"]["train"]["enabled"] = False
    made["align"] = {"pairs": {"files": [{"path": str(preferences(tmp_path / "likes.jsonl")), "heldout": 0.2}]}}
    made["decontaminate"] = {"index": {"tasks": []}}
    made["evaluate"]["public"] = {"presets": ["copa"], "data": [str(copa(tmp_path / "copa.jsonl"))], "threads": 1}
    config.write_text(yaml.safe_dump(made, sort_keys=False))
    run(folder, config=config)
    results = folder / "results/main"
    language_models = [name for name in models if name != "gguf"]
    public = {path.name.split(".")[0] for path in (results / "evaluate/public").glob("*.public.json")}
    assert public == set(language_models)
    tuned = Manifest.read(results / "align/train/dpo.manifest.json")
    assert tuned.summary["heldout_accuracy_after"] >= tuned.summary["heldout_accuracy_before"]
    assert planned(folder, made) == set()
    assert summary.main(["--results", str(results)]) == 0
    assert "published as Tiny" in (said := capsys.readouterr().out) and "sft from tiny, on" in said
    for name in models:
        assert sample.main(["What is 3?", "--model", name, "--results", str(results), "--max-tokens", "4"]) == 0, name
