"""Placement keys as options of a command line: declared in each `settings.py`, read by the programs, written by the rules.

`placement=True` makes a key an option of its step's program, and `placement="launcher"` one of the launcher that starts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from crawl2llm.chain import config_schema
from crawl2llm.core.nested_dicts import lookup

PROGRAM, LAUNCHER = True, "launcher"  # values of `placement` in the schema
NULL = "null"


def placement_keys(step: str, target: bool | str = PROGRAM) -> dict[str, dict[str, Any]]:
    """The placement keys of a step, with their nodes of the schema. target: PROGRAM or LAUNCHER."""
    leaves = config_schema.schema_leaves(config_schema.schema_section(step))
    return {path: node for path, node in leaves if node.get("placement", False) == target}


def option_flag(key: str) -> str:
    """`checkpoint_every` → `--checkpoint-every`, `parallel.tensor` → `--parallel-tensor`."""
    return f"--{attribute_name(key).replace('_', '-')}"


def attribute_name(key: str) -> str:
    """The attribute that argparse gives the value of a key: `parallel.tensor` → `parallel_tensor`."""
    return key.replace(".", "_")


def option_text(value: Any) -> str:
    """A value as a command line has it: booleans and null as YAML writes them."""
    if value is None:
        return NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def option_words(step: str, section: dict[str, Any], target: bool | str = PROGRAM) -> list[str]:
    """The options of a step's program, or of its launcher, that say what the step's section of the config says."""
    return [f"{option_flag(key)}={option_text(lookup(section, key))}" for key in placement_keys(step, target)]


def parse_boolean(text: str) -> bool:
    """`true` or `false`, and nothing else: bool("false") would be true."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def value_parser(node: dict[str, Any]) -> Callable[[str], Any]:
    """What makes a value of an option's text, by the key's node of the schema; text where it names no other type."""
    kinds: dict[str, Callable[[str], Any]] = {"boolean": parse_boolean, "integer": int, "number": float}
    declared_type = node.get("type", "")
    if not isinstance(declared_type, list):
        return kinds.get(declared_type, str)
    (type_name,) = (name for name in declared_type if name != NULL)  # a key that may be null

    def parse_or_null(text: str) -> Any:
        return None if text == NULL else kinds.get(type_name, str)(text)

    parse_or_null.__name__ = type_name  # which argparse names where a text is none
    return parse_or_null
