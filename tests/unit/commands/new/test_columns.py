"""What `crawl2llm new` makes of the columns of a data set."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from crawl2llm.commands.new.columns import SIGNS, columns_text, of_lines, of_rows, of_schema, source_keys
from crawl2llm.core.errors import InputError
from crawl2llm.stages.ingest.layouts import PRESETS

FINEWEB = ("text", "id", "dump", "url", "date", "file_path", "language", "language_score", "token_count")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (dict.fromkeys(FINEWEB, "x") | {"language_score": 0.9}, {"preset": "fineweb"}),
        ({"text": "x", "timestamp": "x", "url": "x"}, {"preset": "c4"}),
        ({"text": "x", "timestamp": "x", "url": "x", "likes": 3}, {}),
        ({"text": "x", "meta": {"pile_set_name": "x"}}, {"preset": "pile"}),
        ({"id": "x", "text": "x", "source": "x", "added": "x", "created": "x"}, {"preset": "dolma"}),
        ({"text": "x", "meta": "{}", "red_pajama_subset": "x"}, {"preset": "redpajama"}),
        ({"raw_content": "x", "date_download": "x", "url": "x"}, {"preset": "redpajama"}),
        ({"id": "x", "url": "x", "title": "x", "text": "x"}, {"preset": "wikipedia"}),
        ({"id": "x", "url": "x", "title": "x", "text": "x", "author": "x"}, {}),
        ({"name": "x", "identifier": 3, "sections": [{"type": "section"}]}, {"preset": "wikipedia-structured"}),
        ({"content": "x", "max_stars_repo_path": "x", "max_stars_repo_name": "x"}, {"preset": "code"}),
        ({"code": "x", "repo_name": "x", "path": "x", "license": "x"}, {"preset": "code"}),
        ({"content": "x", "url": "x"}, {"text_key": "content"}),
        ({"text": 3, "body": "x"}, {"text_key": "body"}),
        ({"text": "x"}, {}),
    ],
)
def test_known_data_sets_are_told_by_their_columns(row: dict[str, Any], found: dict[str, str]) -> None:
    assert source_keys(of_rows([row]), "", "x.jsonl") == found
    assert source_keys(of_schema(pa.Table.from_pylist([row]).schema), "", "x.parquet") == found


def test_every_preset_that_is_guessed_exists_and_looks_at_its_columns() -> None:
    for name, signs in SIGNS:
        assert signs[0] in PRESETS[name].text, name


def test_columns_within_columns_and_those_of_later_rows() -> None:
    start = b'{"id": 1, "doc": {"body": "x"}, "text": null}\n{"id": 2, "text": "x", "more": [1]}\n{"id": 3, "cut'
    found = of_lines(start)
    assert found == {"id": "int", "doc": "dict", "doc.body": "string", "text": "string", "more": "list"}
    assert source_keys(found, "doc.body", "x") == {"text_key": "doc.body"}
    assert of_lines(b'{"text": "is longer than what was') == {}
    table = pa.table({"doc": [{"body": "x", "n": 1}], "kind": pa.array(["a"]).dictionary_encode()})
    assert of_schema(table.schema) == {
        "doc": "struct<body: string, n: int64>",
        "doc.body": "string",
        "doc.n": "int64",
        "kind": "string",
    }


def test_without_a_column_of_text_those_that_are_there_are_named() -> None:
    found = of_schema(pa.schema([("id", pa.int64()), ("words", pa.string()), ("text", pa.binary())]))
    with pytest.raises(InputError) as error:
        source_keys(found, "", "https://a.org/x.parquet")
    assert str(error.value) == (
        "https://a.org/x.parquet: no text under text, content, raw_content, body; its columns are id (int64), words (string), "
        "text (binary): name the one with the text by --text-key, which sets `text_key` of the source"
    )
    for wanted, words in (("id", "--text-key id is int64, not a string"), ("doc", "--text-key doc is none of its")):
        with pytest.raises(InputError, match=words):
            source_keys(found, wanted, "x")
    assert source_keys(found, "words", "x") == {"text_key": "words"}
    assert columns_text(dict.fromkeys(map(str, range(50)), "int64")).endswith("39 (int64) and 10 more")
