"""dedup.sets and dedup.verify: the same similarities in blocks of any size, and an error for documents that have moved."""

from pathlib import Path

import numpy as np
import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.filters.dedup import sets as sets_
from crawl2llm.filters.dedup.verify import measure_similarities, sets_of_part, similarity_histogram
from crawl2llm.formats.document_numbers import SETS, first_document
from crawl2llm.formats.documents import DOCUMENT, Writer
from crawl2llm.text.shingles import shingle_set

TEXTS = {
    0: ["one two three four", "one two three four five", "six"],
    1: ["two three four", "six", "three four five six"],
}


def number(shard: int, row: int) -> int:
    return first_document(shard) + row


@pytest.fixture(params=[1, 5, 1 << 20])
def files(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Path]]:
    """All sets, for the parts 0 and 1; row groups of 1, 5 or any number of shingles."""
    monkeypatch.setattr(sets_, "GROUP_SHINGLES", request.param)
    found = []
    for shard, texts in TEXTS.items():
        path = tmp_path / f"{shard:05d}.parquet"
        made = {row: shingle_set(text, 2) for row, text in enumerate(texts)}
        rows = np.array(sorted([*made, *made]))
        with Writer(path, SETS, hashes=["shingles.list.element"]) as writer:
            sets_.write_block(writer, first_document(shard), rows, np.tile([0, 1], len(made)), made)
        found.append((shard, path))
    return found


def test_sets_of_a_part(files: list[tuple[int, Path]]) -> None:
    for shard, path in files:
        for part in (0, 1):
            found = [
                (document, shingles[start:end].tolist())
                for documents, shingles, ends in sets_of_part(path, part)
                for document, start, end in zip(documents.tolist(), ends[:-1], ends[1:], strict=True)
            ]
            expected = enumerate(shingle_set(text, 2).tolist() for text in TEXTS[shard])
            assert found == [(number(shard, row), shingles) for row, shingles in expected]
        assert list(sets_of_part(path, 2)) == []


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_similarities(files: list[tuple[int, Path]], most: int) -> None:
    low = np.array([number(0, 0), number(0, 0), number(0, 1), number(0, 2)])
    high = np.array([number(0, 1), number(1, 0), number(1, 2), number(1, 1)])
    assert measure_similarities(low, high, files, 0, 2, most).tolist() == [3 / 4, 2 / 3, 2 / 5, 1.0]


def test_a_document_without_a_set(files: list[tuple[int, Path]]) -> None:
    low, high = np.array([number(0, 0), number(0, 0)]), np.array([number(1, 0), number(1, 7)])
    with pytest.raises(
        InputError, match=r"1 candidate pairs .* document 0 of shard 00000 and document 7 of shard 00001"
    ):
        measure_similarities(low, high, files, 0, 2)


def test_texts_are_those_of_the_ids_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "00000.parquet"
    with Writer(path, DOCUMENT, batch=2) as writer:
        for name in "abcd":
            writer.add({"id": name, "text": f"text {name}"})
    assert list(sets_.texts_by_id(path, ["a", "d"])) == ["text a", "text d"]
    assert list(sets_.texts_by_id(path, [])) == []
    for moved in (["d", "a"], ["a", "x"], ["x"]):
        with pytest.raises(InputError, match="has moved"):
            list(sets_.texts_by_id(path, moved))


def test_histogram() -> None:
    counts = similarity_histogram(np.array([0.0, 0.04, 0.5, 0.99, 1.0]))
    assert (len(counts), counts[0], counts[10], counts[19]) == (20, 2, 1, 2)
