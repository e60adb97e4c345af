"""compress.merge as a program: what it writes, that plain transformers reads it, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import merge, merging
from crawl2llm.stages.compress.settings import MergeSettings
from tests.unit.stages.finetune import tiny

pytestmark = pytest.mark.slow  # loads models


@pytest.fixture(scope="module")
def models(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Manifests of `base` and of two models that were trained on from it: its weights, moved at random."""
    folder = tmp_path_factory.mktemp("merged")
    return {"base": base, **{name: move_weights(base, folder, name, seed) for seed, name in enumerate(("sft", "dpo"))}}


def move_weights(source: Path, folder: Path, name: str, seed: int, dtype: torch.dtype = torch.float32) -> Path:
    """The manifest of a model `name` whose weights are those of `source`, and random numbers."""
    model = AutoModelForCausalLM.from_pretrained(source.parent / "model", dtype=torch.float32)
    torch.manual_seed(seed)
    for value in model.parameters():
        value.data.add_(torch.randn_like(value), alpha=0.01)
    shutil.copytree(source.parent / "model", folder / name / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    model.to(dtype).save_pretrained(folder / name / "model", max_shard_size="100KB")
    out = folder / f"{name}.manifest.json"
    Manifest("finetune.train", "0" * 16).write(out, sorted((folder / name / "model").iterdir()))
    return out


def merge_models(models: dict[str, Path], folder: Path, parent: str, **keys: Any) -> tuple[int, Path]:
    """(exit status, folder of the merged model)."""
    entries = {name: {"from": "base", "step": "finetune.train"} for name in models if name != "base"}
    entries["soup"] = {"from": parent, "step": "compress.merge", **keys}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"models": entries}))
    others = [*keys.get("with", ()), *filter(None, [keys.get("over")])]
    words = ["--config", str(folder / "config.json"), "--model", str(models[parent])]
    words += ["--others", *(str(models[name]) for name in others)] if others else []
    return merge.main([*words, "--manifest", str(folder / "soup.manifest.json")]), folder / "soup/model"


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


def folder_of(manifest: Path) -> Path:
    return Path(str(manifest).removesuffix(".manifest.json").removesuffix("/manifest.json")) / "model"


METHODS: dict[str, tuple[dict[str, Any], Callable[..., torch.Tensor]]] = {
    "average": ({"with": ["dpo"], "weights": [1, 3]}, lambda base, sft, dpo: merging.average([dpo, sft], [3.0, 1.0])),
    "slerp": ({"with": ["dpo"], "t": 0.25}, lambda base, sft, dpo: merging.slerp(sft, dpo, 0.25)),
    "task_arithmetic": (
        {"with": ["dpo"], "over": "base"},
        lambda base, sft, dpo: merging.task_arithmetic(base, [dpo, sft], [1.0, 1.0]),
    ),
    "ties": (
        {"with": ["dpo"], "over": "base", "density": 0.5, "weights": [2, 1]},
        lambda base, sft, dpo: merging.ties(base, [dpo, sft], [1.0, 2.0], 0.5),
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_transformers_loads(models: dict[str, Path], tmp_path: Path, method: str) -> None:
    keys, expected = METHODS[method]
    status, folder = merge_models(models, tmp_path, "sft", method=method, **keys)
    assert status == 0
    before, result = {name: tensors_in(folder_of(path)) for name, path in models.items()}, tensors_in(folder)
    assert result.keys() == before["sft"].keys() and "lm_head.weight" not in result
    for name, value in result.items():
        assert torch.equal(value, expected(*(before[of][name] for of in ("base", "sft", "dpo")))), name
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr(), "tied weights stay tied"
    assert {path.name for path in folder.iterdir()} == {path.name for path in folder_of(models["sft"]).iterdir()}
    manifest = Manifest.read(tmp_path / "soup.manifest.json").verify_files("")
    assert manifest.summary["method"] == method and "dpo" in manifest.summary["merged"]
    assert manifest.summary["parameters"] == model.num_parameters()


def test_models_in_another_order_give_the_same_bytes(models: dict[str, Path], tmp_path: Path) -> None:
    one, other = (
        merge_models(models, tmp_path / parent, parent, **{"with": names, "weights": weights})[1]
        for parent, names, weights in (("sft", ["dpo", "base"], [1, 2, 4]), ("dpo", ["base", "sft"], [2, 4, 1]))
    )
    first, second = tensors_in(one), tensors_in(other)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_type_is_that_of_the_parent(models: dict[str, Path], tmp_path: Path) -> None:
    half = move_weights(models["base"], tmp_path, "half", 7, torch.bfloat16)
    status, folder = merge_models({**models, "half": half}, tmp_path / "out", "half", **{"with": ["sft"]})
    result, own, other = (tensors_in(path) for path in (folder, folder_of(half), folder_of(models["sft"])))
    assert status == 0 and all(value.dtype == torch.bfloat16 for value in result.values())
    for name, value in result.items():
        assert torch.equal(value, ((own[name].double() + other[name].double()) / 2).float().bfloat16()), name


def test_another_shape_or_tokenizer_is_named(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = tiny.write_model(tmp_path / "wide", tiny.pages(), hidden=128)
    assert merge_models({**models, "wide": wide}, tmp_path / "out", "sft", **{"with": ["wide"]})[0] == 1
    error = capsys.readouterr().err
    assert "models of two shapes cannot be merged: model.embed_tokens.weight is [1024, 64] in " in error
    assert "[1024, 128] in" in error and not (tmp_path / "out/soup/model").exists()
    other = move_weights(models["base"], tmp_path, "other", 3)
    text = folder_of(other) / "tokenizer.json"
    tokenizer = json.loads(text.read_text())
    tokenizer["model"]["vocab"] = {token: 1023 - at for token, at in tokenizer["model"]["vocab"].items()}
    text.write_text(json.dumps(tokenizer))
    Manifest("finetune.train", "0" * 16).write(other, sorted(folder_of(other).iterdir()))
    assert merge_models({**models, "other": other}, tmp_path / "out", "sft", **{"with": ["other"]})[0] == 1
    assert "its tokenizer has another vocabulary" in capsys.readouterr().err


def test_a_model_of_a_longer_context_is_named(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tensors have the same shapes, and rotary positions have no tensors."""
    longer = move_weights(models["base"], tmp_path, "longer", 4)
    file = folder_of(longer) / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"] |= {"rope_type": "linear", "factor": 2.0}
    file.write_text(json.dumps(config))
    Manifest("pretrain.continue", "0" * 16).write(longer, sorted(folder_of(longer).iterdir()))
    assert merge_models({**models, "longer": longer}, tmp_path / "out", "sft", **{"with": ["longer"]})[0] == 1
    assert "turns positions otherwise than" in capsys.readouterr().err


def test_the_model_of_an_early_stop_is_that_of_its_best_step() -> None:
    """Checkpoints after it are no part of the way to it, and it is not the one of the last step."""
    settings = MergeSettings(method="checkpoints", every=10, last=3)
    trained = Manifest("pretrain.train", "0" * 16, summary={"steps": 70})
    assert merge.checkpoint_steps(trained, settings) == ([50, 60], 70)
    trained.summary["early_stop"] = {"after_step": 70, "best_step": 40}
    assert merge.checkpoint_steps(trained, settings) == ([20, 30], 40)
