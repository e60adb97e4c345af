"""Unigram over bytes: every text comes back, what looks like a byte or a mark of space too, and the same texts give the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.stages.tokenize import encode, train
from crawl2llm.training.special_tokens import SPECIAL
from tests.unit import making
from tests.unit.formats.megatron import read

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def run(folder: Path, corpora: list[Path]) -> Path:
    argv = [
        "--config",
        making.config("tokenize.train", vocabulary=700, model="unigram"),
        "--corpus",
        *map(str, corpora),
    ]
    assert train.main([*argv, "--manifest", str(folder / "manifest.json")]) == 0
    return folder / "manifest.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, corpora: list[Path]) -> Path:
    return run(tmp_path_factory.mktemp("unigram"), corpora)


@pytest.fixture(scope="module")
def unigram(made: Path) -> Tokenizer:
    loaded = Tokenizer.from_file(str(made.with_name("tokenizer.json")))
    loaded.encode_special_tokens = True
    return loaded


@settings(max_examples=300, deadline=None)  # the machine may be busy
@given(TEXT)
@example("<0x41> <0xE7>\u2581 \u2581word <unk> <s>")
@example("<|endoftext|><|im_end|> ﬁ e\u0301 \r\n\t  12345 狐🦊\u200d\x00\U0010ffff")
def test_every_text_comes_back(unigram: Tokenizer, text: str) -> None:
    ids = unigram.encode(text).ids
    assert unigram.decode(ids, skip_special_tokens=False) == text
    assert min(ids, default=len(SPECIAL)) >= len(SPECIAL), "no text has a special token"


def test_vocabulary(unigram: Tokenizer, made: Path) -> None:
    assert unigram.get_vocab_size() == 700 == Manifest.read(made).summary["vocabulary"]
    assert [unigram.token_to_id(name) for name in SPECIAL] == list(range(len(SPECIAL)))
    assert len(unigram.encode(" training tokens").ids) < 10, "longer entries than bytes"
    assert max(sum(c.isdigit() for c in unigram.decode([n])) for n in range(16, 700)) <= 3


def test_same_bytes_again(tmp_path: Path, made: Path, corpora: list[Path]) -> None:
    run(tmp_path, corpora)
    for name in ("tokenizer.json", "manifest.json"):
        assert (tmp_path / name).read_bytes() == made.with_name(name).read_bytes(), name


def test_transformers_loads_it_and_encode_writes_its_ids(
    tmp_path: Path, made: Path, unigram: Tokenizer, corpora: list[Path]
) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(made.parent)
    argv = ["--config", making.config("tokenize.encode"), "--corpus", str(corpora[0]), "--tokenizer", str(made)]
    assert encode.main([*argv, "--manifest", str(tmp_path / "00000.manifest.json")]) == 0
    manifest = Manifest.read(tmp_path / "00000.manifest.json")
    assert manifest.summary["engines"] == {"tokenizers": 1} and manifest.summary["compared"] == 0
    texts = [row["text"] for row in rows(corpora[0].parent / "validation/00000.parquet") if row["source"] == "web"]
    _, documents = read(tmp_path / "validation/web/00000")
    assert [unigram.decode(ids[:-1], skip_special_tokens=False) for ids in documents] == texts
    assert [loaded(text, split_special_tokens=True)["input_ids"] for text in texts] == [ids[:-1] for ids in documents]
