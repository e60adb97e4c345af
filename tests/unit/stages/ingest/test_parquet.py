"""Parquet: whole, empty, cut and damaged files; columns that are missing or of another type; memory that does not grow with a row group."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest import parquet
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, reasons, settings_with, source_of


def read(path: Path, source: dict[str, Any] | None = None, **settings: Any) -> list[Page | RejectedRecord]:
    return list(ParquetReader(source_of({"name": "set", **(source or {})}), settings_with(**settings))(path, path.name))


def written(path: Path, rows: int = 100, group: int = 10, **options: Any) -> Path:
    table = pa.table(
        {"text": [f"{TEXT} Number {number}." for number in range(rows)], "url": [f"u{n}" for n in range(rows)]}
    )
    pq.write_table(table, path, row_group_size=group, write_page_checksum=True, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "gzip"}, {"use_dictionary": False}])
def test_every_row_is_a_document(tmp_path: Path, options: dict[str, Any]) -> None:
    found = read(written(tmp_path / "x.parquet", **options))
    assert reasons(found) == {"page": 100}
    assert [each.url for each in found] == [f"u{number}" for number in range(100)]
    assert len({each.id for each in found if isinstance(each, Page)}) == 100


def test_ids_do_not_depend_on_row_groups(tmp_path: Path) -> None:
    one, other = read(written(tmp_path / "x.parquet")), read(written(tmp_path / "x.parquet", group=7))
    assert one == other


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_every_kind_of_string(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"text": pa.array([TEXT], pa.string()).cast(kind)}), tmp_path / "x")
    assert [each.text for each in read(tmp_path / "x") if isinstance(each, Page)] == [TEXT]


@pytest.mark.parametrize(
    ("columns", "source", "reason", "detail"),
    [
        ({"body": ["a"]}, {}, "missing_column", "no column text; the file has body; its 1 rows are not read"),
        ({"text": ["a"]}, {"text_key": "body"}, "missing_column", "no column body; the file has text"),
        ({"text": ["a"]}, {"id_key": "key"}, "missing_column", "no column key"),
        ({"text": ["a"]}, {"url_key": "meta.url"}, "missing_column", "no column meta.url"),
        ({"text": ["a"]}, {"metadata_keys": ["tag"]}, "missing_column", "no column tag"),
        ({"text": [1, 2]}, {}, "wrong_type", "the column text is int64, not a string; its 2 rows are not read"),
        ({"text": [b"a"]}, {}, "wrong_type", "binary"),
        ({"text": [["a"]]}, {}, "wrong_type", "list"),
    ],
)  # fmt: skip
def test_columns_that_are_not_as_expected(
    tmp_path: Path, columns: dict[str, Any], source: dict[str, Any], reason: str, detail: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    (found,) = read(tmp_path / "x.parquet", source)
    assert (
        isinstance(found, RejectedRecord)
        and found.reason == reason
        and detail in found.detail
        and found.record_id == "x.parquet"
    )


def test_a_column_of_dates(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [TEXT], "date": [datetime.datetime(2024, 5, 1, 12)]}), tmp_path / "x")
    (found,) = read(tmp_path / "x")
    assert isinstance(found, Page) and found.date == "2024-05-01T12:00:00"


def test_rows_over_the_limit_and_rows_that_are_no_text(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(
        3, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0\6\0\0\0"), pa.py_buffer(b"ok\xff\xfeok")
    )
    pq.write_table(pa.table({"text": bad}), tmp_path / "x")
    found = read(tmp_path / "x")
    assert [getattr(each, "reason", "page") for each in found] == ["page", "broken_record", "page"]
    assert found[1].url == "file:set/x#1"
    pq.write_table(pa.table({"text": ["x" * 2000, "ok"]}), tmp_path / "y")
    assert reasons(read(tmp_path / "y", max_body_bytes=1500)) == {"too_large": 1, "page": 1}


def test_an_empty_file_and_one_without_rows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    (found,) = read(tmp_path / "x")
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "y")
    assert read(tmp_path / "y") == []


def test_a_web_page_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("<!doctype html><title>Sign in</title>" * 10)
    (found,) = read(tmp_path / "x")
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file" and "magic bytes" in found.detail


def test_a_damaged_row_group_costs_itself_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", use_dictionary=False, compression="zstd")
    at = pq.ParquetFile(path).metadata.row_group(3).column(0)
    data = bytearray(path.read_bytes())
    place = at.data_page_offset + at.total_compressed_size - 30
    data[place : place + 4] = b"\0\1\2\3"
    path.write_bytes(data)
    found = read(path)
    assert reasons(found) == {"page": 90, "broken_row_group": 1}
    (bad,) = (each for each in found if isinstance(each, RejectedRecord))
    assert f"row group 3 at byte {at.data_page_offset}, rows 30 to 39 (10) are lost" in bad.detail
    assert bad.url == "file:set/x.parquet#30"


@given(st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=4)), max_size=3), st.integers(0, 3000))
def test_any_damage_is_survived_and_counted(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, bytes]], cut: int
) -> None:
    path = written(tmp_path_factory.mktemp("parquet") / "x.parquet", 30, 10, use_dictionary=False)
    data = bytearray(path.read_bytes())
    whole = bytes(data)
    for at, new in edits:
        data[at % len(data) : at % len(data) + len(new)] = new
    data = data[: max(len(data) - cut, 0)]
    path.write_bytes(data)
    found = read(path)
    counted = reasons(found)
    assert counted["page"] <= 30 and (counted["page"] == 30 or len(counted) > (counted["page"] > 0)), counted
    if bytes(data) == whole:
        assert counted == {"page": 30}


PROGRAM = """
import sys
from pathlib import Path
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from tests.unit.peak_memory import peak_bytes
start = peak_bytes()
pages = sum(1 for _ in ParquetReader(ExtractSource(name="set", kind="parquet"), ExtractSettings())(Path(sys.argv[1]), "x"))
print(pages, (peak_bytes() - start) >> 20)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """One row group of 130 MB of text that compresses well."""
    rows = pa.table({"text": pa.array([f"{number} " + "words and more of them " * 800 for number in range(2000)])})
    with pq.ParquetWriter(tmp_path / "x", rows.schema, compression="zstd", use_dictionary=False) as writer:
        writer.write_table(pa.concat_tables([rows] * 4).combine_chunks(), row_group_size=10**9)
    assert pq.ParquetFile(tmp_path / "x").num_row_groups == 1
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "x")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages, megabytes = map(int, out.stdout.split())
    assert pages == 8_000 and megabytes < 100


@pytest.mark.parametrize(
    ("column", "dates"),
    [
        (pa.array([0] * 9 + [10**18], pa.timestamp("us")), 9),
        (pa.array([0] * 9 + [4_000_000], pa.int32()).cast(pa.date32()), 9),
        (pa.array([0] * 10, pa.timestamp("us", tz="Mars/Phobos")), 0),
    ],
    ids=["a time after 9999", "a day after 9999", "an unknown zone"],
)
def test_a_date_that_python_cannot_have_is_null(tmp_path: Path, column: pa.Array, dates: int) -> None:
    pq.write_table(
        pa.table({"text": [f"words {n} of a text" for n in range(10)], "date": column}), tmp_path / "x.parquet"
    )
    found = list(ParquetReader(source_of({"name": "set", "kind": "parquet"}), SETTINGS)(tmp_path / "x.parquet"))
    pages = [one for one in found if isinstance(one, Page)]
    assert len(pages) == len(found) == 10 and sum(one.date is not None for one in pages) == dates
    assert [one.unreadable for one in pages] == [()] * dates + [("date",)] * (10 - dates)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array(["a text"]), pa.array(["another"])], ["text", "text"]), tmp_path / "x.parquet")
    (found,) = ParquetReader(source_of({"name": "set", "kind": "parquet"}), SETTINGS)(tmp_path / "x.parquet")
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file"


def large(path: Path, texts: list[str], **options: Any) -> Path:
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", write_page_checksum=True, **options)
    return path


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_page_that_takes_too_much_memory_costs_its_row_group(tmp_path: Path, dictionary: bool) -> None:
    texts = ["first", "x" * 500_000, "last"]
    path = large(tmp_path / "x.parquet", texts, row_group_size=1, use_dictionary=dictionary)
    found = read(path, max_body_bytes=10_000)
    assert reasons(found) == {"page": 2, "broken_row_group": 1}
    assert "a page of 500,0" in str(vars(found[1])) and "larger max_body_bytes" in str(vars(found[1]))
    assert reasons(read(path, max_body_bytes=500_000)) == {"page": 3}


@pytest.mark.parametrize("dictionary", [True, False])
def test_long_rows_among_short_ones_are_read_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dictionary: bool
) -> None:
    """The mean of their row group says nothing of them; one value of a dictionary may be that of every row."""
    monkeypatch.setattr(parquet, "ROOM", 100_000)
    most = 0

    def watched(batch: pa.RecordBatch, limit: int) -> Any:
        nonlocal most
        most = max(most, batch.nbytes)
        return rows_of(batch, limit)

    rows_of = parquet._readable_rows
    monkeypatch.setattr(parquet, "_readable_rows", watched)
    texts = ["short"] * 3000 + ["y" * 9_000] * 200 + [f"{n}" for n in range(500)]
    path = large(tmp_path / "x.parquet", texts, use_dictionary=dictionary, data_page_size=1000, write_batch_size=1)
    found = read(path)
    assert [each.text for each in found if isinstance(each, Page)] == texts
    assert most <= 150_000, "256 rows of 9,000 bytes are 2.3 MB"


def test_values_over_the_limit_are_no_strings_of_python(tmp_path: Path) -> None:
    path = large(tmp_path / "x.parquet", ["first", "x" * 3000, "y" * 1500, "last"], use_dictionary=False)
    found = read(path, max_body_bytes=1000)
    assert reasons(found) == {"page": 2, "too_large": 2}
    assert "bytes in its columns" in found[1].detail and found[2].detail == "over 1000 bytes"  # type: ignore[union-attr]


def test_a_footer_that_takes_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "FOOTER", 100)
    (found,) = read(written(tmp_path / "x.parquet"))
    assert isinstance(found, RejectedRecord) and "its footer has" in found.detail
