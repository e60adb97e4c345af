"""The model that a continued pre-training begins with: what changes of its parent, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    StableLmConfig,
)

from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain import longer_model
from crawl2llm.stages.pretrain.settings import ContinueSettings
from crawl2llm.training.published.sizes import read_sizes
from tests.unit.training.tiny_published import CONTEXT, tiny_tokenizer, write_published

YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": CONTEXT}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("published") / "tiny")


def made(source: Path, folder: Path, **keys: Any) -> Path:
    longer_model.write_model(source, ContinueSettings(**keys), folder, "more")
    return folder


def test_new_tokens_begin_as_the_mean_and_change_no_other(source: Path, tmp_path: Path) -> None:
    before = source.stat(), (source / "model.safetensors").read_bytes()
    folder = made(source, tmp_path / "start", new_tokens=["<|tool|>", "<|page|>"])
    assert (source / "model.safetensors").read_bytes() == before[1]
    old, new = (AutoModelForCausalLM.from_pretrained(path) for path in (source, folder))
    number = old.config.vocab_size
    table = new.get_input_embeddings().weight
    assert new.config.vocab_size == number + 2 == len(table)
    mean = old.get_input_embeddings().weight.mean(0)
    assert torch.allclose(table[number], mean, atol=1e-6) and torch.equal(table[number], table[number + 1])
    text = "def f(x): return x"
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (source, folder)]
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for tokenizer in tokenizers]
    assert torch.equal(*ids)
    assert tokenizers[1]("a<|page|>")["input_ids"][-1] == number + 1
    assert torch.allclose(old(ids[0]).logits, new(ids[0]).logits[..., :number], atol=1e-6)


def test_a_head_that_files_name_otherwise_grows_too(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "old")
    tokenizer.save_pretrained(tmp_path / "old")
    assert not read_sizes(tmp_path / "old", "").ties_embeddings
    folder = made(tmp_path / "old", tmp_path / "start", new_tokens=["<|tool|>"])
    head = AutoModelForCausalLM.from_pretrained(folder).get_output_embeddings().weight
    assert torch.allclose(head[-1], head[:-1].mean(0), atol=1e-6) and len(head) == len(tokenizer) + 1


def test_a_longer_context_keeps_the_base_of_rope(source: Path, tmp_path: Path) -> None:
    folder = made(source, tmp_path / "start", context=2 * CONTEXT, rope_parameters=YARN)
    old, new = (AutoConfig.from_pretrained(path) for path in (source, folder))
    assert new.max_position_embeddings == 2 * CONTEXT
    assert new.rope_parameters["rope_theta"] == old.rope_parameters["rope_theta"]
    assert (folder / "model.safetensors").samefile(source / "model.safetensors"), "weights are linked"
    assert not longer_model.is_changed(source, ContinueSettings(context=CONTEXT))
    assert longer_model.is_changed(source, ContinueSettings(context=CONTEXT + 1))


def test_rope_stretches_the_context_of_the_parent_and_turns_as_much_of_a_head(source: Path, tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 2.0}
    folder = made(source, tmp_path / "start", context=2 * CONTEXT, rope_parameters=yarn)
    assert AutoConfig.from_pretrained(folder).rope_parameters["original_max_position_embeddings"] == CONTEXT
    again = made(folder, tmp_path / "again", context=4 * CONTEXT, rope_parameters={**yarn, "factor": 4.0})
    assert AutoConfig.from_pretrained(again).rope_parameters["original_max_position_embeddings"] == CONTEXT
    part = StableLmConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        partial_rotary_factor=0.5,
        max_position_embeddings=16,
    )
    part.save_pretrained(tmp_path / "part")
    settings = ContinueSettings(rope_parameters={"rope_type": "linear", "factor": 2.0})
    changed = longer_model.changed_config(tmp_path / "part", settings, "models.more")
    assert changed.rope_parameters["partial_rotary_factor"] == 0.5


def test_what_a_model_cannot_be_given(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"models.more.new_tokens has '<turn>', which the tokenizer has already"):
        made(source, tmp_path / "a", new_tokens=["<turn>"])
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, n_positions=16)).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(
        InputError, match=r"models.more.context is 32, .* 'gpt2' and context 16, has no rotary positions"
    ):
        made(tmp_path / "gpt2", tmp_path / "b", context=32)
    with pytest.raises(InputError, match=r"models.more.rope_parameters is .*: transformers does not take it"):
        made(source, tmp_path / "c", rope_parameters={"rope_type": "bent"})
    assert not (tmp_path / "c").exists()
