"""Placement keys as options of a command line: declared in the schema, read by the programs, written by the rules.

`placement: true` makes a key an option of its step's program, and `placement: launcher` one of the launcher that starts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from crawl2llm.chain import config_schema
from crawl2llm.core.nested_dicts import lookup

PROGRAM, LAUNCHER = True, "launcher"  # values of `placement` in the schema
NULL = "null"


def of(step: str, whose: bool | str = PROGRAM) -> dict[str, dict[str, Any]]:
    """The placement keys of a step, with their nodes of the schema. whose: PROGRAM or LAUNCHER."""
    found = ((path, node) for path, node in config_schema.leaves() if path.startswith(f"{step}."))
    return {path.removeprefix(f"{step}."): node for path, node in found if node.get("placement", False) == whose}


def flag(key: str) -> str:
    """`checkpoint_every` → `--checkpoint-every`, `parallel.tensor` → `--parallel-tensor`."""
    return f"--{name(key).replace('_', '-')}"


def name(key: str) -> str:
    """The attribute that argparse gives the value of a key: `parallel.tensor` → `parallel_tensor`."""
    return key.replace(".", "_")


def given(args: argparse.Namespace, step: str, whose: bool | str = PROGRAM) -> dict[str, Any]:
    """The placement keys of a step as parsed, in sections as the config has them."""
    found: dict[str, Any] = {}
    for key in of(step, whose):
        *path, last = key.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = getattr(args, name(key))
    return found


def word(value: Any) -> str:
    """A value as a command line has it: booleans and null as YAML writes them."""
    if value is None:
        return NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(step: str, section: dict[str, Any], whose: bool | str = PROGRAM) -> list[str]:
    """The options of a step's program, or of its launcher, that say what the step's section of the config says."""
    return [f"{flag(key)}={word(lookup(section, key))}" for key in of(step, whose)]


def boolean(text: str) -> bool:
    """`true` or `false`, and nothing else: bool("false") would be true."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def reader(node: dict[str, Any]) -> Callable[[str], Any]:
    """What makes a value of an option's text, by the key's node of the schema; text where it names no other type."""
    kinds: dict[str, Callable[[str], Any]] = {"boolean": boolean, "integer": int, "number": float}
    found = node.get("type", "")
    if not isinstance(found, list):
        return kinds.get(found, str)
    (other,) = (name for name in found if name != NULL)  # a key that may be null

    def read(text: str) -> Any:
        return None if text == NULL else kinds.get(other, str)(text)

    read.__name__ = other  # which argparse names where a text is none
    return read
