"""The tables of keys at the end of the pages are what the settings make."""

from __future__ import annotations

from crawl2llm.chain.config_schema import schema_leaves
from crawl2llm.commands.keys import Key, all_keys
from crawl2llm.core.root import ROOT
from tools import reference


def test_the_tables_are_up_to_date() -> None:
    for name, table in reference.tables_by_page().items():
        page = (ROOT / name).read_text(encoding="utf-8")
        assert page == reference.with_table(page, table), f"{name}: run `make docs`"


def test_every_key_is_in_a_table_or_named_beside_one() -> None:
    tables = reference.tables_by_page()
    for key in all_keys():
        assert f"`{key.path.removeprefix(key.section).lstrip('.')}`" in tables[key.page], key.path
    assert {key.path for key in all_keys() if "[]" not in key.path} == {path for path, _ in schema_leaves()}
    assert "`sources[].first_mb`" in tables["docs/stages/ingest.md"]  # of an object in a list


def test_every_row_has_four_cells() -> None:
    rows = [row for table in reference.tables_by_page().values() for row in table.splitlines() if row.startswith("|`")]
    assert len(rows) > 500 and all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_keys_that_an_earlier_section_has_alike_are_not_described_again() -> None:
    def keys_of(section: str, names: str) -> list[Key]:
        return [Key(f"{section}.{name}", "integer", "1", f"About {name}.", placement=False) for name in names]

    first = keys_of("a.b", "pqrs")
    listed, shared = reference.split_shared([*keys_of("c", "pqr"), *keys_of("c", "t")], {"a.b": first})
    assert [key.path for key in listed] == ["c.t"] and shared == {"a.b": ["p", "q", "r"]}
    assert reference.split_shared(keys_of("c", "p"), {"a.b": first}) == (
        keys_of("c", "p"),
        {},
    )  # a single one is not worth a sentence


def test_the_tables_are_replaced_or_put_at_the_end() -> None:
    once = reference.with_table("# Page\n", "table")
    assert once == f"# Page\n\n{reference.BEGIN}\ntable\n{reference.END}\n" == reference.with_table(once, "table")
