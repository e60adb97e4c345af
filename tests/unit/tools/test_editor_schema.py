"""schemas/config.schema.json is what the settings make, and editors read it."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator

from crawl2llm.chain.config_schema import schema
from tools import editor_schema


def test_the_file_is_up_to_date_byte_for_byte() -> None:
    assert editor_schema.FILE.read_text(encoding="utf-8") == editor_schema.schema_text(schema()) + "\n", (
        "run `make docs`"
    )


def test_it_is_a_json_schema_of_all_that_the_config_takes() -> None:
    read = json.loads(editor_schema.FILE.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(read)
    assert read == schema()


def test_a_section_has_a_line_for_each_key() -> None:
    inner = {"type": "object", "properties": {"c": {"type": "integer"}}}
    node = {"type": "object", "properties": {"a": {"type": "string"}, "b": inner}}
    text = editor_schema.schema_text(node)
    assert json.loads(text) == node
    assert [line.strip()[:3] for line in text.splitlines()] == ['{"t', '"a"', '"b"', '"c"', "}}", "}}"]
