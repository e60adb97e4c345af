"""docs/config.md is the page that the schema makes."""

from __future__ import annotations

from crawl2llm.chain.config_schema import schema_leaves
from tools import reference


def test_page_of_all_keys_is_up_to_date() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.config_page(), "run `make docs`"


def test_page_has_a_row_for_every_key() -> None:
    rows = [line for line in reference.config_page().splitlines() if line.startswith("| `")]
    keys = [row.split("`")[1] for row in rows]
    assert sorted(key for key in keys if "[]" not in key) == sorted(path for path, _ in schema_leaves())
    assert "ingest.extract.sources[].first_mb" in keys  # of an object in a list
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
