"""language.score on the real bundled model."""

from scripts.language.score import BUNDLED, Identifier, model_path


def test_identifies_languages() -> None:
    identify = Identifier(model_path(BUNDLED))
    assert identify("The quick brown fox jumps over the lazy dog near the river bank.")[0] == "en"
    assert identify("Der schnelle braune Fuchs springt über den faulen Hund am Flussufer.")[0] == "de"


def test_text_without_words() -> None:
    assert Identifier(model_path(BUNDLED))(" \n ") == ("und", 0.0)
