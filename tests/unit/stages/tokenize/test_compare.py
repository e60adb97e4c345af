"""tokenize.compare: the bytes per token of a ready tokenizer are its own, and the other one is what tokenize.train would make."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language.score import SIGNAL
from crawl2llm.formats.documents import Writer, rows
from crawl2llm.stages.tokenize import compare
from tests.unit import making


def languages_of(corpora: list[Path], folder: Path) -> list[Path]:
    """Manifests as language.score leaves them: documents with an odd number are German."""
    made = []
    for path in corpora:
        shard, ids = path.name.partition(".")[0], []
        for split in ("train", "validation"):
            ids += [row["id"] for row in rows(Manifest.read(path).file(f"{split}/{shard}.parquet"), ["id"])]
        with Writer(folder / f"{shard}.parquet", SIGNAL) as writer:
            for name in ids:
                writer.add({"id": name, "language": "de" if int(name.rpartition("-")[2]) % 2 else "en"})
        Manifest("language.score", "test").write(folder / f"{shard}.manifest.json", [folder / f"{shard}.parquet"])
        made.append(folder / f"{shard}.manifest.json")
    return made


def test_bytes_per_token_by_language(corpora: list[Path], trained: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = making.config("tokenize.compare")
    manifest = tmp_path / "out/manifest.json"
    argv = ["--config", config, "--tokenizer", str(trained), "--corpus", *map(str, corpora), "--languages"]
    argv += [*map(str, languages_of(corpora, tmp_path)), "--manifest", str(manifest)]
    assert compare.main(argv) == 0
    summary = Manifest.read(manifest).summary
    assert summary["vocabulary"] == {"ready": 1500, "own": 1500}
    expected: dict[str, dict[str, int]] = {}
    for path in corpora:
        shard = path.name.partition(".")[0]
        for row in rows(Manifest.read(path).file(f"validation/{shard}.parquet"), ["id", "text"]):
            language = "de" if int(row["id"].rpartition("-")[2]) % 2 else "en"
            counts = expected.setdefault(language, {"documents": 0, "bytes": 0, "ready": 0, "own": 0})
            # The ready one was trained by tokenize.train on the same sample: the other is the same.
            tokens = len(tokenizer.encode(row["text"]).ids)
            for key, more in (
                ("documents", 1),
                ("bytes", len(row["text"].encode())),
                ("ready", tokens),
                ("own", tokens),
            ):
                counts[key] += more
    assert summary["by_language"] == expected
    assert min(record.read(manifest)["megabytes_per_second"].values()) > 0


def test_no_more_text_is_looked_through_than_is_said(corpora: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few languages what is measured stays far below it, and the validation text of a crawl has no end."""
    monkeypatch.setattr(compare, "LANGUAGE_BYTES", 1)
    shard = corpora[0].name.partition(".")[0]
    texts = [row["text"] for row in rows(Manifest.read(corpora[0]).file(f"validation/{shard}.parquet"), ["text"])]
    monkeypatch.setattr(compare, "READ_BYTES", sum(len(text.encode()) for text in texts))
    args = argparse.Namespace(corpus=[corpora[0], Path("not read")], languages=[])
    assert len(list(compare.validation_texts(args))) == 1 < len(texts)
