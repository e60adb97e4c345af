"""Held-out splits: no origin on both sides, near the wanted size, by hash alone, and said where it cannot be."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.text.group_split import LARGEST, MOST, Split, origin_of

Row = dict[str, Any]


def page(host: str, number: int) -> Row:
    return {"id": f"{host}-{number}", "url": f"https://{host}/{number}", "metadata": "{}"}


def piece(book: str, number: int) -> Row:
    url = f"file:{book}#{number}"
    return {"id": f"{book}-{number}", "url": url, "metadata": json.dumps({"piece": number})}


def decided(rows: list[Row], fraction: float, seed: int = 0, by: str = "origin") -> Split:
    split = Split(fraction, seed, by)
    for row in rows:
        split.add(row)
    split.decide()
    return split


@pytest.mark.parametrize(
    ("url", "metadata", "expected"),
    [
        ("https://www.Example.org:8080/a?b#c", {}, "example.org"),
        ("http://blog.example.org/a", {}, "blog.example.org"),
        ("file:AA/novel.txt#12", {"piece": 12}, "file:AA/novel.txt"),
        ("file:odd#name.txt#12", {"piece": 12}, "file:odd#name.txt"),
        ("file:whole.txt#0", {}, "the-id"),
        ("file:rows.jsonl#7", {"title": "a"}, "the-id"),
        ("http://e.org./a", {}, "e.org"),
        ("http://www.e.org.:80/a", {}, "e.org"),
        ("https://münchen.de/a", {}, "münchen.de"),
        ("https://WWW.xn--MNCHEN-3ya.de/a", {}, "münchen.de"),
        ("https://mu\u0308nchen。de/a", {}, "münchen.de"),
        ("https://faß.de/", {}, "faß.de"),
        ("https://xn--fa-hia.de/", {}, "faß.de"),
        ("https://xn--a-rc4g.org/", {}, "xn--a-rc4g.org"),  # a lone surrogate
        ("https://xn--99999999.org/", {}, "xn--99999999.org"),
        (f"https://xn--{'a' * 9000}.org/", {}, f"xn--{'a' * 9000}.org"),
        ("www.e.org/page", {}, "e.org"),
        (" e.org ", {}, "e.org"),
        ("E.org:8080/page", {}, "e.org"),
        ("e.org./a?b", {}, "e.org"),
        ("e.org?a=http://b.org", {}, "e.org"),
        ("//cdn.e.org/a", {}, "cdn.e.org"),
        ("münchen.de/a", {}, "münchen.de"),
        ("xn--mnchen-3ya.de", {}, "münchen.de"),
        ("пример.xn--p1ai/a", {}, "пример.рф"),
        ("novel.txt", {}, "the-id"),
        ("pages/e.org", {}, "the-id"),
        ("10.1000/182", {}, "the-id"),
        ("e.org:a", {}, "the-id"),
        ("mailto:a@b.org", {}, "the-id"),
        ("urn:isbn:123", {}, "the-id"),
        ("http://[broken", {}, "the-id"),
        ("", {}, "the-id"),
        (None, {}, "the-id"),
    ],
)
def test_origin(url: str | None, metadata: Row, expected: str) -> None:
    assert origin_of({"id": "the-id", "url": url, "metadata": json.dumps(metadata)}) == expected
    assert origin_of({"id": "the-id", "url": "https://a.b/", "metadata": None}) == "a.b"


def written(of: Row, number: int) -> Row:
    """A text that a model wrote of a document."""
    facts = {"synthesized": {"seed": of["id"], "origin": origin_of(of)}}
    return {"id": f"w{number}-{of['id']}", "url": f"synthesized:{of['id']}/{number}", "metadata": json.dumps(facts)}


def test_the_origin_of_what_a_model_wrote_is_that_of_its_seed() -> None:
    for seed in (page("e.org", 1), piece("a.txt", 3), {"id": "x", "url": None, "metadata": None}):
        assert origin_of(written(seed, 0)) == origin_of(seed)
    assert origin_of({"id": "x", "url": "synthesized:y/0", "metadata": "{}"}) == "x"


@pytest.mark.parametrize("by", ["origin", "document"])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_model_wrote_is_on_the_side_of_its_seed_and_moves_no_other(by: str, seed: int) -> None:
    seeds = [page(f"h{number % 40}.org", number) for number in range(120)] + [piece("book", n) for n in range(30)]
    without = decided(seeds, 0.2, seed, by)
    texts = [written(of, number) for of in seeds for number in range(3)]
    together = decided([*texts, *seeds], 0.2, seed, by)
    assert [together.is_held_out(row) for row in seeds] == [without.is_held_out(row) for row in seeds]
    assert all(
        together.is_held_out(written(of, number)) == together.is_held_out(of) for of in seeds for number in range(3)
    )
    assert together.summary == without.summary and 0 < sum(map(together.is_held_out, seeds)) < len(seeds)


@pytest.mark.parametrize("by", ["origin", "document"])
def test_one_host_with_texts_that_a_model_wrote_of_it(by: str) -> None:
    """Its pages are split one by one, and each text goes with its page."""
    seeds = [page("e.org", number) for number in range(20)]
    split = decided([*seeds, *(written(of, number) for of in seeds for number in range(4))], 0.2, 0, by)
    assert (
        split.by == "document" and 0 < split.summary["heldout"]["documents"] == sum(map(split.is_held_out, seeds)) < 20
    )
    assert all(split.is_held_out(written(of, number)) == split.is_held_out(of) for of in seeds for number in range(4))


@pytest.mark.parametrize("by", ["origin", "document"])
@pytest.mark.parametrize("number", [1, 2, 3, 60])
@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.9999])
def test_only_texts_that_a_model_wrote(by: str, number: int, fraction: float) -> None:
    """All those of one seed are on one side, and where there are two seeds or more each side has some."""
    seeds = [page(f"h{which}.org", which) for which in range(number)]
    rows = [written(of, which) for of in seeds for which in range(3)]
    split = decided(rows, fraction, 0, by)
    held = sum(map(split.is_held_out, rows))
    assert held % 3 == 0 and split.summary["heldout"]["documents"] == held
    assert 0 < held < len(rows) if number > 1 else not held


SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(SIZES, st.sampled_from([0.005, 0.01, 0.1, 0.3, 0.9]), st.integers(0, 5), st.randoms(), st.booleans())
def test_no_origin_is_on_both_sides(sizes: list[int], fraction: float, seed: int, rng: Any, books: bool) -> None:
    make = piece if books else page
    rows = [make(f"o{which}", number) for which, size in enumerate(sizes) for number in range(size)]
    split = decided(rows, fraction, seed)
    sides: dict[str, set[bool]] = {}
    for row in rows:
        sides.setdefault(origin_of(row), set()).add(split.is_held_out(row))
    number = sum(map(split.is_held_out, rows))
    assert split.summary["heldout"]["documents"] == number
    assert split.summary["documents"] == len(rows) and split.summary["origins"] == len(sizes)
    if split.by == "origin":
        assert all(len(side) == 1 for side in sides.values())
        assert 0 < number <= max(MOST * fraction, LARGEST) * len(rows) + 1e-9
        assert (number > MOST * fraction * len(rows)) <= bool(split.notes)
    else:
        assert split.notes, "a split that is not what was asked for is said"
    assert len(rows) < 2 or 0 < number < len(rows), "both sides have something"
    # The order of the documents, and so shards and workers, decide nothing.
    rng.shuffle(rows)
    again = decided(rows, fraction, seed)
    assert [again.is_held_out(row) for row in rows] == [split.is_held_out(row) for row in rows]
    assert (again.summary, again.notes) == (split.summary, split.notes)


def test_size_is_near_the_wanted_one_with_origins_of_very_different_sizes() -> None:
    rng = random.Random(1)  # noqa: S311
    sizes = [int(rng.paretovariate(0.8)) for _ in range(1000)]  # a few hosts hold most pages
    rows = [page(f"h{which}.org", number) for which, size in enumerate(sizes) for number in range(min(size, 2000))]
    for seed in range(3):
        split = decided(rows, 0.02, seed)
        assert split.by == "origin" and 0.02 <= split.summary["heldout"]["fraction"] <= 0.03


def test_one_origin_alone_is_split_by_document_and_says_so() -> None:
    rows = [page("only.org", number) for number in range(400)]
    split = decided(rows, 0.05)
    assert split.by == "document" and 5 <= sum(map(split.is_held_out, rows)) <= 40
    assert "400 documents come from 1 origin (hosts or files)" in split.notes[0]


def test_a_corpus_of_a_few_pages() -> None:
    rows = [page(f"h{number}", 0) for number in range(7)]
    split = decided(rows, 0.01)
    assert sum(map(split.is_held_out, rows)) == 1 and "14.3% of the documents are held out, not 1.0%" in split.notes[0]
    assert not decided(rows[:1], 0.5).is_held_out(rows[0])
    assert decided(rows[:1], 0.5).notes == ["None of the documents is held out: there are 1."]
    assert decided([], 0.5).summary["documents"] == 0
    pair = decided(rows[:2], 0.9)
    assert sum(map(pair.is_held_out, rows[:2])) == 1


def test_nothing_is_held_out_where_nothing_is_wanted() -> None:
    rows = [page(f"h{number}", 0) for number in range(30)]
    for by in ("origin", "document"):
        split = decided(rows, 0.0, by=by)
        assert not any(map(split.is_held_out, rows)) and split.notes == []


def test_a_dominant_origin_is_never_held_out_and_that_is_said() -> None:
    rows = [page("wiki.org", number) for number in range(900)]
    rows += [page(f"h{number}", 0) for number in range(100)]
    split = decided(rows, 0.02)
    assert not split.is_held_out(rows[0]) and split.summary["too_large"] == {"origins": 1, "documents": 900}
    assert "90% of the documents come from origins" in split.notes[0]


def test_by_document_where_that_is_asked_for() -> None:
    rows = [piece("book", number) for number in range(500)]
    split = decided(rows, 0.1, by="document")
    assert split.notes == [] and split.summary["origins"] is None
    assert 30 < sum(map(split.is_held_out, rows)) < 80
