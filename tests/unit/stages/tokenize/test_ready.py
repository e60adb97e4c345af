"""tokenize.train.from with real tokenizers: the same ids as their originals, and what is refused."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.tokenize import ranks, ready, train
from crawl2llm.stages.tokenize.ready_checks import check_ready
from crawl2llm.stages.tokenize.settings import TrainSettings
from crawl2llm.training.special_tokens import EOS, SPECIAL
from tests.unit import making
from tests.unit.stages.tokenize.conftest import corpus

PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, dict[str, list[str]]]) -> list[Path]:
    """The manifest of a part of the corpus."""
    splits = texts["00000"]
    return corpus(
        tmp_path_factory.mktemp("small"),
        {"00000": {"train": splits["train"][-60:], "validation": splits["validation"]}},
    )


def take(small: list[Path], folder: Path, **keys: Any) -> Path:
    """The manifest of tokenize.train with a ready tokenizer."""
    path = folder / "out" / "manifest.json"
    argv = ["--config", making.config("tokenize.train", **keys), "--corpus", *map(str, small)]
    argv.append(f"--from-path={keys['from']['path']}")
    assert train.main([*argv, "--manifest", str(path)]) == 0
    return path


def sentencepiece_model(texts: dict[str, dict[str, list[str]]], folder: Path, kind: str, **keys: Any) -> Path:
    """A model trained by sentencepiece on a part of the texts."""
    lines = [line for text in texts["00000"]["train"][:40] for line in text.splitlines() if line.strip()]
    lossless = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / kind), model_type=kind, vocab_size=900, minloglevel=2,
        **{**lossless, **keys},
    )  # fmt: skip
    return folder / f"{kind}.model"


def ready_settings(name: Path | str, **keys: Any) -> TrainSettings:
    return TrainSettings.model_validate({"from": {"path": str(name)}, **keys})


def test_a_folder_has_its_own_ids_and_its_own_special_tokens(trained: Path, small: list[Path], tmp_path: Path) -> None:
    out = take(small, tmp_path, **{"from": {"path": str(trained.parent)}})
    before, after = (json.loads(path.with_name("tokenizer.json").read_text()) for path in (trained, out))
    assert after["model"] == before["model"]
    assert Manifest.read(out).summary["vocabulary"] == 1500
    assert AutoTokenizer.from_pretrained(out.parent).eos_token_id == 0


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece(kind: str, texts: dict[str, dict[str, list[str]]], small: list[Path], tmp_path: Path) -> None:
    model = sentencepiece_model(texts, tmp_path, kind)
    out = take(small, tmp_path, **{"from": {"path": str(model)}})
    original, loaded = (
        sentencepiece.SentencePieceProcessor(model_file=str(model)),
        AutoTokenizer.from_pretrained(out.parent),
    )
    size = original.get_piece_size()
    assert loaded.convert_tokens_to_ids(list(SPECIAL)) == list(range(size, size + len(SPECIAL)))
    assert Manifest.read(out).summary["vocabulary"] == size + len(SPECIAL)
    for text in texts["00001"]["validation"][:40]:
        if EOS not in text and "<|pad|>" not in text:
            ids = loaded.encode(text, add_special_tokens=False)
            assert (ids, loaded.decode(ids)) == (original.encode(text), text.replace(ready.SPACE, " "))


def test_tiktoken(tokenizer: Tokenizer, small: list[Path], tmp_path: Path) -> None:
    entries = sorted(ranks.byte_ranks(json.loads(tokenizer.to_str())).items(), key=lambda entry: entry[1])
    path = tmp_path / "ranks.tiktoken"
    path.with_name("pattern.txt").write_text(PATTERN + "\n")
    numbered = {token: number for number, (token, _) in enumerate(entries)}
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % number for token, number in numbered.items()))
    out = take(small, tmp_path, **{"from": {"path": str(tmp_path)}})
    made = Tokenizer.from_file(str(out.with_name("tokenizer.json")))
    made.encode_special_tokens = True
    original = tiktoken.Encoding("original", pat_str=PATTERN, mergeable_ranks=numbered, special_tokens={})
    for text in ready.HARD_TEXTS:
        assert made.encode(text).ids == original.encode_ordinary(text)
    assert [made.token_to_id(name) for name in SPECIAL] == list(range(len(numbered), len(numbered) + 16))


def test_a_lossy_tokenizer_is_refused(texts: dict[str, dict[str, list[str]]], tmp_path: Path) -> None:
    folding = sentencepiece_model(texts, tmp_path, "bpe", normalization_rule_name="nmt_nfkc")
    with pytest.raises(InputError, match=r"changes texts .*nmt_nfkc"):
        ready.read_ready(ready_settings(folding))
    without = ready.read_ready(ready_settings(sentencepiece_model(texts, tmp_path, "unigram", byte_fallback=False)))
    with pytest.raises(InputError, match="lossy: 'Ǆ狐' does not come back"):
        list(without.check_texts(["a line", "Ǆ狐"]))


def test_the_first_text_that_differs_is_named(trained: Path) -> None:
    taken = ready.read_ready(ready_settings(trained.parent))
    other = ready.Ready(
        taken.tokenizer, lambda text: [*taken.ids(text)[:-1], 7] if text == "the end" else taken.ids(text)
    )
    with pytest.raises(
        InputError, match=r"'the end' gets other ids than by the original, from token \d+ on: \[\d+\], not \[7\]"
    ):
        list(other.check_texts(["a", "the end", "b"]))


def test_bad_input(trained: Path, tmp_path: Path) -> None:
    files = {
        "a.model": pickle.dumps({"a": 1}), "b.model": b"text", "c.json": b'{"a": 1}', "d.tiktoken": b"YQ== one\n",
        "e.txt": b"x",
    }  # fmt: skip
    files |= {"ranks/a.tiktoken": files["d.tiktoken"], "ranks/pattern.txt": b"a", "empty/x": b""}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name, keys, words in (
        ("a.model", {}, "is a pickle"),
        ("b.model", {}, "is no tokenizer; allowed"),
        ("c.json", {}, "is no tokenizer.json"),
        ("d.tiktoken", {}, "has no pattern.txt beside it"),
        ("e.txt", {}, "is no tokenizer; allowed"),
        ("none", {}, "no such file"),
        ("ranks", {}, "line 1 is not an entry"),
        ("empty", {}, "a folder without tokenizer"),
        ("c.json", {"vocabulary": 700}, "tokenize.train.vocabulary is 700, but tokenize.train.from names"),
    ):
        with pytest.raises(InputError, match=words):
            check_ready(ready_settings(tmp_path / name, **keys))
    check_ready(ready_settings(trained.parent))
