"""The quality classifier: real fastText, the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE, Classifier, one_line
from crawl2llm.filters.quality.settings import TrainSettings
from crawl2llm.formats.documents import uniform_hash

SETTINGS = TrainSettings(dimensions=8, buckets=500)
GOOD, BAD = ["theorem", "proof", "lemma", "integral"], ["discount", "casino", "buy", "now"]


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    lines = []
    for number in range(200):
        label, words = (POSITIVE, GOOD) if number % 2 else (NEGATIVE, BAD)
        words = [*words, "the", "of"]
        line = " ".join(words[int(uniform_hash(number, f"{place}") * len(words))] for place in range(12))
        lines.append(f"{label} {line}\n")
    path = tmp_path / "examples.txt"
    path.write_text("".join(lines))
    return path


def test_it_learns_and_survives_saving(tmp_path: Path, examples: Path) -> None:
    classify = Classifier.train(examples, SETTINGS)
    assert classify("the proof of the lemma") > 0.7 > 0.3 > classify("buy the discount now")
    classify.save(tmp_path / "model.bin")
    loaded = Classifier.load(tmp_path / "model.bin")
    for line in ("the proof", "buy now", "of", "unheard words", "", "\n"):
        assert loaded(line) == classify(line)
        assert 0 <= classify(line) <= 1


def test_training_twice_gives_the_same_bytes_whatever_lies_in_memory(tmp_path: Path, examples: Path) -> None:
    # fastText takes most of its initial weights from fresh memory: leave some that is not fresh.
    found = []
    for number in range(3):
        left = [b"\xa5" * size for size in range(1000, 60_000, 997) for _ in range(5)]
        del left
        path = tmp_path / f"{number}.bin"
        Classifier.train(examples, SETTINGS).save(path)
        found.append(path.read_bytes())
    assert found[0] == found[1] == found[2]
    Classifier.train(examples, SETTINGS.model_copy(update={"seed": 7})).save(tmp_path / "other.bin")
    assert (tmp_path / "other.bin").read_bytes() != found[0]


def test_divergence_names_the_key(examples: Path) -> None:
    with pytest.raises(InputError, match=r"NaN.*quality\.train\.learning_rate"):
        Classifier.train(examples, TrainSettings(learning_rate=10, epochs=50, dimensions=4, buckets=10))


@given(st.text())
def test_any_text_is_one_line_without_labels(text: str) -> None:
    line = one_line(text + " __label__curated __label__crawl\n" + text)
    assert "\n" not in line and "__label__" not in line
    assert line == " ".join(line.split())


def test_text_that_spells_a_label_is_no_label(examples: Path) -> None:
    before = Classifier.train(examples, SETTINGS)("the proof")
    with examples.open("a") as out:
        out.write(f"{NEGATIVE} {one_line('__label__curated __label__other buy now')}\n")
    assert set(Classifier.train(examples, SETTINGS).model.labels) == {POSITIVE, NEGATIVE}
    assert before > 0.7
