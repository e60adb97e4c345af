"""A model's tokenizer is the one in its folder, whatever its architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.models.load import load_tokenizer
from scripts.tokenize.special import EOS
from scripts.tokenize.train import bpe, untrained
from scripts.workflow.errors import InputError


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2"])
def test_a_tokenizer_is_its_own_for_every_type_of_model(tmp_path: Path, kind: str) -> None:
    """AutoTokenizer of transformers 5.23 takes Qwen's own splitting and normal form for a folder of type qwen2."""
    own = bpe(iter([Path(__file__).read_text()] * 3), untrained(1), 400)
    own.save(str(tmp_path / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(facts))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    found = load_tokenizer(tmp_path)
    for text in ("Ab 1234 the_function(x)  \n\n", "e\u0301te\u0301 98", "It's 3 o'clock"):
        assert found(text)["input_ids"] == own.encode(text).ids


def test_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a model that transformers reads"):
        load_tokenizer(tmp_path)
