"""The model, the questions and the preferences of these tests: those of fine-tuning's, made of real pages once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from crawl2llm.stages.align import pairs as align_pairs
from crawl2llm.stages.finetune import pairs
from tests.unit.stages.align.rows import made_from
from tests.unit.stages.finetune import tiny


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on a few numbers wait for each other: a plain loop would take twice as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    return tiny.pages()


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("pretrain"), texts)


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> Path:
    """The manifest of finetune.pairs."""
    corpus = tiny.write_corpus(tmp_path_factory.mktemp("corpus"), texts)
    out = tmp_path_factory.mktemp("pairs") / "manifest.json"
    settings = tiny.config("finetune.pairs", max_train=30, max_heldout=20, min_train=10)
    assert pairs.main(["--config", settings, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def preferences(tmp_path_factory: pytest.TempPathFactory, questions: Path) -> Path:
    """The manifest of align.pairs: an answer is preferred to its words in the opposite order."""
    read = [json.loads(line) for line in (questions.parent / "train.jsonl").read_text().splitlines()]
    rows = [
        {"prompt": row["question"], "chosen": row["answer"], "rejected": " ".join(row["answer"].split()[::-1])}
        for row in read
    ]
    return made_from(rows, tmp_path_factory.mktemp("preferences"), questions, heldout=0.2)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory, questions: Path) -> Path:
    """The manifest of align.pairs without files: the questions of finetune.pairs."""
    out = tmp_path_factory.mktemp("prompts") / "manifest.json"
    assert (
        align_pairs.main(["--config", tiny.config("align.pairs"), "--pairs", str(questions), "--manifest", str(out)])
        == 0
    )
    return out
