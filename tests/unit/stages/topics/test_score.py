"""topics.score: every document in its order, with the topic of its language."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import PARTS
from crawl2llm.formats.documents import parquet_file, rows
from crawl2llm.stages.topics import score
from tests.unit import making
from tests.unit.stages.topics.test_train import languages, trained


def scored(folder: Path, documents: Path, model: Path, spoken: list[Path]) -> Path:
    argv = ["--config", making.config("topics.score"), "--documents", str(documents), "--model", str(model)]
    argv += ["--languages", *map(str, spoken), "--manifest", str(folder / documents.name)]
    assert score.main(argv) == 0
    return folder / documents.name


def test_every_document_in_its_order(crawl: list[Path], tmp_path: Path) -> None:
    first = next(rows(parquet_file(crawl[0]), ["id"]))["id"]
    spoken = languages(tmp_path, crawl, unseen=first)
    model = trained(tmp_path / "train", crawl, spoken, least=80)
    made = scored(tmp_path / "score", crawl[0], model, spoken[:1])
    found, documents = list(rows(parquet_file(made))), list(rows(parquet_file(crawl[0])))
    assert [row["id"] for row in found] == [row["id"] for row in documents]
    assert [row["bytes"] for row in found] == [len(row["text"].encode()) for row in documents]
    assert found[0]["topic"] is None and found[0]["distance"] is None
    kinds: dict[str, set[str]] = {}
    for row in found[1:]:
        kinds.setdefault(row["topic"], set()).add(row["id"].rstrip("0123456789"))
    assert kinds.pop("other") == {"food", "rail"}, "their language has no topics"
    assert sorted(kinds) == ["en-01", "en-02", "en-03"] and sorted(map(len, kinds.values())) == [1, 1, 1]
    summary = Manifest.read(made).summary["documents"]
    assert summary[""] == 1 and sum(summary.values()) == len(found)


def test_pages_of_a_host_are_in_one_part(crawl: list[Path], tmp_path: Path) -> None:
    model = trained(tmp_path / "train", crawl, [], by="all")
    parts: dict[str, set[int]] = {}
    for path in crawl:
        urls = {row["id"]: row["url"] for row in rows(parquet_file(path))}
        for row in rows(parquet_file(scored(tmp_path / "score", path, model, []))):
            parts.setdefault(urls[row["id"]].split("/")[2], set()).add(row["part"])
    assert len(parts) == 11 and all(len(of) == 1 and of <= set(range(PARTS)) for of in parts.values())


def test_a_damaged_model_is_refused(
    crawl: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = trained(tmp_path / "train", crawl, [], by="all")
    weights = model.with_name("weights.npz")
    held = bytearray(weights.read_bytes())
    held[len(held) // 2] ^= 1
    weights.write_bytes(held)
    argv = ["--config", making.config("topics.score"), "--documents", str(crawl[0]), "--model", str(model)]
    assert score.main([*argv, "--manifest", str(tmp_path / "score/00000.manifest.json")]) == 1
    assert "weights.npz does not have the checksum" in caplog.text + capsys.readouterr().err
