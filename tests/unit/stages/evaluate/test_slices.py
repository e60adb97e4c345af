"""Held-out text by source and language: documents are joined with what wrote their index and their language."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language.score import SIGNAL
from crawl2llm.stages.evaluate import slices
from crawl2llm.stages.evaluate.settings import CompareSettings
from crawl2llm.stages.evaluate.slices import Origin, document_origins, slice_rows
from tests.unit.stages.evaluate.test_compare import compare_evaluations, evaluation

SETTINGS = CompareSettings(resamples=200, confidence=0.95, seed=0)


def encoded(folder: Path, shard: str, by_source: dict[str, list[str]]) -> Path:
    """A manifest of tokenize.encode with the index of its validation documents, 100 tokens each."""
    files = []
    for source, names in by_source.items():
        files.append(folder / "validation" / source / f"{shard}.docs.parquet")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": name, "offset": 100 * at, "tokens": 100, "bytes": 400} for at, name in enumerate(names)]
        pq.write_table(pa.Table.from_pylist(rows), files[-1])
    path = folder / f"{shard}.manifest.json"
    Manifest("tokenize.encode", "0" * 16).write(path, files)
    return path


def scored(folder: Path, shard: str, languages: dict[str, str]) -> Path:
    """A manifest of language.score of a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": name, "source": "x", "language": of, "score": 0.9, "characters": 9} for name, of in languages.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SIGNAL), folder / f"{shard}.parquet")
    path = folder / f"{shard}.manifest.json"
    Manifest("language.score", "0" * 16).write(path, [folder / f"{shard}.parquet"])
    return path


def test_compare_has_the_parts_of_every_model(tmp_path: Path) -> None:
    names = [f"d{at}" for at in range(60)]
    tokens = [
        encoded(tmp_path / "encode", "00000", {"web": names[:20], "books": names[20:30]}),
        encoded(tmp_path / "encode", "00001", {"web": names[30:]}),
    ]
    known = {name: "de" if at % 3 else "en" for at, name in enumerate(names)}
    languages = [
        scored(tmp_path / "score", "00000", {**{name: known[name] for name in names[:30]}, "dropped": "fr"}),
        scored(tmp_path / "score", "00001", {name: known[name] for name in names[31:]}),  # one that was not seen
    ]
    # `tiny` comes from a published model, whose tokens are fewer than those of the run.
    made = [
        evaluation(tmp_path, name, bool, lambda at: 900.0 + at, tokens=tokens)
        for name, tokens in (("base", 100), ("sft", 100), ("tiny", 50))
    ]
    more = ["--tokens", *map(str, tokens), "--languages", *map(str, languages)]
    compare_evaluations(tmp_path, made, more=more)
    found = json.loads((tmp_path / "compare/compare.json").read_text())["slices"]
    assert found["base"] == found["sft"]
    assert {(of["by"], of["name"]): of["documents"] for of in found["base"]} == {
        ("source", "web"): 50, ("source", "books"): 10, ("language", "de"): 40, ("language", "en"): 19, ("language", "unknown"): 1,
    }  # fmt: skip
    books = next(of for of in found["base"] if of["name"] == "books")
    nats, size = sum(900.0 + at for at in range(20, 30)), sum(1000 + at for at in range(20, 30))
    assert books["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, abs=1e-6)
    assert books["perplexity"] == pytest.approx(math.exp(nats / 1000), rel=1e-4) and books["tokens"] == 1000
    other = next(of for of in found["tiny"] if of["name"] == "books")
    assert other["perplexity"] == pytest.approx(math.exp(nats / 500), rel=1e-4) and other["tokens"] == 500
    assert other["bits_per_byte"] == books["bits_per_byte"]
    assert "stderr" in books and "stderr" not in next(of for of in found["base"] if of["name"] == "unknown")


def test_without_language_identification_there_are_sources_alone(tmp_path: Path) -> None:
    path = encoded(tmp_path, "00000", {"a": ["x"], "b": ["y"]})
    known = document_origins({"x", "y", "absent"}, [path], [])
    assert known == {"x": Origin("a", None), "y": Origin("b", None)}
    lines = [{"document": name, "bytes": 10, "tokens": 3, "nats": 5.0} for name in known]
    assert {of["by"] for of in slice_rows(lines, known, SETTINGS)} == {"source"}


def test_the_smallest_of_many_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST", 2)
    known = {f"d{at}": Origin(f"s{at}", "en") for at in range(5)}
    lines = [{"document": name, "bytes": 100 - at, "tokens": 9, "nats": 50.0} for at, name in enumerate(known)]
    found = {of["name"]: of["bytes"] for of in slice_rows(lines, known, SETTINGS)}
    assert found == {"s0": 100, "s1": 99, "(other)": 98 + 97 + 96}


def test_a_source_named_other_is_not_one_of_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST", 1)
    known = {name: Origin(name, None) for name in ("other", "a", "b")}
    found = slices.parts_by_kind(known, {"other": 9, "a": 1, "b": 1})["source"]
    assert found["a"] == found["b"] != found["other"] == "other"
