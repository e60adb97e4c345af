"""tokenize.train.from with real tokenizers: the same ids as their originals, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.tokenize import ranks, ready, train
from crawl2llm.stages.tokenize.ready_checks import check_ready, content_digest, count_entries, tokenizer_path
from crawl2llm.stages.tokenize.settings import ReadySettings, TrainSettings
from crawl2llm.training.published import hub_folders
from crawl2llm.training.special_tokens import EOS, SPECIAL
from tests.unit import making
from tests.unit.stages.tokenize.conftest import corpus

DATA = Path(os.environ.get("CRAWL2LLM_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
UDHR = DATA / "langid" / "udhr2.zip"
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
        sentence_iterator=iter(lines), model_prefix=str(folder / kind), model_type=kind, minloglevel=2,
        **{"vocab_size": 900, **lossless, **keys},
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
def test_sentencepiece(kind: str, tmp_path: Path) -> None:
    """On a text that does not change: two cuts of a text may be as likely, and Unigram's programs take another each."""
    parts = (ROOT / "LICENSE").read_text(encoding="utf-8").split("\n\n")
    texts = {"00000": {"train": parts[10:], "validation": parts[:10]}}
    model = sentencepiece_model(texts, tmp_path, kind, vocab_size=500)
    out = take(corpus(tmp_path / "corpus", texts), tmp_path, **{"from": {"path": str(model)}})
    original, loaded = (
        sentencepiece.SentencePieceProcessor(model_file=str(model)),
        AutoTokenizer.from_pretrained(out.parent),
    )
    size = original.get_piece_size()
    assert loaded.convert_tokens_to_ids(list(SPECIAL)) == list(range(size, size + len(SPECIAL)))
    assert Manifest.read(out).summary["vocabulary"] == size + len(SPECIAL)
    for text in parts:
        ids = loaded.encode(text, add_special_tokens=False)
        assert (ids, loaded.decode(ids)) == (original.encode(text), text)


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

    # With special tokens that have ids of their own, and a gap before them, as cl100k_base has.
    size = len(numbered)
    special = {"<|endofprompt|>": size + 5, EOS: size + 1}
    path.with_name("special_tokens.json").write_text(json.dumps(special))
    taken = ready.read_ready(ready_settings(tmp_path))
    taken.check_hard_texts()
    whole = tiktoken.Encoding("whole", pat_str=PATTERN, mergeable_ranks=numbered, special_tokens=special)
    taken.tokenizer.encode_special_tokens = False
    for text in (f"one{EOS}", "<|endofprompt|> <|endofprompt|>\n", f"{EOS}{EOS}a <|endofprompt"):
        assert taken.ids(text) == whole.encode(text, allowed_special="all")
    assert taken.tokenizer.get_vocab_size() == count_entries(path) == size + 6 + len(SPECIAL) - 1
    path.with_name("special_tokens.json").write_text(json.dumps({EOS: size - 1}))
    with pytest.raises(InputError, match=f"special_tokens.json has to name .* each from {size} on and once"):
        check_ready(ready_settings(tmp_path))


COUNTED_PATTERN = (  # of cl100k_base, tiktoken_ext/openai_public.py of tiktoken 0.12
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)


@pytest.fixture(scope="module")
def originals(
    tokenizer: Tokenizer, texts: dict[str, dict[str, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ready.Ready]:
    """A ready tokenizer of each kind, each with its original."""
    folder = tmp_path_factory.mktemp("originals")
    entries = sorted(ranks.byte_ranks(json.loads(tokenizer.to_str())).items(), key=lambda entry: entry[1])
    lines = [base64.b64encode(token) + b" %d" % number for number, (token, _) in enumerate(entries)]
    (folder / "ranks.tiktoken").write_bytes(b"\n".join(lines))
    (folder / "pattern.txt").write_text(COUNTED_PATTERN)
    paths = {
        "tiktoken": folder / "ranks.tiktoken",
        "sentencepiece": sentencepiece_model(texts, folder, "unigram"),
    }
    return {kind: ready.read_ready(ready_settings(path)) for kind, path in paths.items()}


ODD = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" \n\t\r\u00a0\u2028\u200d\ufeff\u0301\u0e33१२三Ⅷ½'’ſ👩🏽"),
    ),
    max_size=40,
)
SPELLINGS = st.sampled_from([EOS, "<|pad|>", "<s>", "</s>", "<0x41>", "don't", "1234567", "   ", "\r\n"])


@pytest.mark.parametrize("kind", ["tiktoken", "sentencepiece"])
@given(parts=st.lists(ODD | SPELLINGS, max_size=6))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_has_the_ids_of_the_original(kind: str, originals: dict[str, ready.Ready], parts: list[str]) -> None:
    # sentencepiece knows ▁ as a space alone, and names of special tokens and bytes may differ (Ready.exact).
    text = "".join(parts)
    if kind == "sentencepiece":
        text = text.replace(ready.SPACE, "_").replace("<", "(")
    assert list(originals[kind].check_texts([text])) == [text]


@pytest.mark.slow
@pytest.mark.skipif(not UDHR.is_file(), reason=f"no {UDHR}: set CRAWL2LLM_DATA to the folder of the real data")
@pytest.mark.parametrize("kind", ["tiktoken", "sentencepiece"])
def test_texts_in_300_languages_have_the_ids_of_the_original(kind: str, originals: dict[str, ready.Ready]) -> None:
    with zipfile.ZipFile(UDHR) as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt")]
        texts = [archive.read(name).decode("utf-8", "replace")[:1500] for name in names]
    assert len(list(originals[kind].check_texts(texts))) == len(texts) > 300


def test_a_tokenizer_that_writes_nfc_is_taken(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """As Qwen's: the ids are the original's, and the text means the same."""
    content = {**json.loads(tokenizer.to_str()), "normalizer": {"type": "NFC"}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    taken = ready.read_ready(ready_settings(path))
    assert len(list(taken.check_texts(["plain", "cafe\u0301"]))) == 2 and taken.composed == 1
    path.write_text(json.dumps({**content, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}}))
    with pytest.raises(InputError, match=r"changes texts \(normalizer Lowercase\)"):
        check_ready(ready_settings(path))
    path.write_text(json.dumps({**content, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}))
    with pytest.raises(InputError, match="is a WordLevel, which has no entry for every byte"):
        check_ready(ready_settings(path))


def test_a_file_that_changes_while_it_is_read_is_refused(
    trained: Path, small: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(trained.with_name("tokenizer.json").read_bytes())
    config = making.config("tokenize.train", **{"from": {"path": str(path)}})
    path.write_bytes(path.read_bytes() + b"\n")
    argv = ["--config", config, f"--from-path={path}", "--corpus", *map(str, small)]
    assert train.main([*argv, "--manifest", str(tmp_path / "out/manifest.json")]) == 1
    assert f"tokenize.train.from: {path} has changed since the run began" in capsys.readouterr().err


def test_a_fetched_tokenizer_is_a_folder_named_by_its_commit(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hub = ReadySettings.model_validate({"hub": "owner/small", "revision": "1" * 40})
    with pytest.raises(
        InputError, match=r"from.hub: the tokenizer of owner/small .* --tokenizer --to /.*, where there"
    ):
        tokenizer_path(hub)
    for parent in (hub_folders.MODELS, hub_folders.TOKENIZERS):
        folder = hub_folders.cache_folder("owner/small", "1" * 40, parent)
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_bytes(trained.with_name("tokenizer.json").read_bytes())
        assert tokenizer_path(hub) == folder / "tokenizer.json"
    local = ReadySettings(path=str(trained.parent))
    assert content_digest(hub) == content_digest(local), "where it lies counts nothing"


@pytest.mark.parametrize("kind", ["json", "bpe", "unigram"])
def test_entries_are_counted_before_a_run(
    kind: str, trained: Path, texts: dict[str, dict[str, list[str]]], tmp_path: Path
) -> None:
    path = trained.with_name("tokenizer.json") if kind == "json" else sentencepiece_model(texts, tmp_path, kind)
    assert count_entries(path) == ready.read_ready(ready_settings(path)).tokenizer.get_vocab_size()


def test_a_lossy_tokenizer_is_refused(texts: dict[str, dict[str, list[str]]], tmp_path: Path) -> None:
    folding = sentencepiece_model(texts, tmp_path, "bpe", normalization_rule_name="nmt_nfkc")
    with pytest.raises(InputError, match=r"changes texts .*nmt_nfkc"):
        check_ready(ready_settings(folding))
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
        ("b.model", {}, "is no SentencePiece model"),
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
