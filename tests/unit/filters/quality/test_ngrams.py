"""quality.ngrams: effects of words and n-grams add up to what the classifier says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import ngrams
from crawl2llm.filters.quality.classifier import Classifier
from crawl2llm.filters.quality.ngrams import Effects, word_ngrams
from tests.unit import making
from tests.unit.filters.quality.conftest import sentence


@pytest.mark.parametrize(
    "text", [sentence(True, 3), sentence(False, 4), "the discount of the unheard lemma", "naïve 東京 proof", "the"]
)
def test_the_mean_effect_is_the_log_odds(fasttext_file: Path, text: str) -> None:
    """Also of words with bytes above 127, whose sign counts in fastText's hash."""
    classifier = Classifier.load(fasttext_file)
    share = 1 / (1 + math.exp(-Effects(classifier).log_odds(text)))
    assert classifier(text) == pytest.approx(share, abs=3e-5), "fastText adds 1e-5 to a probability"


@given(st.lists(st.sampled_from("abc"), max_size=8), st.integers(1, 4))
def test_ngrams_are_all_runs_of_words(words: list[str], longest: int) -> None:
    wanted = [tuple(words[a:b]) for a in range(len(words)) for b in range(a + 2, len(words) + 1) if b - a <= longest]
    assert sorted(word_ngrams(words, longest)) == sorted(wanted)


def test_the_strongest_are_those_of_the_two_kinds(
    fasttext_file: Path, crawl: tuple[list[Path], Path], tmp_path: Path
) -> None:
    Manifest("quality.train", "test").write(tmp_path / "train/manifest.json", [])
    (tmp_path / "train/model.bin").write_bytes(fasttext_file.read_bytes())
    Manifest("quality.train", "test").write(tmp_path / "train/manifest.json", [tmp_path / "train/model.bin"])
    argv = ["--config", making.config("quality.ngrams", number=5, min_documents=3), "--documents", *map(str, crawl[0])]
    argv += ["--verdicts", str(crawl[1]), "--model", str(tmp_path / "train/manifest.json")]
    assert ngrams.main([*argv, "--manifest", str(tmp_path / "ngrams/manifest.json")]) == 0
    summary = Manifest.read(tmp_path / "ngrams/manifest.json").summary
    found = {side: " ".join(row["ngram"] for row in summary["strongest"][side]) for side in ("for", "against")}
    assert summary["documents"] == 120 and all(len(rows) == 5 for rows in summary["strongest"].values())
    assert any(word in found["for"] for word in ("proof", "theorem", "lemma", "induction", "degree", "follows"))
    assert any(word in found["against"] for word in ("buy", "discount", "free", "best", "click", "sign"))
    effects = [row["effect"] for row in summary["strongest"]["for"]]
    assert effects == sorted(effects, reverse=True) and effects[-1] > 0
