"""language.score on the real bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.formats.documents import rows
from scripts.language.score import BUNDLED, Identifier, main, model_path
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import Manifest
from tests.unit import making


def test_identifies_languages() -> None:
    identify = Identifier(model_path(BUNDLED))
    assert identify("The quick brown fox jumps over the lazy dog near the river bank.")[0] == "en"
    assert identify("Der schnelle braune Fuchs springt über den faulen Hund am Flussufer.")[0] == "de"


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
