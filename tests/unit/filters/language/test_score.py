"""language.score on the real bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language.score import main
from crawl2llm.formats.documents import rows
from crawl2llm.formats.language_identifier import BUNDLED, CAPITALS, Identifier, capital_share, model_path
from tests.unit import making


def test_identifies_languages() -> None:
    identify = Identifier(model_path(BUNDLED))
    assert identify("The quick brown fox jumps over the lazy dog near the river bank.")[0] == "en"
    assert identify("Der schnelle braune Fuchs springt über den faulen Hund am Flussufer.")[0] == "de"


SAMPLES = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_a_text_in_capitals_is_scored_as_in_small_letters(language: str) -> None:
    identify = Identifier(model_path(BUNDLED))
    text = SAMPLES[language]
    assert identify(text.upper()) == identify(text.upper().lower())
    assert identify(text.upper())[0] == language and identify(text.upper())[1] > 0.65


def test_scripts_without_case_and_few_capitals_are_scored_as_they_are() -> None:
    assert capital_share("中国CDMA网络ABC") == 7 / 11 and capital_share("人人生而自由 CES") < CAPITALS
    assert capital_share("12 !?") == 0 and capital_share("") == 0 and capital_share("ABC de") == 0.6
    identify = Identifier(model_path(BUNDLED))
    for text in (
        *SAMPLES.values(),
        "人人生而自由,在尊严和权利上一律平等。CES 2012",
        "ყველა ადამიანი იბადება თავისუფალი",
    ):
        line = " ".join(text.split())
        score, label = identify.model.f.predict(line + "\n", 1, 0.0, "strict")[0]
        assert identify(text) == (label.removeprefix("__label__"), min(float(score), 1.0))


def test_text_without_words() -> None:
    assert Identifier(model_path(BUNDLED))(" \n ") == ("und", 0.0)


def test_lines_do_not_matter_and_scores_are_probabilities() -> None:
    identify = Identifier(model_path(BUNDLED))
    text = "The quick brown fox jumps over the lazy dog near the river bank."
    assert identify(text) == identify(text.replace(" ", "\n \t"))
    assert all(0 <= identify(each)[1] <= 1 for each in (text, "a", "12345", "\u200b", "狐", text * 1000))


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_no_model(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "m.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"language\.score\.model.*m\.bin"):
        Identifier(model_path(str(tmp_path / "m.bin")))


def test_step(tmp_path: Path) -> None:
    texts = [
        "Der schnelle braune Fuchs springt über den faulen Hund.",
        "",
        "The dog does not mind the quick brown fox.",
    ]
    documents = making.documents(tmp_path / "d", [making.document(f"{n}", text) for n, text in enumerate(texts)])
    argv = ["--config", making.config("language.score"), "--documents", str(documents)]
    argv += ["--verdicts", str(making.checked(tmp_path / "check", documents))]
    assert main([*argv, "--manifest", str(tmp_path / "out/00000.manifest.json")]) == 0
    manifest = Manifest.read(tmp_path / "out/00000.manifest.json")
    found = list(rows(manifest.file("00000.parquet")))
    assert [(row["id"], row["language"], row["characters"]) for row in found] == [
        ("0", "de", 55),
        ("1", "und", 0),
        ("2", "en", 42),
    ]
    assert manifest.counts == {"in": 3, "kept": 3, "dropped": {}}
