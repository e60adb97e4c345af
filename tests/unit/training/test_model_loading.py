"""A model's tokenizer is the one in its folder, whatever its architecture."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress.gguf_reference import own_tokenizer
from crawl2llm.stages.tokenize.train import train_bpe, untrained_tokenizer
from crawl2llm.training.model_loading import load_model, load_tokenizer
from crawl2llm.training.special_tokens import EOS


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2"])
def test_a_tokenizer_is_its_own_for_every_type_of_model(tmp_path: Path, kind: str) -> None:
    """AutoTokenizer of transformers 5.23 takes Qwen's own splitting and normal form for a folder of type qwen2."""
    own = train_bpe(iter([Path(__file__).read_text()] * 3), untrained_tokenizer(1), 400)
    own.save(str(tmp_path / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(facts))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    found = load_tokenizer(tmp_path)
    for text in ("Ab 1234 the_function(x)  \n\n", "e\u0301te\u0301 98", "It's 3 o'clock"):
        assert found(text)["input_ids"] == own.encode(text).ids


def test_a_length_that_a_tokenizer_was_published_with_cuts_no_text(tmp_path: Path) -> None:
    """tokenizer.json of some models cuts, or pads, every text: a document's loss would be that of its beginning."""
    own = train_bpe(iter([Path(__file__).read_text()] * 3), untrained_tokenizer(1), 400)
    text = "some words " * 40
    expected = own.encode(text).ids
    own.enable_truncation(8)
    own.enable_padding(length=9999, pad_token=EOS)
    own.save(str(tmp_path / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(facts))
    assert load_tokenizer(tmp_path).backend_tokenizer.encode(text).ids == expected
    assert own_tokenizer(tmp_path).encode(text).ids == expected


def test_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a model that transformers reads"):
        load_tokenizer(tmp_path)


def test_code_beside_a_model_is_never_run(tmp_path: Path) -> None:
    """Without a word on it transformers asks the terminal, `[y/N]`, and runs it."""
    facts = {"model_type": "another", "auto_map": {"AutoConfig": "planted.C", "AutoModelForCausalLM": "planted.M"}}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    train_bpe(iter(["some text"] * 3), untrained_tokenizer(1), 300).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS})
    )
    with pytest.raises(InputError, match="trust_remote_code"):
        load_model(tmp_path, "fp32")
    assert not (tmp_path / "ran").exists()


def test_every_load_says_that_no_code_of_a_model_is_run() -> None:
    silent = []
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            words = {word.arg for word in node.keywords}
            fast = "PreTrainedTokenizerFast" in ast.unparse(
                node.func
            )  # a class of transformers' own, which reads no code
            loads = node.func.attr in ("from_pretrained", "from_config") and not fast
            if loads and not {"trust_remote_code", None} & words:
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not silent
