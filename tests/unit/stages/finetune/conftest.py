"""The corpus, the model and the pairs of these tests: real pages, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.stages.finetune import pairs
from tests.unit.stages.finetune import tiny


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    return tiny.pages()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> list[Path]:
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), texts)


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("pretrain"), texts)


@pytest.fixture(scope="session")
def pairs_manifest(tmp_path_factory: pytest.TempPathFactory, corpus: list[Path]) -> Path:
    out = tmp_path_factory.mktemp("pairs") / "manifest.json"
    settings = tiny.config("finetune.pairs", max_train=300, max_heldout=60)
    assert pairs.main(["--config", settings, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    return out
