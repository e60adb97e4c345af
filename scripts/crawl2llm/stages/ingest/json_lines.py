"""Parses a line of JSON Lines, with as little lost as the rest of the line allows: one bad value does not cost the others."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

SPACE = re.compile(r"[ \t\n\r]*")
# What decides where a nested value ends. A string without an end goes on to the text's, so that time is in proportion to it.
TOKEN = re.compile(r'"(?:[^"\\]++|\\.|\\\Z)*+(?:"|\Z)|[\[{]+|[\]}]+', re.DOTALL)
ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of a byte that is no UTF-8


REPLACEMENT = "\ufffd"
UNREADABLE_VALUE = object()  # stands for a value that cannot be read, until it is None


def _parse_integer(digits: str) -> Any:
    """An integer; UNREADABLE_VALUE for one with more digits than Python converts (sys.get_int_max_str_digits)."""
    try:
        return int(digits)
    except ValueError:
        return UNREADABLE_VALUE


DECODER = json.JSONDecoder(strict=False, parse_int=_parse_integer)


def parse(line: bytes) -> tuple[Any, frozenset[str]]:
    """(what the line holds, the keys of its object whose values cannot be read, None there; `meta.url` for one within another).

    Such are strings with bytes that are no UTF-8, integers of thousands of digits, and values within more others than Python nests.
    Control characters within strings are taken as they are. Raises ValueError for a line that is no JSON.
    """
    try:
        return json.loads(line), frozenset()
    except (ValueError, RecursionError):
        return _parse_leniently(line)


def _parse_leniently(line: bytes) -> tuple[Any, frozenset[str]]:
    # Lone surrogates that the line writes as such stay; those of bad bytes show where they are.
    encoding = json.detect_encoding(line)
    text = line.decode(encoding, "surrogateescape" if encoding.startswith("utf-8") else "surrogatepass")
    at = _skip_space(text, 0)
    if text[at : at + 1] != "{":
        return json.loads(text, strict=False), frozenset()  # no object, so no document
    values: dict[str, Any] = {}
    lost: dict[str, list[str]] = {}  # of each key of the object, where in its value
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != "}":
        if values:
            if text[at : at + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _skip_space(text, at + 1)
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = scanstring(text, at + 1, False)
        at = _skip_space(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        start = _skip_space(text, at + 1)
        try:
            value, at = DECODER.raw_decode(text, start)
        except RecursionError:
            value, at = UNREADABLE_VALUE, _find_end(text, start)
        lost[key] = []
        values[key] = _readable_value(value, key, lost[key])
        at = _skip_space(text, at)
    if _skip_space(text, at + 1) != len(text):
        raise json.JSONDecodeError("Extra data", text, at + 1)
    return values, frozenset(path for paths in lost.values() for path in paths)


def _readable_value(value: Any, path: str, lost: list[str]) -> Any:
    """A value with None for what in it cannot be read, whose paths are added to `lost`: of a list with such, all of it."""
    try:
        return _drop_unreadable(value, path, lost)
    except RecursionError:
        lost[:] = [path]
        return None


def _drop_unreadable(value: Any, path: str, lost: list[str]) -> Any:
    if isinstance(value, dict):
        # The value of a name that cannot be read is lost with the name.
        lost += [f"{path}.{ESCAPED_BYTE.sub(REPLACEMENT, key)}" for key in value if ESCAPED_BYTE.search(key)]
        return {
            key: _drop_unreadable(inner, f"{path}.{key}", lost)
            for key, inner in value.items()
            if not ESCAPED_BYTE.search(key)
        }
    before = len(lost)
    if isinstance(value, list):
        readable = [_drop_unreadable(inner, path, lost) for inner in value]
        if len(lost) == before:
            return readable
    elif value is not UNREADABLE_VALUE and not (isinstance(value, str) and ESCAPED_BYTE.search(value)):
        return value
    lost[before:] = [path]
    return None


def _skip_space(text: str, at: int) -> int:
    """The next place that is no white space."""
    return SPACE.match(text, at).end()  # type: ignore[union-attr]


def _find_end(text: str, start: int) -> int:
    """Where a list or an object ends that begins at `start`, by its brackets alone. Raises JSONDecodeError if it does not end."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        if token[0][0] in "[{":
            depth += len(token[0])
        elif token[0][0] in "]}":
            depth -= len(token[0])
            if depth <= 0:
                return token.end() + depth
    raise json.JSONDecodeError("Expecting the end of a list or an object", text, start)
