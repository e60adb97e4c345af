"""The special tokens: fixed ids in every vocabulary, one token each where a template has them, and text where a page has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.tokenize import train
from crawl2llm.training.pair_batches import tokenize_pair
from crawl2llm.training.special_tokens import SPECIAL
from crawl2llm.training.template import Template
from tests.unit import making
from tests.unit.stages.tokenize.conftest import corpus

# What a model that is trained already has in its embedding: this table does not change.
IDS = {
    "<|endoftext|>": 0,
    "<|pad|>": 1,
    "<|im_start|>": 2,
    "<|im_end|>": 3,
    "<|fim_prefix|>": 4,
    "<|fim_middle|>": 5,
    "<|fim_suffix|>": 6,
    "<|repo_name|>": 7,
    "<|file_sep|>": 8,
    "<|tool_call|>": 9,
    "<|tool_response|>": 10,
    "<|reserved_0|>": 11,
    "<|reserved_1|>": 12,
    "<|reserved_2|>": 13,
    "<|reserved_3|>": 14,
    "<|reserved_4|>": 15,
}
CHAT = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}"


def test_ids_stay(tokenizer: Tokenizer) -> None:
    assert dict(zip(SPECIAL, range(len(SPECIAL)), strict=True)) == IDS
    assert {name: tokenizer.token_to_id(name) for name in IDS} == IDS


@pytest.mark.parametrize("text", ["Some words of a page.", "<|im_start|>a<|im_end|> <|reserved_4|>" * 50])
def test_ids_and_size_do_not_depend_on_the_corpus(tmp_path: Path, text: str) -> None:
    made = corpus(tmp_path / "c", {"00000": {"train": [text], "validation": []}})
    argv = ["--config", making.config("tokenize.train", vocabulary=272), "--corpus", *map(str, made)]
    assert train.main([*argv, "--manifest", str(tmp_path / "t/manifest.json")]) == 0
    small = Tokenizer.from_file(str(tmp_path / "t/tokenizer.json"))
    assert small.get_vocab_size() == 272 == Manifest.read(tmp_path / "t/manifest.json").summary["vocabulary"]
    assert {name: small.token_to_id(name) for name in IDS} == IDS
    small.encode_special_tokens = True
    ids = small.encode(text).ids
    assert min(ids) >= len(IDS) and small.decode(ids, skip_special_tokens=False) == text


def loaded(trained: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(trained.parent)


def test_a_chat_template_of_fine_tuning_has_one_token_for_each_mark(trained: Path) -> None:
    tokenizer, template = loaded(trained), Template.parse(CHAT)
    ids, shared = tokenize_pair(tokenizer, template.prompt("Who?"), template.completion("Nobody."), 1000)
    assert [n for n in ids if n < len(IDS)] == [2, 3, 2, 0]
    assert tokenizer.decode(ids) == CHAT.format(question="Who?", answer="Nobody.") + "<|endoftext|>"
    assert tokenizer.decode(ids[:shared]) == template.prompt("Who?")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user\nWho?\nassistant\nNobody."


def test_all_are_special_to_transformers(trained: Path) -> None:
    tokenizer = loaded(trained)
    assert tokenizer("".join(IDS), add_special_tokens=False)["input_ids"] == list(IDS.values())
    assert tokenizer.decode(list(IDS.values()), skip_special_tokens=True) == ""
