"""Any bytes, in any kind of source: no error but a reason, nothing lost, and every text can be written."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.formats.documents import DOCUMENT
from crawl2llm.stages.ingest.extract import source_reader
from crawl2llm.stages.ingest.layouts import PRESETS
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest import test_arc
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, html, http, members, page, record, source_of

KINDS = ("warc", "text", "jsonl", "parquet", "commoncrawl")
TAGS = [
    "html", "head", "title", "meta charset=x", "body", "p", "div", "table", "tr", "td", "script", "!--", "svg", "template",
    "br/", "a href=x", "select", "frameset", "plaintext", "xmp", "math", "p hidden",
]  # fmt: skip
TAG = st.sampled_from(TAGS).flatmap(lambda tag: st.sampled_from([f"<{tag}>", f"</{tag}>", f"<{tag}"]))
ANY = st.characters()  # lone surrogates too


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [f"{TEXT} {n}" for n in range(12)], "url": ["u"] * 12}), out, row_group_size=5)
    return out.getvalue()


SOUND = {
    "x.warc": b"".join(map(page, range(3))),
    "x.warc.gz": members(*map(page, range(3))),
    "x.arc": test_arc.FIRST + test_arc.record(1) + test_arc.record(2),
    "x.jsonl": b"".join(b'{"text": "%s", "id": %d}\n' % (TEXT.encode(), number) for number in range(5)),
    "x.jsonl.gz": gzip.compress(b'{"text": "Words."}\n' * 9, mtime=0),
    "x.jsonl.zst": zstandard.ZstdCompressor().compress(b'{"text": "Words."}\n' * 9),
    "x.parquet": parquet(),
    "x.txt": TEXT.encode(),
}


def read(folder: Path, name: str, data: bytes, source: dict[str, Any]) -> list[Page | RejectedRecord]:
    """What a reader makes of a file; each of it can be written as a document or as a row of the dropped."""
    path = folder / name
    path.write_bytes(data)
    found = list(source_reader(source_of({"name": "web", **source}), SETTINGS)(path, name))
    for each in found:
        if isinstance(each, Page):
            row = {"id": each.id, "text": each.text, "url": each.url, "date": each.date}
            pa.Table.from_pylist([{**row, "metadata": json.dumps(each.metadata)}], schema=DOCUMENT)
            assert each.text.strip() and "\x00" not in each.text
        else:
            pa.array([each.reason, each.record_id, each.url, each.detail], pa.string())
            assert each.reason
    return found


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.sampled_from(list(SOUND)))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: str, name: str) -> None:
    assert read(tmp_path_factory.mktemp("any"), name, data, {"kind": kind}) or not data.strip()


@given(
    st.sampled_from(list(SOUND)),
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=5), st.integers(0, 20)), max_size=4),
    st.integers(0, 500),
)
def test_any_damage(
    tmp_path_factory: pytest.TempPathFactory, name: str, kind: str, edits: list[tuple[int, bytes, int]], cut: int
) -> None:
    """Bytes changed, put in and taken out, and the end cut off, of a file of each kind, read as each kind."""
    data = bytearray(SOUND[name])
    for at, new, gone in edits:
        at %= len(data) + 1
        data[at : at + gone] = new
    data = data[: max(len(data) - cut, 0)]
    assert read(tmp_path_factory.mktemp("any"), name, bytes(data), {"kind": kind}) or not data.strip()


KEYS = st.sampled_from(["text", "meta", "sections", "type", "value", "has_parts", "name", "url"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(ANY, max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
COLUMNS = sorted({column.split(".")[0] for how in PRESETS.values() for column in how.columns()})


@given(
    st.lists(st.dictionaries(st.sampled_from(COLUMNS), JSON, max_size=6), max_size=5),
    st.sampled_from([None, *PRESETS]),
    st.booleans(),
)
def test_any_rows_under_any_layout(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], preset: str | None, escaped: bool
) -> None:
    """Every line is a document or dropped; lone surrogates, NaN and values of any type are among them."""
    data = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in rows).encode("utf-8", "surrogatepass")
    source = {"kind": "jsonl", **({"preset": preset} if preset else {})}
    assert len(read(tmp_path_factory.mktemp("any"), "x.jsonl", data, source)) == len(rows)


@given(st.lists(st.text(ANY, max_size=15) | TAG, max_size=30), st.binary(max_size=20))
def test_any_html(tmp_path_factory: pytest.TempPathFactory, parts: list[str], tail: bytes) -> None:
    body = "".join(parts).encode("utf-8", "surrogatepass") + tail
    data = record("response", 1, http(body)) + record("response", 2, http(html().encode()))
    found = read(tmp_path_factory.mktemp("any"), "x.warc", data, {"kind": "warc"})
    assert len(found) == 2 and isinstance(found[1], Page)
