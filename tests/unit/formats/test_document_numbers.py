"""Reading one part of a sorted file, and tables whose columns cannot overflow."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError
from crawl2llm.formats import document_numbers
from crawl2llm.formats.document_numbers import DUPLICATE, PAIR, first_document, table_between, tables_by_shard
from crawl2llm.formats.documents import Writer

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30, unique=True).map(sorted)


def written(path: Path, rows: list[tuple[int, int]], group: int) -> Path:
    with Writer(path, DUPLICATE, group) as writer:
        numbers = [first_document(shard) + row for shard, row in rows]
        writer.add_table(pa.table({"document": numbers, "duplicate_of": [0] * len(rows)}, schema=DUPLICATE))
    return path


@settings(deadline=None)
@given(ROWS, st.integers(1, 9), st.integers(0, 7), st.integers(0, 7))
def test_between_reads_its_rows_alone(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], group: int, first: int, last: int
) -> None:
    path = written(tmp_path_factory.mktemp("t") / "x.parquet", rows, group)
    found = table_between(path, "document", first_document(first), first_document(last), DUPLICATE)[
        "document"
    ].to_pylist()
    assert found == [first_document(shard) + row for shard, row in rows if first <= shard < last]


@settings(deadline=None)
@given(ROWS, st.integers(1, 9))
def test_by_shard_gives_every_row_to_its_shard(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], group: int
) -> None:
    path = written(tmp_path_factory.mktemp("t") / "x.parquet", rows, group)
    parts = list(tables_by_shard(path, range(6), DUPLICATE))
    for shard, part in enumerate(parts):
        assert part["document"].to_pylist() == [first_document(shard) + row for s, row in rows if s == shard]
    for shards in (range(5), range(1, 6)):
        if any(shard not in shards for shard, _ in rows):
            with pytest.raises(InputError, match="of shards that are not there"):
                list(tables_by_shard(path, shards, DUPLICATE))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", [(0, 1)], 9)
    with pytest.raises(ManifestError, match="has the columns"):
        table_between(path, "part", 0, 1, PAIR)


def test_no_table_of_pairs_or_documents_has_strings() -> None:
    """`pa.string()` has 32-bit offsets: a column of 32-digit ids overflows at 67 million rows, whatever the memory."""
    schemas = [value for value in vars(document_numbers).values() if isinstance(value, pa.Schema)]
    assert len(schemas) == 5
    kinds = {leaf.type for schema in schemas for leaf in schema if leaf.name != "shingles"}
    assert kinds == {pa.int64(), pa.int32(), pa.float64()}


def test_document_numbers_hold_any_shard_and_row() -> None:
    number = np.array([first_document(99_999) + (1 << 32) - 1])
    assert number.dtype == np.int64 and number[0] > 0
    assert (number >> document_numbers.ROW_BITS).tolist() == [99_999]


@given(st.lists(st.text(max_size=9)), st.integers(1, 30))
def test_batches_end_where_they_are_large_enough(texts: list[str], most: int) -> None:
    batches = list(document_numbers.batch_by_size(texts, len, most))
    assert [text for batch in batches for text in batch] == texts and all(batches)
    assert all(sum(map(len, batch)) >= most for batch in batches[:-1])
    assert all(sum(map(len, batch[:-1])) < most for batch in batches)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))))
def test_starts_of_runs(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    before: list[tuple[int, int] | None] = [None, *rows]
    assert document_numbers.group_starts(*columns).tolist() == [
        row != last for row, last in zip(rows, before, strict=False)
    ]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 9))
def test_places_of_documents(sizes: list[int], gap: int) -> None:
    shards = [document_numbers.Shard(gap * number + number, Path(), size) for number, size in enumerate(sizes)]
    documents = np.array([first_document(one.number) + row for one in shards for row in range(one.documents)], np.int64)
    places = document_numbers.Places(shards)
    assert places.places_of(documents).tolist() == list(range(sum(sizes))) and places.number == sum(sizes)
    assert places.documents(np.arange(sum(sizes))).tolist() == documents.tolist()
    beyond = [first_document(one.number) + one.documents for one in shards]
    beyond += [
        first_document(shards[-1].number + 1),
        first_document(document_numbers.EARLIER),
        first_document(document_numbers.EARLIER) + 5,
    ]
    assert (places.places_of(np.array(beyond)) == -1).all()
