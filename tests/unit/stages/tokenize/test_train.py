"""tokenize.train on real text: every text comes back, digits are grouped, transformers loads it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.stages.tokenize import train
from crawl2llm.stages.tokenize.train import longest_entries, sample_texts, untrained_tokenizer
from crawl2llm.training.special_tokens import EOS, PAD, SPECIAL
from tests.unit import making
from tests.unit.stages.tokenize.conftest import corpus

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@settings(max_examples=300)
@given(TEXT)
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert min(ids, default=16) >= 16, "no text has a special token"


def test_vocabulary(tokenizer: Tokenizer, trained: Path) -> None:
    assert tokenizer.get_vocab_size() == 1500 == Manifest.read(trained).summary["vocabulary"]
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == list(range(16))


@pytest.mark.parametrize(
    ("digits", "groups"),
    [(1, ["1", "2", "3", "4", "5", "6", "7"]), (3, ["123", "456", "7"]), (0, ["1234567"]), (9, ["1234567"])],
)
def test_digits_are_grouped(digits: int, groups: list[str]) -> None:
    split = untrained_tokenizer(digits).pre_tokenizer.pre_tokenize_str("ab1234567cd")
    assert [piece for piece, _ in split if piece.isdigit()] == groups


def test_no_entry_of_the_vocabulary_has_more_digits_than_a_group(tokenizer: Tokenizer) -> None:
    entries = [tokenizer.decode([index]) for index in range(tokenizer.get_vocab_size())]
    assert max(sum(c.isdigit() for c in entry) for entry in entries) <= 3


def test_transformers_loads_the_folder_and_agrees(
    tokenizer: Tokenizer, trained: Path, texts: dict[str, dict[str, list[str]]]
) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(trained.parent)
    assert (loaded.eos_token, loaded.bos_token, loaded.pad_token) == (EOS, EOS, PAD)
    assert (loaded.eos_token_id, loaded.pad_token_id, len(loaded)) == (0, 1, tokenizer.get_vocab_size())
    for text in [*texts["00000"]["validation"], "A , b . don 't"]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert loaded(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] == ids
        assert loaded.decode(ids) == text


def test_summary_is_measured_on_validation_text(
    tokenizer: Tokenizer, trained: Path, texts: dict[str, dict[str, list[str]]]
) -> None:
    held = [text for shard in texts.values() for text in shard["validation"]]
    size, tokens = sum(len(text.encode()) for text in held), sum(len(tokenizer.encode(text).ids) for text in held)
    summary = Manifest.read(trained).summary
    assert summary["measured_bytes"] == size
    assert summary["bytes_per_token"] == round(size / tokens, 6) > 2
    assert summary["sampled_documents"] == sum(len(shard["train"]) for shard in texts.values())
    assert summary["longest_tokens"] == longest_entries(tokenizer)
    assert len(summary["longest_tokens"]) == 30 and len(summary["longest_tokens"][0]) > 8


def test_same_bytes_again(tmp_path: Path, trained: Path, corpora: list[Path]) -> None:
    argv = ["--config", making.config("tokenize.train", vocabulary=1500), "--corpus", *map(str, corpora)]
    assert train.main([*argv, "--manifest", str(tmp_path / "manifest.json")]) == 0
    for name in ("tokenizer.json", "tokenizer_config.json", "manifest.json"):
        assert (tmp_path / name).read_bytes() == trained.with_name(name).read_bytes(), name


def test_sample_is_by_hash(corpora: list[Path], texts: dict[str, dict[str, list[str]]]) -> None:
    paths = [path.parent / f"train/{path.name.split('.')[0]}.parquet" for path in corpora]
    names = [(f"{shard}-train-{n}", text) for shard, part in texts.items() for n, text in enumerate(part["train"])]
    assert list(sample_texts(paths, 10, 5, 0)) == [text for _, text in names]
    found = list(sample_texts(paths, 300, 1000, 4))
    assert found == [text for name, text in names if uniform_hash(4, name, "tokenizer") < 0.3]
    assert 0 < len(found) < len(names)


def test_no_training_text_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = corpus(tmp_path / "c", {"00000": {"train": [], "validation": ["x"]}})
    argv = ["--config", making.config("tokenize.train"), "--corpus", str(made[0])]
    assert train.main([*argv, "--manifest", str(tmp_path / "t/manifest.json")]) == 1
    assert "the corpus has no training text" in capsys.readouterr().err


def test_no_validation_text_leaves_bytes_per_token_open(tmp_path: Path) -> None:
    made = corpus(tmp_path / "c", {"00000": {"train": ["Words and words."], "validation": []}})
    argv = ["--config", making.config("tokenize.train", vocabulary=300), "--corpus", str(made[0])]
    assert train.main([*argv, "--manifest", str(tmp_path / "t/manifest.json")]) == 0
    assert Manifest.read(tmp_path / "t/manifest.json").summary["bytes_per_token"] is None
    assert "merges" in json.loads((tmp_path / "t/tokenizer.json").read_text())["model"]


def test_no_more_validation_text_is_read_than_is_measured(
    tmp_path: Path, texts: dict[str, dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second shard's validation file cannot be read: nobody has to where the first holds enough."""
    made = corpus(tmp_path / "c", texts)
    damaged = tmp_path / "c/validation/00001.parquet"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    monkeypatch.setattr(train, "MEASURED_BYTES", 10_000)
    argv = ["--config", making.config("tokenize.train", vocabulary=300), "--corpus", *map(str, made)]
    assert train.main([*argv, "--manifest", str(tmp_path / "out/manifest.json")]) == 0
    measured = Manifest.read(tmp_path / "out/manifest.json").summary["measured_bytes"]
    sizes = [len(text.encode()) for text in texts["00000"]["validation"]]
    assert measured == next(total for total in itertools.accumulate(sizes) if total >= 10_000)


@pytest.mark.parametrize(("marks", "pieces"), [("separate", 6), ("letters", 1)])
def test_marks_part_words_or_do_not(marks: str, pieces: int) -> None:
    """हिन्दी has three letters and three marks; GPT-2 cuts it into six pieces that no merge joins."""
    cut = untrained_tokenizer(3, marks).pre_tokenizer
    assert len(cut.pre_tokenize_str("हिन्दी")) == pieces
    latin = "It's an 8-bit word, isn't it?  Yes:\n\n 12345 "
    assert cut.pre_tokenize_str(latin) == untrained_tokenizer(3).pre_tokenizer.pre_tokenize_str(latin)
