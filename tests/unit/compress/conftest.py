"""A small real model, and what compress.quantize makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.compress import quantize

sys.path.append(str(Path(__file__).parents[1] / "finetune"))
import tiny


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a randomly initialised Llama of 64 dimensions."""
    return tiny.write_model(tmp_path_factory.mktemp("pretrain"), tiny.pages())


def config(folder: Path, name: str, step: str, **keys: Any) -> str:
    """A config file whose model `name` is made by a step."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"models": {name: {"from": "base", "step": step, **keys}}}))
    return str(path)


def quantized(model: Path, folder: Path, name: str = "small", **keys: Any) -> tuple[int, Path]:
    """(exit status of compress.quantize, manifest)."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{name}.manifest.json"
    given = ["--config", config(folder, name, "compress.quantize", **keys), "--model", str(model)]
    return quantize.main([*given, "--manifest", str(out)]), out


@pytest.fixture(scope="session")
def tokens(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The manifests of tokenize.encode of a small real corpus, by the tokenizer of `base`."""
    from tokenizers import Tokenizer

    from tests.unit.evaluate.conftest import encoded

    folder = tmp_path_factory.mktemp("encoded")
    tokenizer = Tokenizer.from_file(str(base.parent / "model" / "tokenizer.json"))
    corpus = tiny.write_corpus(folder / "corpus", tiny.pages())
    return [encoded(manifest, folder / "tokens" / manifest.name, tokenizer) for manifest in corpus]
