"""The model from the config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM

from crawl2llm.chain import config
from crawl2llm.core import root
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, consumed_inputs, record_inputs
from crawl2llm.training import initial, model
from crawl2llm.training.text_run import companion_files
from tests.unit.stages.pretrain.conftest import build
from tests.unit.training.tiny_published import write_published
from tests.unit.training.typed import engine_settings, shape_settings

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "context": 16,
}


def make_model(**changes: Any) -> Any:
    return build(model.build_config(shape_settings(**(SHAPE | changes)), 100, 0), 1)


def test_parameters() -> None:
    layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64 + 2 * 32
    inside = 2 * layer + 32
    tied, untied = model.parameter_counts(make_model()), model.parameter_counts(make_model(tie_embeddings=False))
    assert tied == {"total": inside + 3200, "non_embedding": inside, "multiplied": inside + 3200}
    assert untied == {"total": inside + 6400, "non_embedding": inside, "multiplied": inside + 3200}


def test_the_gpu_config_is_smollm_135m() -> None:
    chosen = config.validate(yaml.safe_load((root.ROOT / "configs/own-warcs-gpu.yaml").read_text(encoding="utf-8")))
    full = initial.empty_model(model.build_config(shape_settings(**chosen["pretrain"]["train"]["model"]), 49152, 0))
    assert model.parameter_counts(full)["total"] == 134_515_008  # as its model card's safetensors say


ADAMW = engine_settings(optimizer="adamw", weight_decay=0.1)


def test_only_matrices_decay() -> None:
    built = make_model(tie_embeddings=False)
    names = {id(parameter): name for name, parameter in built.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in model.parameter_groups(built, ADAMW))
    assert "lm_head.weight" in decayed and all("norm" not in name and "embed" not in name for name in decayed)
    assert all("norm" in name or "embed" in name for name in kept)
    assert len(decayed) + len(kept) == len(names)
    assert [group["weight_decay"] for group in model.parameter_groups(built, ADAMW)] == [0.1, 0.0]


def test_the_seed_decides_the_weights() -> None:
    one, two = make_model().lm_head.weight, make_model().lm_head.weight
    other = build(model.build_config(shape_settings(**SHAPE), 100, 0), 2).lm_head.weight
    assert one.equal(two) and not one.equal(other)


def test_overrides_and_dropout() -> None:
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    assert (
        model.build_config(shape_settings(**(SHAPE | {"overrides": {"rope_parameters": rope}})), 100, 0).rope_parameters
        == rope
    )
    gpt2 = model.build_config(
        shape_settings(**(SHAPE | {"type": "gpt2", "kv_heads": None, "intermediate_size": None})), 100, 0
    )
    assert gpt2.resid_pdrop == gpt2.embd_pdrop == gpt2.attn_pdrop == 0.0
    assert build(gpt2, 0).transformer.wpe.weight.shape == (16, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "lama"}, "model.type is 'lama'"),
        (
            {"type": "gpt2", "intermediate_size": None},
            "model.kv_heads: an architecture of type 'gpt2' has no.*set it to auto",
        ),
        ({"type": "mamba"}, "model.intermediate_size|model.heads: an architecture of type 'mamba' has no"),
        ({"overrides": {"attention_dropout": 0.1}}, "overrides.attention_dropout is 0.1, and training here is without"),
        ({"overrides": {"rope_parameter": {}}}, "overrides.rope_parameter.*did you mean 'rope_parameters'"),
        ({"heads": 6, "kv_heads": 4, "hidden_size": 36}, "model.heads is 6, not a multiple"),
        ({"hidden_size": 34}, "hidden_size is 34, not a multiple"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.build_config(shape_settings(**(SHAPE | changes)), 100, 0)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "glm4"])
def test_heads_share_out_the_hidden_size(kind: str) -> None:
    """Whatever the architecture's own width of a head is; an override has it otherwise."""
    shape = SHAPE | {"type": kind, "hidden_size": 96, "heads": 3, "kv_heads": 3}
    assert model.build_config(shape_settings(**shape), 300, 0).head_dim == 32
    assert model.build_config(shape_settings(**shape, overrides={"head_dim": 48}), 300, 0).head_dim == 48


def test_a_model_depends_on_the_files_of_its_tokenizer_alone(tmp_path: Path) -> None:
    """What was measured of the tokenizer, and files that no model takes along, are no input."""
    files = [tmp_path / name for name in ("tokenizer.json", "tokenizer_config.json", "other.json")]
    for file in files:
        file.write_text("{}")
    Manifest("tokenize.train", "0", summary={"bytes_per_token": 2.0}).write(tmp_path / "manifest.json", files)
    with record_inputs() as opened:
        assert model.companion_files(tmp_path / "manifest.json") == files[:2]
    assert consumed_inputs(opened)["tokenize.train"].keys() == {"files:", "tokenizer.json", "tokenizer_config.json"}


def test_what_is_made_from_a_model_ends_its_answers_as_that_does(tmp_path: Path) -> None:
    """generation_config.json of some published models has more ends than config.json: without the others generate() would not stop."""
    source = write_published(tmp_path / "tiny")
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 3]}))
    loaded = AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    weights = {name: value.detach() for name, value in loaded.named_parameters()}
    model.export(weights, loaded.config, "fp32", companion_files(source), tmp_path / "model")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").generation_config.eos_token_id == [1, 3]
