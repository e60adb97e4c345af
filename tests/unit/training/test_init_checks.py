"""What a plan refuses of pretrain.train.start_from, from the small files there; the training's own refusals are in test_start_from.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.core.atomic_folder import CHECKPOINT, seal_folder
from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.training import model_check
from crawl2llm.training.init_checks import check_tokenizer
from crawl2llm.workflow.project_checks import check_project

SHAPE = {"hidden_size": 64, "intermediate_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "context": 128}
GPT2 = {"type": "gpt2", "intermediate_size": "auto", "kv_heads": "auto"}  # keys that it does not have
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True, "max_position_embeddings": 128, "vocab_size": 600,
    "rms_norm_eps": 1e-06,
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan keeps the digests of files in the folder that it is made in."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")


def of_model(folder: Path, **facts: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | facts))
    save_file({}, folder / "model.safetensors")
    return folder


def of_checkpoint(folder: Path, step: int = 40, **facts: Any) -> Path:
    of_model(folder / "model", **facts)
    said = {"optimizer": "adamw"} if "optimizer" not in facts else {key: facts[key] for key in facts if facts[key]}
    seal_folder(
        folder, CHECKPOINT, {"step": step, **said}, {"model/config.json": (folder / "model/config.json").stat().st_size}
    )
    return folder


def complete_config(folder: Path, keys: dict[str, Any] | None, shape: dict[str, Any] | None) -> dict[str, Any]:
    train = {"start_from": str(folder), "steps": 60, "global_batch_tokens": 1024, "micro_batch": 1, **(keys or {})}
    tree = {
        "tokenize": {"train": {"vocabulary": 600}},
        "pretrain": {"train": {**train, "model": {"tie_embeddings": True, **SHAPE, **(shape or {})}}},
    }
    return configuration.validate(tree)


def refusal_of(folder: Path, keys: dict[str, Any] | None = None, shape: dict[str, Any] | None = None) -> str:
    """The refusal of a whole config before its run; "" for none."""
    try:
        check_project(Project(complete_config(folder, keys, shape), [{"main": {}}, {"main": {"00000": ""}}]))
    except InputError as error:
        return str(error)
    return ""


SUITABLE: list[dict[str, Any]] = [
    {},
    {"context": 256, "layers": "auto", "hidden_size": "auto", "heads": "auto"},
    {"overrides": {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 5e5}}},
]
OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"layers": 4}, {}, "num_hidden_layers is 2 in its config.json, and 4 in this run"),
    ({"heads": 8, "kv_heads": 8}, {}, "num_attention_heads is 4 in its config.json, and 8 in this run"),
    ({"tie_embeddings": False}, {}, "tie_word_embeddings is True in its config.json, and False in this run"),
    ({}, {"head_dim": 128}, "head_dim is 128 in its config.json, and 16 in this run"),
    ({"overrides": {"rms_norm_eps": 0.1}}, {}, "rms_norm_eps is 1e-06 in its config.json, and 0.1 in this run"),
    ({"type": "qwen3"}, {}, "model_type is 'llama' in its config.json, and pretrain.train.model.type is 'qwen3'"),
    ({}, {"vocab_size": 800}, "its vocabulary has 800 entries, and tokenize.train.vocabulary is 600"),
    (GPT2, {"model_type": "gpt2", "n_embd": 96}, "n_embd is 96 in its config.json, and 64 in this run"),
]


@pytest.fixture(scope="module")
def answers_about_models() -> None:
    """What the checks ask about these models, answered by one process: each by itself would import transformers."""
    shapes = [*SUITABLE, *(shape for shape, _, _ in OTHERS)]
    model_check.prefetch_answers(complete_config(Path("a"), None, shape) for shape in shapes)


@pytest.mark.parametrize("made", [of_model, of_checkpoint])
def test_what_suits_is_taken(tmp_path: Path, answers_about_models: None, made: Any) -> None:
    """Also where the context is another, keys are `auto`, the vocabulary has fewer entries than were asked for."""
    folder = made(tmp_path / "a", vocab_size=590)
    assert [refusal_of(folder, shape=shape) for shape in SUITABLE] == ["", "", ""]


@pytest.mark.parametrize(("shape", "there", "said"), OTHERS)
@pytest.mark.parametrize("made", [of_model, of_checkpoint])
def test_another_model_is_refused(
    tmp_path: Path, answers_about_models: None, made: Any, shape: Any, there: Any, said: str
) -> None:
    folder = made(tmp_path / "a", **there)
    assert refusal_of(folder, shape=shape) == f"pretrain.train.start_from is {str(folder)!r}: {said}"


@pytest.mark.parametrize(
    "keys", [{"steps": 40}, {"steps": 30}, {"steps": None, "tokens": 30_000}], ids=["last", "steps", "tokens"]
)
def test_a_checkpoint_after_the_last_step_is_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    folder = of_checkpoint(tmp_path / "a")
    assert re.search(r"after step 40, and this run ends at step [34]0: set more", refusal_of(folder, keys))
    assert refusal_of(folder, {"steps": None, "epochs": 1}) == ""  # the corpus decides


def test_another_optimizer_is_refused(tmp_path: Path) -> None:
    """Where the checkpoint says whose state it has; those of earlier versions do not."""
    muon = {"optimizer": "muon", "zero_stage": 0}
    said = refusal_of(of_checkpoint(tmp_path / "a"), muon)
    assert "has the state of the optimizer adamw, and pretrain.train.optimizer is 'muon'" in said
    assert refusal_of(of_checkpoint(tmp_path / "old", optimizer=""), muon) == ""
    assert refusal_of(of_model(tmp_path / "model"), muon) == ""


def test_a_folder_of_neither_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    said = f"is {str(tmp_path)!r}: a folder with neither *.safetensors nor checkpoint.json"
    assert refusal_of(tmp_path).endswith(said)
    step = of_checkpoint(tmp_path / "step-000040")
    assert refusal_of(tmp_path).endswith(f"; did you mean {step}?")
    model = of_model(tmp_path / "model")
    assert refusal_of(tmp_path).endswith(f"; did you mean {model} or {step}?")


def test_what_is_damaged_is_refused(tmp_path: Path) -> None:
    model, step = of_model(tmp_path / "model"), of_checkpoint(tmp_path / "step-000040")
    (model / "config.json").write_text("[1")
    assert "no readable config.json there" in refusal_of(model)
    (step / "model/config.json").write_text("{}")
    assert "the checkpoint is not complete (model/config.json changed size or is missing)" in refusal_of(step)
    assert "no folder of a model or of a checkpoint" in refusal_of(step / CHECKPOINT)


def test_a_number_that_stands_for_two_added_tokens_is_refused(tmp_path: Path) -> None:
    def write_tokenizer(name: str, *added: str) -> Path:
        tokens = [{"id": number, "content": token} for number, token in enumerate(added, 1)]
        (tmp_path / name).mkdir()
        file = tmp_path / name / "tokenizer.json"
        file.write_text(json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": tokens}))
        return file

    own = write_tokenizer("own", "<|end|>", "<|tool|>")
    check_tokenizer(own, write_tokenizer("fewer", "<|end|>"), "compress.merge.with")
    with pytest.raises(InputError, match=r"token 2 is '<\|page\|>' in its tokenizer, and '<\|tool\|>' in this run's"):
        check_tokenizer(own, write_tokenizer("other", "<|end|>", "<|page|>"), "compress.merge.with")


def test_it_needs_no_torch() -> None:
    """A plan reads it, and an environment with Snakemake alone has none."""
    code = (
        "import sys, crawl2llm.training.init_checks; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
