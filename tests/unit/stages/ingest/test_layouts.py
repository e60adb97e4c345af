"""Rows of known data sets, and columns that a source names: as JSON Lines and as Parquet the same documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.chain.config_schema import schema
from crawl2llm.formats.documents import document_id
from crawl2llm.stages.ingest.layouts import PRESETS
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.text import JsonLinesReader
from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, source_of

CODE = "def f():\n    return  1\n\n\n\ndef g():\n\tpass\n"
# A row as the data set's card shows it, and what of it is a document's URL, date and further fields.
ROWS: dict[str, tuple[dict[str, Any], str, str | None, dict[str, Any]]] = {
    "fineweb": (
        {
            "text": TEXT, "id": "<urn:uuid:1>", "dump": "CC-MAIN-2024-10", "url": "https://a.org/", "date": "2024-03-01T00:00:00Z",
            "file_path": "s3://x.warc.gz", "language": "en", "language_score": 0.9, "token_count": 5,
        },
        "https://a.org/", "2024-03-01T00:00:00Z",
        {"dump": "CC-MAIN-2024-10", "language": "en", "language_score": 0.9, "file_path": "s3://x.warc.gz"},
    ),
    "c4": ({"text": TEXT, "timestamp": "2019-04-25T12:57:54Z", "url": "https://a.org/c4"}, "https://a.org/c4", "2019-04-25T12:57:54Z", {}),
    "pile": ({"text": TEXT, "meta": {"pile_set_name": "ArXiv"}}, "file:set/x#0", None, {"set": "ArXiv"}),
    "dolma": (
        {"id": "d1", "text": TEXT, "source": "reddit", "added": "2023", "created": "2020-01-01", "metadata": {"url": "https://a.org/d"}},
        "https://a.org/d", "2020-01-01", {"source": "reddit"},
    ),
    "redpajama": (
        {"text": TEXT, "meta": json.dumps({"url": "https://a.org/r", "language": "en", "timestamp": "2023-01-01"})},
        "https://a.org/r", "2023-01-01", {"language": "en"},
    ),
    "wikipedia": ({"id": "12", "url": "https://a.org/A", "title": "A", "text": TEXT}, "https://a.org/A", None, {}),
    "wikipedia-structured": (
        {
            "name": "A", "identifier": 7, "url": "https://en.wikipedia.org/wiki/A", "date_modified": "2024-01-01T00:00:00Z",
            "in_language": {"identifier": "en"}, "description": "a letter",
            "sections": [
                {"type": "section", "name": "Abstract", "has_parts": [{"type": "paragraph", "value": TEXT}]},
                {"type": "section", "name": "Use", "has_parts": [{"type": "list", "has_parts": [{"type": "list_item", "value": "One."}]}]},
            ],
        },
        "https://en.wikipedia.org/wiki/A", "2024-01-01T00:00:00Z", {"language": "en", "description": "a letter"},
    ),
    "code": (
        {
            "content": CODE, "max_stars_repo_path": "a/f.py", "max_stars_repo_licenses": ["MIT"], "lang": "Python",
            "max_stars_repo_name": "o/r",
        },
        "file:set/x#0", None, {"path": "a/f.py", "licence": ["MIT"], "language": "Python", "repository": "o/r"},
    ),
}  # fmt: skip


def both(folder: Path, rows: list[dict[str, Any]], **source: Any) -> list[list[Any]]:
    """What the two readers make of the same rows."""
    (folder / "j").mkdir(exist_ok=True), (folder / "p").mkdir(exist_ok=True)
    (folder / "j/x").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "p/x")
    given = {"name": "set", **source}
    return [
        list(JsonLinesReader(source_of(given), SETTINGS)(folder / "j/x", "x")),
        list(ParquetReader(source_of(given), SETTINGS)(folder / "p/x", "x")),
    ]


def test_every_preset_has_a_row_here() -> None:
    sources = schema()["properties"]["ingest"]["properties"]["extract"]["properties"]["sources"]
    assert list(ROWS) == list(PRESETS) == sources["items"]["properties"]["preset"]["enum"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_row_of_a_known_data_set(tmp_path: Path, preset: str) -> None:
    row, url, date, fields = ROWS[preset]
    lines, parquet = both(tmp_path, [row], preset=preset)
    assert lines == parquet
    (found,) = lines
    assert isinstance(found, Page)
    expected = {"code": CODE, "wikipedia-structured": f"{TEXT}\n\nUse\n\n- One."}.get(preset, TEXT)
    assert (found.text, found.url, found.date, found.metadata.get("fields", {})) == (expected, url, date, fields)


def test_a_document_of_fineweb_has_the_id_of_its_record(tmp_path: Path) -> None:
    (found,), _ = both(tmp_path, [ROWS["fineweb"][0]], preset="fineweb")
    assert found.id == document_id("<urn:uuid:1>", "https://a.org/") and found.metadata["record_id"] == "<urn:uuid:1>"


def test_keys_of_a_source_count_before_its_preset(tmp_path: Path) -> None:
    row = {"body": TEXT, "n": 7, "at": {"u": "https://a.org/"}, "when": "2020", "tag": "x", "text": "not this"}
    keys = {"text_key": "body", "id_key": "n", "url_key": "at.u", "date_key": "when", "metadata_keys": ["tag"]}
    for found in both(tmp_path, [row], preset="c4", **keys):
        assert [(each.text, each.url, each.date) for each in found] == [(TEXT, "https://a.org/", "2020")]
        assert found[0].metadata == {"fields": {"tag": "x"}, "record_id": "7"} and found[0].id == document_id(
            "7", "https://a.org/"
        )


def test_an_id_without_an_address(tmp_path: Path) -> None:
    rows = [{"text": TEXT, "key": "a"}, {"text": TEXT, "key": "b"}, {"text": TEXT, "key": None}]
    for found in both(tmp_path, rows, id_key="key"):
        assert [each.url for each in found] == ["record:set/a", "record:set/b", "file:set/x#2"]
        assert len({each.id for each in found}) == 3


def test_rows_without_text(tmp_path: Path) -> None:
    rows = [{"text": None, "url": "u"}, {"text": "", "url": "u"}, {"text": TEXT, "url": "u"}]
    for found in both(tmp_path, rows):
        assert [getattr(each, "reason", "page") for each in found] == ["no_text", "no_text", "page"]
