"""fastText models whose bytes were changed: an error that names file and key, and no task that ends or hangs."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.chain.config_schema import named_files
from crawl2llm.core.errors import InputError
from crawl2llm.filters.quality.classifier import Classifier, zeroed_memory
from crawl2llm.filters.quality.perplexity import sentencepiece_speller
from crawl2llm.formats import fasttext_models, fasttext_trial

KEY = "language.score.model"
INT = "<i"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain.bin` and, quantized and with fewer words, `small.ftz`."""
    import fasttext

    folder = tmp_path_factory.mktemp("models")
    lines = ["__label__warm sun sea sky rain", "__label__fast wheel motor brake gear"] * 20
    lines += [f"__label__warm w{number}x{number * 7919 % 997}" for number in range(400)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    with zeroed_memory():
        made = fasttext.train_supervised(
            str(folder / "train.txt"), dim=4, thread=1, verbose=0, minn=2, maxn=3, bucket=500, epoch=2
        )
        made.save_model(str(folder / "plain.bin"))
        made.quantize(input=str(folder / "train.txt"), qnorm=True, cutoff=300, thread=1, verbose=0)
    made.save_model(str(folder / "small.ftz"))
    return folder


def patched(path: Path, where: int, number: int) -> bytes:
    """The bytes of a model with another number at a place of its header."""
    content = bytearray(path.read_bytes())
    content[where : where + 4] = struct.pack(INT, number)
    return bytes(content)


# Places: fasttext.cc, signModel; args.cc, save; dictionary.cc, save.
DIMENSION, WORD_NGRAMS, BUCKETS, LONGEST, ENTRIES, WORDS, PRUNED = 8, 28, 40, 48, 64, 68, 84


@pytest.mark.parametrize(
    ("name", "where", "number", "said"),
    [
        ("plain.bin", DIMENSION, 0, "ended by SIG"),
        ("plain.bin", DIMENSION, 2**31 - 1, "memory"),
        ("plain.bin", BUCKETS, 0, "ended by SIGFPE"),
        ("small.ftz", WORDS, 2**31 - 1, "ended by SIG"),
        ("small.ftz", WORDS, 0, "ended by SIG"),
        ("plain.bin", WORD_NGRAMS, 2**31 - 1, "n-grams of 2,147,483,647"),
        ("plain.bin", LONGEST, 2**20, "n-grams of 1,048,576"),
    ],
)
def test_a_changed_number(models: Path, tmp_path: Path, name: str, where: int, number: int, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(patched(models / name, where, number))
    with pytest.raises(InputError, match=said) as error:
        fasttext_models.load(file, KEY)
    assert str(error.value).startswith(f"{KEY}: {file} ") and "SHA-256" in str(error.value)


@pytest.mark.parametrize("name", ["plain.bin", "small.ftz"])
def test_what_is_read_for_ever(models: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasttext_trial, "SECONDS", 1)
    (tmp_path / name).write_bytes(patched(models / name, ENTRIES, 2**31 - 1))
    with pytest.raises(InputError, match="did not come to an end with it in 1 s of processor time"):
        fasttext_models.load(tmp_path / name, KEY)


@pytest.mark.parametrize("name", ["plain.bin", "small.ftz"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_model_that_was_cut_off(models: Path, tmp_path: Path, name: str, share: float) -> None:
    content = (models / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        fasttext_models.load(tmp_path / name, KEY)


@pytest.mark.parametrize("name", ["plain.bin", "small.ftz"])
def test_a_whole_model_is_tried_once(models: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes((models / name).read_bytes())
    made = fasttext_models.load(tmp_path / name, KEY)
    assert made.f.predict("sun sea\n", 1, 0.0, "strict")[0][1] == "__label__warm"
    monkeypatch.setattr(fasttext_models, "_trial_failure", lambda path: "a second trial")
    fasttext_models.load(tmp_path / name, KEY)
    child = os.fork()
    if child == 0:  # as the process of a shard
        try:
            fasttext_models.load(models / name, KEY)  # the same content
        except InputError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (tmp_path / name).write_bytes((models / name).read_bytes() + b"0")
    with pytest.raises(InputError, match="a second trial"):
        fasttext_models.load(tmp_path / name, KEY)


def test_the_trained_classifier_is_tried_too(models: Path, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(patched(models / "plain.bin", BUCKETS, 0))
    with pytest.raises(InputError, match=r"quality\.train: .*model\.bin .*SIGFPE"):
        Classifier.load(tmp_path / "model.bin")


def test_a_digest_is_compared_before_the_file_is_read(models: Path, tmp_path: Path) -> None:
    file = models / "plain.bin"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    fasttext_models.load(f"{file}#sha256={digest.upper()}", KEY)
    for wrong, said in ((f"{file}#sha256=12ab", "64 hex digits"), (f"{file}#sha256={'0' * 64}", f"SHA-256 {digest}")):
        with pytest.raises(InputError, match=said) as error:
            fasttext_models.load(wrong, KEY)
        assert str(error.value).startswith(KEY) and str(file) in str(error.value)


def test_a_file_is_tracked_by_its_content_with_a_digest_too(models: Path) -> None:
    config = validate({"language": {"score": {"model": "a/b.bin#sha256=" + "0" * 64}}})
    assert list(named_files(config, "language.score")) == [(KEY, "a/b.bin", "any")]


def test_a_damaged_sentencepiece_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "en.sp.model").write_bytes(b"\x0a\xff\xff\xff")
    with pytest.raises(InputError, match=r"quality\.kenlm\.models: .*en\.sp\.model is not a SentencePiece model"):
        sentencepiece_speller(tmp_path / "en.sp.model")
