"""substrings: passages of n words that are there twice, found by hashes of windows: equal to comparing all windows with each other."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.substrings import fingerprints, repeated, sample, score, select, shared, windows
from crawl2llm.filters.substrings import words as words_of
from crawl2llm.formats import hash_shuffle, surviving_texts
from crawl2llm.formats.documents import rows
from crawl2llm.formats.first_occurrence import document_rank
from tests.conftest import LONG
from tests.unit import making

Pages = list[dict[str, Any]]
EXAMPLES = 80 if os.environ.get(LONG) else 8  # each runs all steps


def run(
    folder: Path, shards: list[Pages], length: int, keep: str = "first", skipped: list[str] | None = None
) -> list[Path]:
    """All steps over these shards; the manifests of select, by shard."""
    names = [f"{number:05d}" for number in range(len(shards))]
    documents = [making.documents(folder / "d", pages, name) for pages, name in zip(shards, names, strict=True)]
    verdicts = making.checked(folder / "v", *documents)

    def step(program: Any, task: str, *argv: str, skips: bool = True, **own: Any) -> Path:
        name = program.__name__.rpartition(".")[2]
        out = folder / name / f"{task}.manifest.json"
        config = making.config(f"substrings.{name}", (skipped or []) if skips else [], **own)
        assert program.main(["--config", config, *argv, "--manifest", str(out)]) == 0
        return out

    def each(program: Any, *argv: str, own: list[Path] | None = None, **more: Any) -> list[Path]:
        made = []
        for number, (name, path) in enumerate(zip(names, documents, strict=True)):
            text = [
                "--documents",
                str(path),
                "--verdicts",
                str(verdicts),
                *(["--sample", str(own[number])] if own else []),
            ]
            made.append(step(program, name, *text, *argv, **more))
        return made

    sampled = each(sample, words=length)
    mine = step(shared, "000", "--samples", *map(str, sampled), skips=False)
    hashed = each(windows, "--shared", str(mine), own=sampled)
    found = step(repeated, "000", "--windows", *map(str, hashed), skips=False, keep=keep)
    scored = each(score, "--repeated", str(found), own=sampled)
    return [step(select, name, "--signals", str(path), words_min=0) for name, path in zip(names, scored, strict=True)]


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


def compared(pages: Pages, length: int, keep: str) -> dict[str, list[str]]:
    """The words that are left of every document, by comparing the windows of all of them in memory."""
    windows = Counter(
        tuple(own[at : at + length])
        for page in pages
        for own in [page["text"].split()]
        for at in range(len(own) - length + 1)
    )
    left, there = {}, set()
    for page in sorted(pages, key=lambda page: document_rank(page["id"], page["curated"])):
        own = page["text"].split()
        gone = [False] * len(own)
        for at in range(len(own) - length + 1):
            window = tuple(own[at : at + length])
            if windows[window] > 1 and (keep == "none" or window in there) and not page["curated"]:
                gone[at : at + length] = [True] * length
            there.add(window)
        left[page["id"]] = [word for word, out in zip(own, gone, strict=True) if not out]
    return left


def made_of(pages: list[tuple[bool, str]]) -> Pages:
    return [making.document(f"{n:04d}", text, curated=of) for n, (of, text) in enumerate(pages)]


# Few words, so that passages of every length are repeated, within a document too, and overlap.
TEXT = st.lists(st.sampled_from(["a", "b", "c", "A", "long-word."]), max_size=30).flatmap(
    lambda words: st.lists(st.sampled_from([" ", "\n", "\n\n", "  "]), min_size=len(words), max_size=len(words)).map(
        lambda gaps: "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    )
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.booleans(), TEXT), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(2, 9),
    st.sampled_from(["first", "none"]),
)
def test_equals_comparing_all_windows(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    site: list[tuple[bool, str]],
    number: int,
    length: int,
    keep: str,
) -> None:
    """Whatever the shards, and in batches, blocks and pieces of any size; and every document is kept or dropped."""
    for name, size in {"BLOCK": 3, "GROUP_ROWS": 2, "HELD_ROWS": 2, "SHARDS": 1}.items():
        monkeypatch.setattr(hash_shuffle, name, size)
    monkeypatch.setattr(words_of, "BATCH", 40)
    pages, folder = made_of(site), tmp_path_factory.mktemp("run")
    made = run(folder, [pages[n::number] for n in range(number)], length, keep)
    assert {name: text.split() for name, text in texts(folder, number).items()} == compared(pages, length, keep)
    totals = [Manifest.read(path).counts for path in made]
    assert sum(total["in"] for total in totals) == len(pages)
    assert all(total["in"] == total["kept"] + sum(total["dropped"].values()) for total in totals)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=25), min_size=1, max_size=5), st.integers(2, 8))
def test_equal_windows_have_equal_fingerprints_at_different_places(texts: list[list[int]], length: int) -> None:
    """So no repeated window is passed over: its fingerprint is counted twice."""
    rows = [{"text": " ".join(map(str, own))} for own in texts]
    (batch,) = words_of.word_batches(rows)
    found, places = fingerprints.window_fingerprints(batch, length)
    often = Counter(places.tolist())
    whole = batch.is_within_text(length)
    words = batch.words.tolist()
    seen: dict[tuple[int, ...], int] = {}
    for at in np.flatnonzero(whole).tolist():
        window = tuple(words[at : at + length])
        if window in seen:
            assert found[at] == seen[window] and often[int(found[at])] > 1
        seen[window] = int(found[at])
    assert whole.sum() == sum(max(0, len(own) - length + 1) for own in texts)
    assert not found[~whole].any()


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 12))
def test_hashes_of_words_in_a_row(numbers: list[int], n: int) -> None:
    hashes = words_of.hash_words(" ".join(map(str, numbers)))
    found = words_of.ngram_hashes(hashes, n).tolist()
    rows = [tuple(numbers[at : at + n]) for at in range(max(0, len(numbers) - n + 1))]
    assert len(found) == len(rows)
    assert len(set(zip(rows, found, strict=True))) == len(set(rows)) == len(set(found))


@given(st.text(alphabet="ab \n\t\u00a0\x1c语\u3000ไท.", max_size=30))
def test_words_and_their_places(text: str) -> None:
    found = words_of.split_words(text)
    assert [text[start:end] for start, end in words_of.word_spans(text)] == found
    assert "".join(found) == "".join(text.split())
    assert all(word == "语" for word in found if "语" in word)


def test_the_gaps_that_stay() -> None:
    gone = np.array([False, True, True, False, True, True])
    found = score.removed_spans("one\n\ntwo three four. five\nsix", gone)
    assert [(span.start, span.end) for span in found] == [(5, 15), (20, 29)]
    assert score.removed_spans("one", np.zeros(1, bool)) == []


def test_a_passage_that_two_sources_share(tmp_path: Path) -> None:
    """The curated one keeps it; a source that skips the filter is not compared."""
    passage = " ".join(f"word{n}" for n in range(12))
    pages = [
        making.document("web", f"Before it.\n\n{passage}\n\nAfter it."),
        making.document("book", passage, curated=True),
        making.document("wiki", passage, source="wiki"),
    ]
    made = run(tmp_path, [pages], 10, skipped=["wiki"])
    assert texts(tmp_path, 1) == {"web": "Before it.\n\nAfter it.", "book": passage, "wiki": passage}
    assert Manifest.read(tmp_path / "score/00000.manifest.json").summary == {"edited": 1, "taken": {"words": 12}}
    signals = list(rows(tmp_path / "score/00000.parquet"))
    assert [(row["taken"], row["words"]) for row in signals] == [(12, 4), (0, 12), (0, 12)]
    assert Manifest.read(made[0]).counts["kept"] == 3


def suffix_array(text: str, least: int) -> list[bool]:
    """Which bytes of a text are in a substring of `least` bytes or more that is there twice: by a suffix array, as Lee et al. 2022."""
    library = pytest.importorskip("pydivsufsort")
    data = text.encode()
    order = library.divsufsort(data)
    shared = library.kasai(data, order)  # with the next suffix
    gone = [False] * len(data)
    for one, other, length in zip(order[:-1], order[1:], shared[:-1], strict=True):
        if length >= least:
            for at in (one, other):
                gone[at : at + length] = [True] * length
    return gone


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=40), min_size=1, max_size=5), st.integers(2, 7))
def test_equals_a_suffix_array(tmp_path_factory: pytest.TempPathFactory, site: list[str], length: int) -> None:
    """With one letter a word; a document's end is a letter of its own."""
    pages = made_of([(False, " ".join(text)) for text in site])
    folder = tmp_path_factory.mktemp("run")
    ends = "".join(f"{text}{chr(ord('A') + n)}" for n, text in enumerate(site))
    gone = suffix_array(ends, length)
    run(folder, [pages], length, "none")
    left = "".join(letter for letter, out in zip(ends, gone, strict=True) if not out)
    expected = {f"{n:04d}": own for n, own in enumerate(re.split("[A-Z]", left)[:-1])}
    assert {name: "".join(text.split()) for name, text in texts(folder, 1).items()} == expected
