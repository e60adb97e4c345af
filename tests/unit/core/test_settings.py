"""What settings are declared with: types, ranges, marks, and the schema that is made of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import ValidationError

from crawl2llm.chain.config_schema import schema_validator
from crawl2llm.core.settings import (
    Allowed,
    Auto,
    NonEmpty,
    Number,
    Settings,
    optional,
    schema_node,
    section,
    setting,
    type_node,
)


class Entry(Settings):
    name: str = setting(pattern="^[a-z]+$", form="small letters")
    weight: Number | None = optional("Its weight.", gt=0)
    kind: Literal["a", "b"] | None = optional()


class Inner(Settings):
    """An inner section."""

    depth: int = setting(3, "Depth.", ge=1, le=9, placement=True)


class Outer(Settings):
    """A section."""

    share: Number = setting(0.5, "Share.", source="Gopher", ge=0, le=1)
    size: int | Auto = setting("auto", "Size.", ge=8)
    stage: Literal[0, 1, 2] = setting(1, "Stage.")
    path: NonEmpty | None = setting(None, "Path.", file=True, unless_default=True)
    names: list[NonEmpty] = setting(["x"], "Names.", min_length=1, unique=True)
    entries: list[Entry] = setting([{"name": "a"}], "Entries.")
    limits: dict[Annotated[str, Allowed(pattern="^[a-z]{2}$", form="codes")], Number] = setting({}, "Limits.")
    size_text: str | int | None = setting(None, "A size.", pattern="^[0-9]+M$", form="a number, or one with M", ge=1000)
    inner: Inner = section()
    from_: str = setting("base", "Parent.", alias="from")


ACCEPTED: list[dict[str, Any]] = [
    {"share": 0},
    {"share": 1.0},
    {"size": 8},
    {"size": "auto"},
    {"stage": 2},
    {"path": None},
    {"entries": []},
    {"entries": [{"name": "b", "weight": 2, "kind": "b"}]},
    {"limits": {"de": 1}},
    {"size_text": "125M"},
    {"size_text": 1000},
    {"inner": {"depth": 9}},
    {"from": "sft"},
]
REFUSED: list[dict[str, Any]] = [
    {"share": -0.1},
    {"share": 1.1},
    {"share": True},
    {"share": "0.5"},
    {"share": float("nan")},
    {"size": 7},
    {"size": 8.0},
    {"size": "atuo"},
    {"stage": True},
    {"stage": 1.0},
    {"stage": 3},
    {"path": ""},
    {"names": []},
    {"names": ["a", "a"]},
    {"names": [""]},
    {"entries": [{}]},
    {"entries": [{"name": "B"}]},
    {"entries": [{"name": "b", "weight": None}]},
    {"entries": [{"name": "b", "kind": None}]},
    {"entries": [{"name": "b", "more": 1}]},
    {"limits": {"deu": 1}},
    {"limits": {"de": "1"}},
    {"size_text": "125"},
    {"size_text": 999},
    {"inner": None},
    {"inner": {"depth": 10}},
    {"from_": "sft"},
    {"unknown": 1},
]


@pytest.mark.parametrize("given", ACCEPTED, ids=str)
def test_it_takes_what_its_schema_takes(given: dict[str, Any]) -> None:
    Outer.model_validate(given)
    assert schema_validator(schema_node(Outer)).is_valid(given)


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_it_refuses_what_its_schema_refuses(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Outer.model_validate(given)
    assert not schema_validator(schema_node(Outer)).is_valid(given)


def test_a_number_stays_as_it_is_written() -> None:
    """The canonical JSON of 4.0 is another than that of 4."""
    settings = Outer.model_validate({"share": 1, "limits": {"de": 4}})
    assert repr((settings.share, settings.limits["de"])) == "(1, 4)"
    assert repr(settings.model_dump()["share"]) == "1"


def test_entries_of_a_default_are_objects_and_nobody_elses() -> None:
    first, second = Outer(), Outer()
    assert isinstance(first.entries[0], Entry) and first.entries[0].weight is None
    first.names.append("y")
    assert second.names == ["x"] and Outer().names == ["x"]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Outer().share = 0.1  # type: ignore[misc]


def test_a_default_that_is_out_of_range_in_an_entry_is_refused() -> None:
    class Wrong(Settings):
        entries: list[Entry] = setting([{"name": "B"}], "Entries.")

    with pytest.raises(ValidationError):
        Wrong()


def test_a_section_as_json_schema() -> None:
    node = schema_node(Outer)
    assert (node["type"], node["additionalProperties"], node["description"]) == ("object", False, "A section.")
    keys = node["properties"]
    assert keys["share"] == {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": 0.5,
        "description": "Share (Gopher).",
    }
    assert keys["size"] == {
        "type": ["integer", "string"],
        "pattern": "^auto$",
        "minimum": 8,
        "default": "auto",
        "description": "Size.",
    }
    assert keys["stage"] == {"type": "integer", "enum": [0, 1, 2], "default": 1, "description": "Stage."}
    assert (keys["path"]["file"], keys["path"]["tracked"]) == (True, "unless default")
    assert keys["inner"]["properties"]["depth"]["placement"] is True and "default" not in keys["inner"]
    entry = keys["entries"]["items"]
    assert entry["required"] == ["name"] and "default" not in entry["properties"]["weight"]
    assert entry["properties"]["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert keys["limits"]["propertyNames"] == {"pattern": "^[a-z]{2}$", "form": "codes"}
    assert "from" in keys and "from_" not in keys


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        (Literal["decay"], {"type": "string", "pattern": "^decay$"}),
        (Literal["a", "b"] | None, {"type": ["string", "null"], "enum": [None, "a", "b"]}),
        (dict[str, Any], {"type": "object"}),
        (list[Any] | Entry, {"anyOf": [{"type": "array"}, schema_node(Entry)]}),
        (Annotated[str, Allowed(choices=("a", "b"))], {"type": "string", "enum": ["a", "b"]}),
        (Annotated[dict[str, int], Allowed(min_length=1)],
         {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_type_as_json_schema(kind: Any, node: dict[str, Any]) -> None:
    assert type_node(kind) == node
