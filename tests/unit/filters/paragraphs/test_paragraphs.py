"""paragraphs: the first of equal paragraphs stays, exactly or by a Bloom filter, at any number of shards and parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.paragraphs import bloom, hash, repeated, score, select
from crawl2llm.formats import hash_shuffle, surviving_texts
from crawl2llm.formats.documents import rows
from crawl2llm.formats.first_occurrence import document_rank
from crawl2llm.text.blocks import compared_blocks
from tests.conftest import LONG
from tests.unit import making

Pages = list[dict[str, Any]]
EXAMPLES = 80 if os.environ.get(LONG) else 8  # each runs all steps


def run(folder: Path, shards: list[Pages], parts: int = 1, skipped: list[str] | None = None, **of: Any) -> list[Path]:
    """All steps over these shards; the manifests of select, by shard. of: keys of hash, repeated and select."""
    names = [f"{number:05d}" for number in range(len(shards))]
    documents = [making.documents(folder / "d", pages, name) for pages, name in zip(shards, names, strict=True)]
    verdicts = making.checked(folder / "v", *documents)
    keys = {"hash": ("by", "bytes_min"), "repeated": ("method", "keep", "false_positive_rate", "seed")}

    def step(program: Any, task: str, *argv: str, skips: bool = True, **more: Any) -> Path:
        name = program.__name__.rpartition(".")[2]
        own = {key: of[key] for key in keys.get(name, ()) if key in of} | more
        config = making.config(f"paragraphs.{name}", (skipped or []) if skips else [], **own)
        out = folder / name / f"{task}.manifest.json"
        assert program.main(["--config", config, *argv, "--manifest", str(out)]) == 0
        return out

    given = [["--documents", str(path), "--verdicts", str(verdicts)] for path in documents]
    hashed = [step(hash, name, *argv) for name, argv in zip(names, given, strict=True)]
    assert parts == 1 or len(shards) // 8 == parts, "number_of_parts"
    found = [step(repeated, f"{part:03d}", "--hashes", *map(str, hashed), skips=False) for part in range(parts)]
    made = []
    for name, argv, own in zip(names, given, hashed, strict=True):
        scored = step(score, name, *argv, "--hashes", str(own), "--repeated", *map(str, found))
        made.append(step(select, name, "--signals", str(scored), words_min=of.get("words_min", 0)))
    return made


def texts(folder: Path, shards: int) -> dict[str, str]:
    """What is left of every document, by id."""
    return {
        row["id"]: row["text"]
        for number in range(shards)
        for row in surviving_texts.texts(
            folder / f"d/{number:05d}.manifest.json",
            folder / "v/manifest.json",
            [folder / f"score/{number:05d}.manifest.json"],
            [],
        )
    }


def deduplicated(pages: Pages, keep: str = "first", least: int = 1) -> dict[str, list[str]]:
    """The lines that are left of every document, by comparing all of them in memory."""
    seen: dict[bytes, int] = {}
    for page in pages:
        for key in compared_blocks(page["text"]):
            seen[key] = seen.get(key, 0) + 1
    left, there = {}, set()
    for page in sorted(pages, key=lambda page: document_rank(page["id"], page["curated"])):
        lines = []
        for line, key in zip(page["text"].split("\n"), compared_blocks(page["text"]), strict=True):
            copy = len(key) >= least and seen[key] > 1 and (keep == "none" or key in there)
            there.add(key)
            if line and (page["curated"] or not key or not copy):
                lines.append(line)
        left[page["id"]] = lines
    return left


def made_of(pages: list[tuple[bool, list[str]]]) -> Pages:
    return [making.document(f"{n:04d}", "\n".join(own), curated=of) for n, (of, own) in enumerate(pages)]


PAGES = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from("ABCDEFG*") | st.just("BB"), max_size=5)), max_size=10
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAGES, st.integers(1, 3), st.sampled_from(["first", "none"]), st.sampled_from([1, 2]))
def test_equals_comparing_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    site: list[tuple[bool, list[str]]],
    number: int,
    keep: str,
    least: int,
) -> None:
    """Whatever the shards, and in blocks and pieces of any size; and every document is kept or dropped."""
    for name, size in {"BLOCK": 3, "GROUP_ROWS": 2, "HELD_ROWS": 2, "SHARDS": 1}.items():
        monkeypatch.setattr(hash_shuffle, name, size)
    pages, folder = made_of(site), tmp_path_factory.mktemp("run")
    made = run(folder, [pages[n::number] for n in range(number)], bytes_min=least, keep=keep)
    left = {name: [line for line in text.split("\n") if line] for name, text in texts(folder, number).items()}
    assert left == deduplicated(pages, keep, least)
    totals = [Manifest.read(path).counts for path in made]
    assert sum(total["in"] for total in totals) == len(pages)
    gone = {page["id"] for page in pages if not page["curated"] and page["text"] and not left[page["id"]]}
    assert {
        row["id"]
        for path in made
        for row in rows(path.with_name(path.name.split(".")[0] + ".parquet"))
        if not row["kept"]
    } == gone


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAGES, st.integers(1, 3))
def test_a_bloom_filter_that_is_large_enough_leaves_one_of_each(
    tmp_path_factory: pytest.TempPathFactory, site: list[tuple[bool, list[str]]], number: int
) -> None:
    """Which of several it is depends on the shards; a curated one comes first."""
    pages, folder = made_of(site), tmp_path_factory.mktemp("run")
    pytest.importorskip("rbloom")
    run(folder, [pages[n::number] for n in range(number)], bytes_min=1, method="bloom")
    curated = {key for page in pages if page["curated"] for key in compared_blocks(page["text"]) if key}
    others = {key for page in pages for key in compared_blocks(page["text"]) if key} - curated
    left = texts(folder, number)
    assert all(left[page["id"]] == page["text"] for page in pages if page["curated"])
    assert sorted(
        key for page in pages if not page["curated"] for key in compared_blocks(left[page["id"]]) if key
    ) == sorted(others)


def test_many_parts_are_as_one(tmp_path: Path) -> None:
    """16 shards are dealt out to two parts; each hash is in one of them."""
    pages = made_of([(False, [f"{'xyz'[n % 3]} line", f"own {'abcdefghijklmnop'[n]}"]) for n in range(16)])
    run(tmp_path, [[page] for page in pages], parts=2, bytes_min=1)
    assert {name: text.split("\n") for name, text in texts(tmp_path, 16).items()} == deduplicated(pages)
    both = [len(list(rows(tmp_path / f"repeated/{part:03d}.parquet"))) for part in range(2)]
    assert sum(both) == 16


def test_a_paragraph_of_several_lines(tmp_path: Path) -> None:
    pages = made_of([(False, ["A", "B", "", "C"]), (False, ["A", "", "A", "B"])])
    run(tmp_path, [pages], bytes_min=1, by="paragraph")
    first, second = sorted(pages, key=lambda page: document_rank(page["id"], False))
    left = texts(tmp_path, 1)
    assert left[first["id"]] == first["text"]
    assert left[second["id"]] == ("A" if second is pages[1] else "C")


def test_a_source_that_skips_it_takes_no_part(tmp_path: Path) -> None:
    pages = [making.document(name, "The same line.", source=name) for name in ("web", "wiki", "books")]
    run(tmp_path, [pages], skipped=["books", "wiki"], bytes_min=1)
    assert texts(tmp_path, 1) == dict.fromkeys(("web", "wiki", "books"), "The same line.")


def test_a_bloom_filter_keeps_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        run(tmp_path, [made_of([(False, ["A"])])], method="bloom", keep="none")
    assert "paragraphs.repeated.keep is 'none', and method bloom keeps the first" in capsys.readouterr().err


def test_the_false_positives_of_a_bloom_filter_are_as_many_as_configured() -> None:
    """And others with another seed."""
    rbloom = pytest.importorskip("rbloom")
    hashes = np.random.default_rng(0).integers(0, 1 << 64, 40_000, np.uint64)
    wrong = []
    for seed in (0, 1):
        seen = rbloom.Bloom(20_000, 0.01, hash_func=int)
        for key in bloom.filter_keys(hashes[:20_000], seed):
            seen.add(key)
        assert all(key in seen for key in bloom.filter_keys(hashes[:20_000], seed))
        wrong.append({n for n, key in enumerate(bloom.filter_keys(hashes[20_000:], seed)) if key in seen})
    assert all(100 < len(found) < 300 for found in wrong) and len(wrong[0] & wrong[1]) < 20
