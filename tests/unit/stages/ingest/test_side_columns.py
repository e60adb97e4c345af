"""The text alone decides whether a row is kept: what cannot be read beside it is null, and counted by column."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import document_id, rows
from crawl2llm.stages.ingest import extract, json_lines
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.text import JsonLinesReader
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit import making
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, reasons, settings_with, source_of

CASE = Path(__file__).resolve().parents[5] / "shared" / "cases" / "pages" / "parquet-ns-date" / "a.parquet"
KEYS = {"id_key": "key", "metadata_keys": ["more"]}


def parquet(
    path: Path, table: pa.Table, source: dict[str, Any] | None = None, **settings: Any
) -> list[Page | RejectedRecord]:
    pq.write_table(table, path, write_page_checksum=True)
    return list(ParquetReader(source_of({"name": "set", **(source or {})}), settings_with(**settings))(path, path.name))


def jsonl(path: Path, *lines: bytes, **source: Any) -> list[Page | RejectedRecord]:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return list(JsonLinesReader(source_of({"name": "set", **source}), SETTINGS)(path, path.name))


def strings(*values: bytes) -> pa.Array:
    """A column of strings that holds these bytes, UTF-8 or not."""
    return pa.array(values, pa.binary()).view(pa.string())


def kept(found: list[Page | RejectedRecord]) -> list[Page]:
    assert reasons(found) == {"page": len(found)}, found
    return [one for one in found if isinstance(one, Page)]


@pytest.mark.skipif(not CASE.is_file(), reason="no ../shared/cases/pages/parquet-ns-date")
def test_the_case_of_dates_in_nanoseconds() -> None:
    found = kept(list(ParquetReader(source_of({"name": "s"}), SETTINGS)(CASE, "a.parquet")))
    assert [(one.text, one.date) for one in found] == [
        ("a good text", "2023-11-14T22:13:20"),
        ("another", "1970-01-01T00:00:00"),
    ]


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("date", pa.array([1700000000000000001], pa.timestamp("ns", "UTC")), "2023-11-14T22:13:20+00:00"),
        ("date", pa.array([datetime.date(2024, 5, 1)]), "2024-05-01"),
        ("url", pa.array([b"https://a.org/"], pa.binary()), "https://a.org/"),
        ("url", pa.array(["https://a.org/"]).dictionary_encode(), "https://a.org/"),
        ("key", pa.array([decimal.Decimal(12345678901234567890)], pa.decimal128(20, 0)), "12345678901234567890"),
        ("key", pa.array([7], pa.uint64()), "7"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)  # fmt: skip
def test_unusual_types_are_read(tmp_path: Path, name: str, array: pa.Array, value: str) -> None:
    (page,) = kept(
        parquet(tmp_path / "x", pa.table({"text": [TEXT], name: array}), {"id_key": "key"} if name == "key" else {})
    )
    found = {"date": page.date, "url": page.url, "key": page.metadata.get("record_id")}
    assert found[name] == value and page.unreadable == ()


NOT_READ: dict[str, tuple[str, pa.Array]] = {
    "bad UTF-8 in the address": ("url", strings(b"https://a.org/\xff")),
    "bytes that are no text": ("url", pa.array([b"\xff\xfe"], pa.binary())),
    "a list as address": ("url", pa.array([["https://a.org/"]])),
    "an address in a dictionary": ("url", strings(b"\xff").dictionary_encode()),
    "a year above 9999": ("date", pa.array([10**18], pa.timestamp("us"))),
    "an unknown zone": ("date", pa.array([0], pa.timestamp("us", tz="Mars/Phobos"))),
    "a number as date": ("date", pa.array([float("nan")])),
    "bad UTF-8 in the title": ("title", strings(b"\xff")),
    "bad UTF-8 in the id": ("key", strings(b"7\xff")),
    "a fraction as id": ("key", pa.array([decimal.Decimal("7.5")])),
    "not a number as metadata": ("more", pa.array([float("inf")])),
    "a year above 9999 as metadata": ("more", pa.array([4_000_000], pa.int32()).cast(pa.date32())),
    "a list with bad UTF-8": ("more", pa.ListArray.from_arrays([0, 2], strings(b"a", b"\xff"))),
}


@pytest.mark.parametrize("kind", NOT_READ)
def test_a_value_of_parquet_that_cannot_be_read_is_null(tmp_path: Path, kind: str) -> None:
    name, array = NOT_READ[kind]
    source = {"key": {"id_key": "key"}, "more": {"metadata_keys": ["more"]}}.get(name, {})
    (page,) = kept(parquet(tmp_path / "x", pa.table({"text": [TEXT], name: array}), source))
    assert (page.text, page.unreadable, page.date) == (TEXT, (name,), None)
    assert page.url == "file:set/x#0" and page.id == document_id("set", "x", "", "0")
    assert page.metadata == {}


def test_of_a_nested_column_the_rest_is_read(tmp_path: Path) -> None:
    when = pa.array([0, 10**18], pa.timestamp("us"))
    meta = pa.StructArray.from_arrays([strings(b"ok", b"fine"), when], ["body", "at"])
    found = parquet(tmp_path / "x", pa.table({"meta": meta}), {"text_key": "meta.body", "date_key": "meta.at"})
    assert [(one.text, one.date, one.unreadable) for one in kept(found)] == [
        ("ok", "1970-01-01T00:00:00", ()),
        ("fine", None, ("meta.at",)),
    ]
    found = parquet(tmp_path / "x", pa.table({"text": [TEXT] * 2, "meta": meta}), {"metadata_keys": ["meta"]})
    assert [one.unreadable for one in kept(found)] == [(), ("meta.at",)]
    assert json.loads(kept(found)[1].metadata["fields"]["meta"]) == {"at": None, "body": "fine"}


def test_json_within_a_string_of_parquet(tmp_path: Path) -> None:
    table = pa.table({"text": [TEXT] * 3, "meta": ['{"url": "https://a.org/"}', '{"url": ', ""]})
    found = kept(parquet(tmp_path / "x", table, {"url_key": "meta.url"}))
    assert [one.url for one in found] == ["https://a.org/", "file:set/x#1", "file:set/x#2"]
    assert [one.unreadable for one in found] == [(), ("meta.url",), ()]


def test_a_value_that_is_too_long_beside_a_good_text(tmp_path: Path) -> None:
    long = ["y" * 5000, "short"]
    found = parquet(tmp_path / "x", pa.table({"text": [TEXT] * 2, "title": long}), max_body_bytes=1000)
    assert [(one.text, one.metadata, one.unreadable) for one in kept(found)] == [
        (TEXT, {}, ("title",)),
        (TEXT, {"title": "short"}, ()),
    ]
    nested = pa.table({"meta": [{"text": TEXT, "url": "y" * 5000}]})
    found = parquet(tmp_path / "x", nested, {"text_key": "meta.text", "url_key": "meta.url"}, max_body_bytes=1000)
    assert [(one.text, one.unreadable) for one in kept(found)] == [(TEXT, ("meta.url",))]


def test_a_damaged_column_beside_the_text_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x"
    columns = {"text": [f"{TEXT} {n}" for n in range(40)], "url": [f"https://a.org/{n}" for n in range(40)]}
    pq.write_table(
        pa.table({**columns, "title": ["T"] * 40}),
        path,
        row_group_size=10,
        use_dictionary=False,
        write_page_checksum=True,
    )
    at = pq.ParquetFile(path).metadata.row_group(2).column(1)
    data = bytearray(path.read_bytes())
    place = at.data_page_offset + at.total_compressed_size - 20
    data[place : place + 4] = b"\0\1\2\3"
    path.write_bytes(data)
    found = kept(list(ParquetReader(source_of({"name": "set"}), SETTINGS)(path, "x")))
    assert [one.text for one in found] == columns["text"]
    assert [number for number, one in enumerate(found) if one.unreadable == ("url",)] == list(range(20, 30))
    assert [one.url for one in found[19:21]] == ["https://a.org/19", "file:set/x#20"]
    assert {one.metadata["title"] for one in found} == {"T"}


def test_two_columns_of_one_name_beside_the_text(tmp_path: Path) -> None:
    table = pa.table(
        [pa.array([TEXT]), pa.array(["https://a.org/"]), pa.array(["https://b.org/"])], ["text", "url", "url"]
    )
    (page,) = kept(parquet(tmp_path / "x", table))
    assert (page.url, page.unreadable) == ("file:set/x#0", ("url",))


def test_all_that_lies_within_a_string_of_json_is_lost_with_it(tmp_path: Path) -> None:
    table = pa.table([[TEXT], ['{"url": "u", "lang": "de"}'], ["{}"]], names=["text", "meta", "meta"])
    keys = {"url_key": "meta.url", "metadata_keys": ["meta.lang"]}
    (page,) = kept(parquet(tmp_path / "x", table, keys))
    assert page.unreadable == ("meta.lang", "meta.url") and page.metadata == {}


def test_dates_of_int96_after_2262(tmp_path: Path) -> None:
    table = pa.table({"text": [TEXT], "date": pa.array([datetime.datetime(3000, 1, 1)], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "x", use_deprecated_int96_timestamps=True)
    (page,) = kept(list(ParquetReader(source_of({"name": "set"}), SETTINGS)(tmp_path / "x", "x")))
    assert page.date == "3000-01-01T00:00:00"


@pytest.mark.parametrize("bad", [strings(b"\xff")], ids=["bad UTF-8"])
def test_a_text_that_cannot_be_read_drops_the_row(tmp_path: Path, bad: pa.Array) -> None:
    assert reasons(parquet(tmp_path / "x", pa.table({"text": bad, "url": ["u"]}))) == {"broken_record": 1}


LINES: dict[str, tuple[bytes, str]] = {
    "bad UTF-8 in the address": (b'{"text": "%s", "url": "https://a.org/\xff"}', "url"),
    "an integer of 5,000 digits": (b'{"text": "%s", "date": ' + b"7" * 5000 + b"}", "date"),
    "an integer of 5,000 digits as id": (b'{"key": ' + b"7" * 5000 + b', "text": "%s"}', "key"),
    "lists within lists": (b'{"text": "%s", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "more"),
    "objects within objects": (b'{"more": ' + b'{"a}":' * 50_000 + b"1" + b"}" * 50_000 + b', "text": "%s"}', "more"),
    "not a number": (b'{"text": "%s", "more": NaN}', "more"),
    "an infinite number": (b'{"text": "%s", "more": 1e999}', "more"),
    "an object as title": (b'{"text": "%s", "title": {"en": "T"}}', "title"),
    "true as address": (b'{"text": "%s", "url": true}', "url"),
    "a lone surrogate in the id": (b'{"text": "%s", "key": "a\\ud800"}', "key"),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_value_of_json_that_cannot_be_read_is_null(tmp_path: Path, kind: str) -> None:
    line, name = LINES[kind]
    (page,) = kept(jsonl(tmp_path / "x", line.replace(b"%s", TEXT.encode()), **KEYS))
    assert (page.text, page.unreadable, page.date) == (TEXT, (name,), None)
    assert page.url == "file:set/x#0" and page.id == document_id("set", "x", "", "0") and page.metadata == {}


def test_of_a_nested_value_of_json_the_rest_is_read(tmp_path: Path) -> None:
    """As of Parquet: a bad byte beside the text costs neither the text, nor other values, that are in the same object."""
    line = b'{"data": {"url": "https://a.org/\xff", "tags": ["a", "\xfe"], "n": %s, "title": "T", "text": "%s"}}'
    keys = {"text_key": "data.text", "url_key": "data.url", "metadata_keys": ["data.title", "data.tags", "data.n"]}
    (page,) = kept(jsonl(tmp_path / "x", line % (b"7" * 5000, TEXT.encode()), **keys))
    assert (page.text, page.url) == (TEXT, "file:set/x#0")
    assert page.unreadable == ("data.n", "data.tags", "data.url")
    assert page.metadata == {"fields": {"data.title": "T"}}
    (whole,) = kept(jsonl(tmp_path / "x", b'{"text": "One.", "more": {"a\xff": 1, "b": 7%s}}' % (b"7" * 5000), **KEYS))
    assert whole.unreadable == ("more.a\ufffd", "more.b") and whole.metadata == {"fields": {"more": '{"b": null}'}}
    bad = jsonl(tmp_path / "x", b'{"data": {"text": "bad \xff byte", "title": "T"}}', **keys)
    assert reasons(bad) == {"broken_record": 1}


def test_two_ids_that_differ_in_a_lone_surrogate_are_two_documents(tmp_path: Path) -> None:
    lines = [b'{"text": "%d %s", "key": "a\\ud80%d"}' % (n, TEXT.encode(), n) for n in range(2)]
    assert len({page.id for page in kept(jsonl(tmp_path / "x", *lines, **KEYS))}) == 2


def test_control_characters_within_strings_of_json(tmp_path: Path) -> None:
    (page,) = kept(jsonl(tmp_path / "x", b'{"text": "One.\tTwo.", "title": "a\x01b"}'))
    assert (page.text, page.metadata, page.unreadable) == ("One. Two.", {"title": "a\x01b"}, ())


@pytest.mark.parametrize(
    "line",
    [b'{"text": "bad \xff byte"}', b'{"text": "x", "url": "u" "v"}', b'{"text": "x", "more": ' + b"[" * 100_000 + b"}",
     b'{"text": "x"} more \xff', b'{"text": "x", "url": "\\uZZZZ"}', b'{"text": "\xff', b"{" * 100_000, b"\xff", b'{,"text": "x"}'],
    ids=lambda line: line[:30].decode("latin-1"),
)  # fmt: skip
def test_lines_that_are_no_json_or_whose_text_is_bad(tmp_path: Path, line: bytes) -> None:
    assert reasons(jsonl(tmp_path / "x", line)) == {"broken_record": 1}


@pytest.mark.parametrize(
    "tail",
    [b"[", b'{"a":', b'[\\"', b'["\\"', b"[]", b'\\"'],
    ids=["lists", "objects", "escapes", "strings", "empty", "one string"],
)
def test_time_is_in_proportion_to_a_line_that_nests(tail: bytes) -> None:
    """Four times the line: with a square it would take sixteen times as long."""

    def seconds(times: int) -> float:
        start = time.process_time()
        with contextlib.suppress(ValueError):
            json_lines.parse(b'{"text": "x", "more": [' + b"[" * 5000 + b'"' + tail * times + b"}")
        return time.process_time() - start

    assert seconds(80_000) < max(0.2, 9 * seconds(20_000))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_the_task_counts_them_by_source_and_column(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"x.{form}"
    if form == "jsonl":
        path.write_bytes(
            b'{"text": "One.", "url": "\xff"}\n{"text": "Two.", "url": [], "date": 1.5}\n{"text": "Three."}\n'
        )
    else:
        table = {
            "text": ["One.", "Two.", "Three."],
            "url": pa.array([b"\xff", b"\xfe", None], pa.binary()),
            "date": [None, 1.5, None],
        }
        pq.write_table(pa.table(table), path)
    config = making.config(
        "ingest.extract", sources=[{"name": "s", "kind": form, "paths": ["x"]}], shards=1, min_characters=1
    )
    assert (
        extract.main(["--config", config, "--manifest", str(tmp_path / "00000.manifest.json"), "--files", f"s={path}"])
        == 0
    )
    manifest = Manifest.read(tmp_path / "00000.manifest.json")
    assert manifest.counts == {"in": 3, "kept": 3, "dropped": {}}
    assert manifest.summary["unreadable"] == {"s": {"date": 1, "url": 2}}
    assert [row["date"] for row in rows(manifest.file("00000.parquet"))] == [None] * 3
    assert "s: url (2), date (1)" in capsys.readouterr().err


def test_an_address_of_over_8_kb_is_null_and_counted_and_the_text_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def address(characters: int) -> str:
        return "https://a.org/".ljust(characters, "a")

    texts = {"One.": extract.LONGEST_URL, "Two.": extract.LONGEST_URL + 1, "Three.": 1 << 20, "": 1 << 20}
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text, "url": address(n)}) + "\n" for text, n in texts.items()))
    config = making.config(
        "ingest.extract", sources=[{"name": "s", "kind": "jsonl", "paths": ["x"]}], shards=1, min_characters=1
    )
    arguments = ["--config", config, "--manifest", str(tmp_path / "00000.manifest.json"), "--files", f"s={path}"]
    assert extract.main(arguments) == 0
    manifest = Manifest.read(tmp_path / "00000.manifest.json")
    found = {row["text"]: row["url"] for row in rows(manifest.file("00000.parquet"))}
    assert found == {"One.": address(extract.LONGEST_URL), "Two.": None, "Three.": None}
    assert len({row["id"] for row in rows(manifest.file("00000.parquet"))}) == 3
    assert [len(row["url"]) < 100 for row in rows(manifest.file("00000.dropped.parquet"))] == [True]
    assert manifest.summary["unreadable"] == {"s": {"url over 8 kB": 2}}
    assert "s: url over 8 kB (2)" in capsys.readouterr().err
