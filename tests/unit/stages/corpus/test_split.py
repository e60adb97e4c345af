"""corpus.split: validation by origin over all shards, and what an empty corpus is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.steps import STEPS
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language import score, select
from crawl2llm.formats.documents import Writer, rows
from crawl2llm.stages.corpus import split
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.text import TextReader
from tests.unit import making

Verdict = Callable[[str], bool]


def given(folder: Path, shards: dict[str, list[dict[str, Any]]], drops: dict[str, Verdict] | None = None) -> list[str]:
    """The inputs of the step as options: documents of several shards, and each stage's verdicts with counts."""
    options = ["--documents"]
    left = {shard: [row["id"] for row in made] for shard, made in shards.items()}
    for shard, made in shards.items():
        options.append(str(making.documents(folder / "documents", made, shard)))
    options.append("--verdicts")
    for stage in ["ingest", *FILTERS]:
        drop = (drops or {}).get(stage, lambda _: False)
        step = "ingest.check" if stage == "ingest" else f"{stage}.select"
        if STEPS[step].per:
            options += map(str, making.judged(folder / stage, left, drop, step))
            left = {shard: [name for name in names if not drop(name)] for shard, names in left.items()}
            continue
        path = making.verdicts(folder / stage, left, drop, step)
        before = sum(map(len, left.values()))
        left = {shard: [name for name in names if not drop(name)] for shard, names in left.items()}
        kept = sum(map(len, left.values()))
        read = Manifest.read(path)
        read.counts = {"in": before, "kept": kept, "dropped": {"short": before - kept} if before > kept else {}}
        read.write(path, [read.file(name) for name in read.files])
        options.append(str(path))
    return options


def run(folder: Path, options: list[str], **settings: Any) -> int:
    return split.main(
        ["--config", making.config("corpus.split", **settings), *options, "--manifest", str(folder / "manifest.json")]
    )


def library(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Two shards of twelve books each, cut into pieces by the reader of ingest, and pages of thirty hosts."""
    reader = TextReader(ExtractSource(name="books", kind="text", chunk_words=40), ExtractSettings())
    shards: dict[str, list[dict[str, Any]]] = {"00000": [], "00001": []}
    for number in range(24):
        book = folder / f"book{number}.txt"
        book.write_text(
            "\n\n".join(f"Paragraph {part} of book {number}, ten words long at least." for part in range(48))
        )
        for found in reader(book):
            facts = {"url": found.url, "metadata": json.dumps(found.metadata)}  # type: ignore[union-attr]
            shards[f"0000{number % 2}"].append(making.document(found.id, found.text, **facts))  # type: ignore[union-attr]
    for number in range(90):
        row = making.document(f"page{number}", "a page", url=f"https://h{number % 30}.org/{number}")
        shards[f"0000{number % 2}"].append(row)  # pages of one host are in both shards
    return shards


def test_no_book_and_no_host_is_on_both_sides(tmp_path: Path) -> None:
    shards = library(tmp_path)
    assert run(tmp_path / "out", given(tmp_path, shards), validation_fraction=0.2) == 0
    manifest = Manifest.read(tmp_path / "out/manifest.json")
    chosen = {row["id"]: row["split"] for name in manifest.files for row in rows(manifest.file(name))}
    documents = [row for made in shards.values() for row in made]
    assert all(sum(row["url"].startswith(f"file:books/book{n}.txt") for row in documents) > 5 for n in range(24))
    assert chosen.keys() == {row["id"] for row in documents}
    sides: dict[str, set[str]] = {}
    for row in documents:
        place = row["url"].split("#")[0] if row["url"].startswith("file:") else row["url"].split("/")[2]
        sides.setdefault(place, set()).add(chosen[row["id"]])
    assert len(sides) == 24 + 30 and all(len(side) == 1 for side in sides.values())
    held = sum(side == "validation" for side in chosen.values())
    assert manifest.summary["heldout"] == {
        "documents": held,
        "origins": sum(side == {"validation"} for side in sides.values()),
        "fraction": round(held / len(documents), 6),
    }
    assert 0.2 <= held / len(documents) <= 0.3 and manifest.summary["notes"] == []


@pytest.mark.parametrize("by", ["origin", "document"])
def test_what_a_model_wrote_of_a_page_is_never_apart_from_it(tmp_path: Path, by: str) -> None:
    """In whatever shard it is; the pages that are held out are those of a run without such texts."""
    pages = [making.document(f"page{n}", "a page", url=f"https://h{n % 30}.org/{n}") for n in range(90)]
    texts = []
    for n in range(0, 90, 2):
        facts = {"synthesized": {"seed": f"page{n}", "origin": f"h{n % 30}.org"}}
        more = {"source": "written", "url": f"synthesized:page{n}/0", "metadata": json.dumps(facts)}
        texts.append(making.document(f"text{n}", "a text", **more))
    for name, shards in (
        ("a", {"00000": pages}),
        ("b", {"00000": [*pages[:50], *texts[:9]], "00001": [*texts[9:], *pages[50:]]}),
    ):
        assert run(tmp_path / name, given(tmp_path / f"of-{name}", shards), validation_fraction=0.2, split_by=by) == 0
    alone, both = (Manifest.read(tmp_path / name / "manifest.json") for name in "ab")
    sides = [
        {row["id"]: row["split"] for name in made.files for row in rows(made.file(name))} for made in (alone, both)
    ]
    assert sides[0] == {name: side for name, side in sides[1].items() if name.startswith("page")}
    assert all(sides[1][f"text{n}"] == sides[1][f"page{n}"] for n in range(0, 90, 2))
    held = sum(sides[1][f"text{n}"] == "validation" for n in range(0, 90, 2))
    assert held and both.summary["synthesized"] == {"documents": 45, "heldout": held}
    assert "synthesized" not in alone.summary and both.counts == {"in": 135, "kept": 135, "dropped": {}}


def test_dropped_documents_do_not_count(tmp_path: Path) -> None:
    """The share is that of the survivors, and each shard's file has these alone."""
    pages = [making.document(f"{n}", "a page", url=f"https://h{n}.org/") for n in range(100)]
    options = given(tmp_path, {"00000": pages}, {"heuristics": lambda name: int(name) % 2 == 0})
    assert run(tmp_path / "out", options, validation_fraction=0.1) == 0
    manifest = Manifest.read(tmp_path / "out/manifest.json")
    found = list(rows(manifest.file("00000.parquet")))
    assert [row["id"] for row in found] == [f"{n}" for n in range(1, 100, 2)]
    assert sum(row["split"] == "validation" for row in found) == 5


def test_one_book_alone_is_split_by_piece_and_that_is_said(tmp_path: Path) -> None:
    pieces = [
        making.document(f"{n}", "text", url=f"file:novel.txt#{n}", metadata=json.dumps({"piece": n})) for n in range(60)
    ]
    assert run(tmp_path / "out", given(tmp_path, {"00000": pieces}), validation_fraction=0.1) == 0
    summary = Manifest.read(tmp_path / "out/manifest.json").summary
    assert summary["by"] == "document" and summary["heldout"]["documents"] > 0
    assert "come from 1 origin" in summary["notes"][0]


def languages(folder: Path, found: list[str], wanted: list[str]) -> Path:
    """The manifest of language.select over documents of these languages."""
    with Writer(folder / "score/00000.parquet", score.SIGNAL) as writer:
        for number, language in enumerate(found):
            writer.add({"id": f"{number}", "language": language, "score": 0.9, "characters": 9})
    Manifest("language.score", "x").write(folder / "score/00000.manifest.json", [writer.path])
    config = making.config("language.select", languages=wanted)
    argv = ["--config", config, "--signals", str(folder / "score/00000.manifest.json")]
    assert select.main([*argv, "--manifest", str(folder / "select/00000.manifest.json")]) == 0
    return folder / "select/00000.manifest.json"


def test_an_empty_corpus_names_the_stage_its_reasons_and_the_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ["fr"] * 5 + ["en"] * 3 + ["de"]
    pages = [making.document(f"{n}", "a page") for n in range(len(found))]
    options = given(tmp_path, {"00000": pages}, {"language": lambda _: True})
    options[options.index("--verdicts") + 2] = str(languages(tmp_path / "real", found, ["sw"]))
    assert run(tmp_path / "out", options) == 1
    told = capsys.readouterr().err
    assert "the corpus is empty: of 9 documents language.select kept 0: fr 5, en 3, de 1;" in told
    assert "language.select.languages is ['sw'], language.select.threshold is 0.65" in told
    assert not (tmp_path / "out/manifest.json").exists()


def test_verdicts_of_each_shard_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = {f"0000{n}": [making.document(f"{n}-{m}", "a page") for m in range(3)] for n in range(2)}
    assert run(tmp_path / "a", given(tmp_path / "some", shards, {"lines": lambda name: name.startswith("0")})) == 0
    kept = [row["id"] for shard in shards for row in rows(tmp_path / "a" / f"{shard}.parquet")]
    assert kept == ["1-0", "1-1", "1-2"]
    assert Manifest.read(tmp_path / "a/manifest.json").summary["filters"] == list(FILTERS)
    assert run(tmp_path / "b", given(tmp_path / "none", shards, {"lines": lambda _: True})) == 1
    assert "the corpus is empty: of 6 documents lines.select kept 0: short 6" in capsys.readouterr().err


def test_the_last_verdicts_may_be_those_of_each_shard(tmp_path: Path) -> None:
    shards = {f"0000{n}": [making.document(f"{n}-{m}", "a page") for m in range(3)] for n in range(2)}
    options = given(tmp_path, shards, {"lines": lambda name: name.endswith("2")})
    options = [word for word in options if "/dedup/" not in word and "/quality/" not in word]
    assert run(tmp_path / "out", options) == 0
    kept = [row["id"] for shard in shards for row in rows(tmp_path / "out" / f"{shard}.parquet")]
    assert kept == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.parametrize("stage", ["heuristics", "dedup", "quality"])
def test_every_stage_can_be_the_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str) -> None:
    pages = [making.document(f"{n}", "a page") for n in range(4)]
    assert run(tmp_path / "out", given(tmp_path, {"00000": pages}, {stage: lambda _: True})) == 1
    assert f"the corpus is empty: of 4 documents {stage}.select kept 0: short 4" in capsys.readouterr().err


def test_input_without_documents_is_named_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = given(tmp_path, {"00000": []})
    path = Path(options[1])
    read = Manifest.read(path)
    read.counts = {"in": 7, "kept": 0, "dropped": {"status_404": 4, "not_html": 3}}
    read.write(path, [read.file("00000.parquet")])
    assert run(tmp_path / "out", options) == 1
    assert "of 7 records ingest.extract kept 0: status_404 4, not_html 3" in capsys.readouterr().err


def test_long_lists_are_cut_and_the_rest_is_counted() -> None:
    counts = {f"l{number:02d}": 100 - number for number in range(30)}
    assert split.counts_text(counts).endswith("l10 90, l11 89, 18 others 1,431")
    assert split.counts_text({"b": 1, "a": 1, "none": 0}) == "a 1, b 1"
