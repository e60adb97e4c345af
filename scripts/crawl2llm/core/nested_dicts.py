"""Nested mappings, as YAML gives them: a value by its dotted path, and one mapping laid over another."""

from __future__ import annotations

from typing import Any


def lookup(tree: dict[str, Any], path: str) -> Any:
    """The value at a dotted path; KeyError names the whole path."""
    node: Any = tree
    for part in path.split("."):
        if not isinstance(node, dict) or part not in node:
            raise KeyError(path)
        node = node[part]
    return node


def has_path(tree: dict[str, Any], path: str) -> bool:
    """Whether there is a value at a dotted path."""
    try:
        lookup(tree, path)
    except KeyError:
        return False
    return True


def merge_dicts(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` laid over it: mappings merge key by key, anything else is replaced."""
    out = dict(base)
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge_dicts(out[key], value)
        else:
            out[key] = value
    return out


def nest_value(path: str, value: Any) -> dict[str, Any]:
    """A tree that holds one value, at a dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def flatten(section: dict[str, Any], path: str = "") -> dict[str, Any]:
    """A section's leaves by dotted key; a list is a leaf, and an empty mapping too."""
    out: dict[str, Any] = {}
    for key, value in section.items():
        dotted = f"{path}.{key}" if path else str(key)
        out |= flatten(value, dotted) if isinstance(value, dict) and value else {dotted: value}
    return out
