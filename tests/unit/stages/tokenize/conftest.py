"""A small real corpus and a tokenizer trained on it by the step itself, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import DOCUMENT, Writer
from crawl2llm.stages.tokenize import train
from tests.unit import making

SHARDS = ("00000", "00001")


def corpus(folder: Path, texts: dict[str, dict[str, list[str]]]) -> list[Path]:
    """Manifests as corpus.write leaves them: shard → split → texts."""
    made = []
    for shard, splits in texts.items():
        files, summary = [], {}
        for split, found in splits.items():
            path = folder / split / f"{shard}.parquet"
            with Writer(path, DOCUMENT) as writer:
                for number, text in enumerate(found):
                    # Of two sources, where there are several documents.
                    source = "reference" if number % 3 == 2 else "web"
                    writer.add(making.document(f"{shard}-{split}-{number}", text, source=source))
            files.append(path)
            summary[split] = {"documents": len(found), "bytes": sum(len(text.encode()) for text in found)}
        total = sum(part["documents"] for part in summary.values())
        counts = {"in": total, "kept": total, "dropped": {}}
        Manifest("corpus.write", "test", counts, summary).write(folder / f"{shard}.manifest.json", files)
        made.append(folder / f"{shard}.manifest.json")
    return made


@pytest.fixture(scope="session")
def texts() -> dict[str, dict[str, list[str]]]:
    """This project's own sources and pages, and texts that are hard to tokenize."""
    files = sorted([*(ROOT / "scripts").rglob("*.py"), *(ROOT / "docs").rglob("*.md")])
    found = [text for path in files if (text := path.read_text(encoding="utf-8"))]
    hard = [
        "",
        "The end is not <|endoftext|> here, nor <|pad|>.",
        "<|endoftext|>",
        "3.14159 and 2024-05-01 and 1234567",
        "Zwölf 狐 🦊 \u200d\u0301 \x00 \t\n\n  end ",
    ]
    halves = found[::2] + hard, found[1::2] + hard
    return {
        shard: {"train": half[4:], "validation": half[:4] + hard} for shard, half in zip(SHARDS, halves, strict=True)
    }


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, dict[str, list[str]]]) -> list[Path]:
    return corpus(tmp_path_factory.mktemp("corpus"), texts)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, corpora: list[Path]) -> Path:
    """The manifest of tokenize.train."""
    path = tmp_path_factory.mktemp("tokenizer") / "manifest.json"
    argv = ["--config", making.config("tokenize.train", vocabulary=1500), "--corpus", *map(str, corpora)]
    assert train.main([*argv, "--manifest", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def tokenizer(trained: Path) -> Tokenizer:
    loaded = Tokenizer.from_file(str(trained.with_name("tokenizer.json")))
    loaded.encode_special_tokens = True  # as text: no special token is looked for in it
    return loaded
