"""What settings are declared with: a class for each section of the config, an attribute for each key.

    class SelectSettings(Settings):
        \"""Keeps the documents of the languages that are wanted.\"""

        threshold: Number = setting(0.65, "Least probability of the language.", source="FineWeb", ge=0, le=1)
        workers: int = setting(2, "Processes that score texts.", ge=1, placement=True)

The attribute's type is the key's type; `setting` gives the default, the meaning, the range, and whether the key decides bytes. The
JSON schema of a section is made from its class (`schema_node`), and from that the errors, the defaults and the tables of keys in docs/.
An edit of a `settings.py` reruns nothing by itself: the values are in the fingerprint. So no class has methods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class Settings(BaseModel):
    """A section of the config, or an object in a list of it. Unknown keys are refused, and no value is changed to fit its type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True)


# By type, the keywords of JSON Schema:
LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Allowed:
    """What a value keeps to beside its type; for an item of a list or a map, in `Annotated[type, Allowed(…)]`.

    ge, gt, le, lt: bounds of numbers. min_length, max_length: of a text in characters, of a list or map in entries. pattern: a regular
    expression, found anywhere in a text; form: in words what the pattern, or the type, allows. unique: no entry of a list twice.
    choices: the values, if they are not known before the program runs. null: whether None is a value, and does not say "absent".
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    form: str | None = None
    unique: bool = False
    choices: Sequence[str] | None = None
    null: bool = True

    def keywords(self, types: list[str]) -> dict[str, Any]:
        """The same as keywords of JSON Schema, and `form`. types: those of the value."""
        least, most = next((LENGTHS[name] for name in types if name in LENGTHS), ("", ""))
        words = {
            "minimum": self.ge,
            "exclusiveMinimum": self.gt,
            "maximum": self.le,
            "exclusiveMaximum": self.lt,
            least: self.min_length,
            most: self.max_length,
            "pattern": self.pattern,
            "form": self.form,
            "uniqueItems": self.unique or None,
            "enum": None if self.choices is None else list(self.choices),
        }
        return {word: value for word, value in words.items() if value is not None}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if self.keywords(["string"]):  # a bound of any kind
            schema = core_schema.no_info_after_validator_function(self._check, schema)
        if not self.null:
            schema = core_schema.no_info_before_validator_function(_refuse_null, schema)
        if any(isinstance(value, int) for value in _literals(source)):
            schema = core_schema.no_info_before_validator_function(_refuse_like_integers, schema)
        return schema

    def _check(self, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_number(value)
        elif isinstance(value, str | list | dict):
            self._check_length(value)
        return value

    def _check_number(self, value: float) -> None:
        below = (self.ge is not None and value < self.ge) or (self.gt is not None and value <= self.gt)
        above = (self.le is not None and value > self.le) or (self.lt is not None and value >= self.lt)
        if below or above:
            raise PydanticCustomError("range", "out of range")

    def _check_length(self, value: str | list[Any] | dict[str, Any]) -> None:
        if self.min_length is not None and len(value) < self.min_length:
            raise PydanticCustomError("length", "shorter than {length}", {"length": self.min_length})
        if self.max_length is not None and len(value) > self.max_length:
            raise PydanticCustomError("length", "longer than {length}", {"length": self.max_length})
        if isinstance(value, str) and self.pattern is not None and not re.search(self.pattern, value):
            raise PydanticCustomError("form", "allowed: {form}", {"form": self.form or self.pattern})
        if isinstance(value, str) and self.choices is not None and value not in self.choices:
            raise PydanticCustomError("choices", "allowed: {choices}", {"choices": self.choices})
        if self.unique and any(entry in value[:number] for number, entry in enumerate(value)):  # type: ignore[index]
            raise PydanticCustomError("unique", "has an entry twice")


def _refuse_null(value: Any) -> Any:
    if value is None:  # of a key that is left out to say so
        raise PydanticCustomError("null", "is null")
    return value


def _refuse_like_integers(value: Any) -> Any:
    if isinstance(value, float | bool):  # pydantic takes True and 1.0 for a literal 1
        raise PydanticCustomError("integer", "is no integer")
    return value


class _AsWritten:
    """A number as it was written: 4 stays 4, since the canonical JSON of 4.0 is another."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = self._replace_float(handler(source))
        return schema

    def _replace_float(self, schema: Any) -> Any:
        """The schema with integers beside floats, inside the functions of `Allowed`, which pydantic may put around the float first."""
        if schema["type"] != "float":
            return {**schema, "schema": self._replace_float(schema["schema"])}
        whole, other = core_schema.int_schema(strict=True), core_schema.float_schema(strict=True, allow_inf_nan=False)
        return core_schema.union_schema([whole, other], mode="left_to_right")


Number = Annotated[float, _AsWritten()]  # with or without a point
Commit = Annotated[str, Allowed(pattern="^[0-9a-f]{40}$", form="a commit, 40 hexadecimal digits")]
Auto = Literal["auto"]  # in a union: the step decides by the corpus
AUTO: Auto = "auto"
NonEmpty = Annotated[str, Allowed(min_length=1)]


def setting(
    default: Any = ...,
    about: str | None = None,
    *,
    source: str | None = None,
    alias: str | None = None,
    placement: bool | Literal["launcher", "tasks"] = False,
    file: bool | Literal["yaml", "manifests", "function"] = False,
    pinned: bool = False,
    secret: bool = False,
    formerly: str | None = None,
    unless_default: bool = False,
    **allowed: Any,
) -> Any:
    """A key: its default (none: an entry has to give it) and its meaning in a sentence. allowed: the arguments of `Allowed`.

    source: of the default, or of the rule that it is a threshold of: a paper with its section, or a tool's file.
    alias: its name in the config, for one that Python does not take. placement: it says how a step runs and decides no byte; an option of
    the step's program, or of the `launcher` that starts it, or of what makes its `tasks`. file: it names a file, or a folder of files,
    whose content is tracked; `yaml` files that name more; of a folder of `manifests` these alone; the file of a `function`.
    pinned: a path may have a digest behind it (core/pinned_names.py). secret: no error shows its value. formerly: its name before.
    unless_default: it is younger than its step, and with its default it counts as not there, so that older results hold.
    """
    field: FieldInfo = Field(
        default,
        description=about if about is None or source is None else f"{about.removesuffix('.')} ({source}).",
        alias=alias,
        validate_default=isinstance(default, list | dict) or None,  # entries of it become objects
        json_schema_extra=_marks(
            placement=placement,
            file=file,
            pinned=pinned,
            secret=secret,
            formerly=formerly,
            tracked="unless default" if unless_default else None,
        ),
    )
    field.metadata.append(Allowed(**allowed))  # pydantic would ask its own bounds of the text of `int | Auto`, too
    return field


def optional(about: str | None = None, *, alias: str | None = None, **more: Any) -> Any:
    """A key of an entry that may be left out, and is None then; null is no value of it. more: as of `setting`."""
    return setting(None, about, alias=alias, null=False, **more)


def section(*, alias: str | None = None, placement: bool = False, unless_default: bool = False) -> Any:
    """A key that holds a section, all of whose keys have defaults. Its alias is that of `setting`, its marks too, if all of its keys have
    them.
    """
    marks = _marks(placement=placement, tracked="unless default" if unless_default else None)
    return Field(default_factory=dict, validate_default=True, alias=alias, json_schema_extra=marks)


def _marks(**marks: Any) -> dict[str, Any] | None:
    return {name: value for name, value in marks.items() if value} or None


def _literals(kind: Any) -> list[Any]:
    """The values of a type that is a Literal, or a union with one."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (Union, UnionType, Annotated):
        return [value for part in get_args(kind) for value in _literals(part)]
    return []


TYPE_NAMES = {int: "integer", str: "string", bool: "boolean", NoneType: "null", float: "number"}


def schema_node(model: type[Settings]) -> dict[str, Any]:
    """A section, or an entry, as JSON Schema 2020-12, with the marks of `setting` beside its keywords."""
    node: dict[str, Any] = {"type": "object"}
    if model.__doc__:
        node["description"] = " ".join(model.__doc__.split())
    if model.model_config.get("extra") == "forbid":
        node["additionalProperties"] = False
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    if required:
        node["required"] = required
    node["properties"] = {field.alias or name: _key_node(field) for name, field in model.model_fields.items()}
    return node


def _key_node(field: FieldInfo) -> dict[str, Any]:
    node = _with_allowed(type_node(field.annotation), field.metadata)
    absent = any(isinstance(mark, Allowed) and not mark.null for mark in field.metadata)
    if absent:
        node["type"] = _only([name for name in _types(node) if name != "null"])
        node |= {"enum": [value for value in node["enum"] if value is not None]} if "enum" in node else {}
    elif field.default_factory is None and not field.is_required():
        node["default"] = field.default
    marks = field.json_schema_extra
    node |= marks if isinstance(marks, dict) else {}
    if field.description:
        node["description"] = field.description
    return node


def type_node(kind: Any) -> dict[str, Any]:
    """A type as JSON Schema."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin is Annotated:
        return _with_allowed(type_node(parts[0]), parts[1:])
    if origin in (Union, UnionType):
        return _union_node([type_node(part) for part in parts])
    if origin is Literal:
        if len(parts) == 1:
            return {"type": "string", "pattern": f"^{parts[0]}$"}
        return {"type": TYPE_NAMES[type(parts[0])], "enum": list(parts)}
    if origin is list:
        return {"type": "array", **_if_any("items", type_node(parts[0]))}
    if origin is dict:
        keys = {word: value for word, value in type_node(parts[0]).items() if word != "type"}
        return {
            "type": "object",
            **_if_any("propertyNames", keys),
            **_if_any("additionalProperties", type_node(parts[1])),
        }
    return schema_node(kind) if issubclass(kind, Settings) else {"type": TYPE_NAMES[kind]}


def _union_node(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """A union as one node with several types; as `anyOf` if two of them are lists or objects."""
    if sum(node.get("type") in ("array", "object") for node in nodes) > 1:
        return {"anyOf": nodes}
    union: dict[str, Any] = {}
    for node in nodes:
        union |= node
    union["type"] = _only([name for node in nodes for name in _types(node)])
    if "enum" in union and "null" in union["type"]:
        union["enum"] = [None, *union["enum"]]
    return union


def _with_allowed(node: dict[str, Any], marks: Any) -> dict[str, Any]:
    for mark in marks:
        if isinstance(mark, Allowed):
            node |= mark.keywords(_types(node))
    return node


def _types(node: dict[str, Any]) -> list[str]:
    types = node.get("type", [])
    return [types] if isinstance(types, str) else types


def _only(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _if_any(word: str, node: dict[str, Any]) -> dict[str, Any]:
    return {word: node} if node else {}
