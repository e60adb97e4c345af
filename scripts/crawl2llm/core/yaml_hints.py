"""What YAML 1.1 makes of a scalar that its writer meant otherwise, as a hint for an error message.

`1e-4` is text to it, `no` is False, `0123` is 83, `12:30` is 750 and `2024-01-31` a date.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

import yaml


def number_literal(text: str) -> str | None:
    """How to write, without quotes, the number that `text` spells, so that YAML reads that very number.

    None if it spells no finite number. YAML 1.1 wants a point in front of an exponent, and a sign in it.
    """
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    whole = str(int(number)) if number.is_integer() and abs(number) < 1e15 else ""
    for candidate in (text.strip(), whole, _with_point(text.strip().lower()), _with_point(repr(number))):
        try:
            value = yaml.safe_load(candidate)
        except (yaml.YAMLError, ValueError):
            continue
        if isinstance(value, int | float) and not isinstance(value, bool) and value == number:
            return candidate
    return None


def _with_point(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    exponent = exponent if exponent.startswith(("+", "-")) else f"+{exponent or 0}"
    return f"{mantissa}{'' if '.' in mantissa else '.0'}e{exponent}"


def value_hint(value: Any, kinds: list[str]) -> str:
    """A hint on a value that is refused, for a key that takes `kinds` (JSON Schema types); empty if there is none."""
    if isinstance(value, str):
        number = number_literal(value) if {"integer", "number"} & set(kinds) else None
        if number is None:
            return ""
        if number == value.strip():
            return f"; {value!r} is text because of its quotes, write {number}"
        return f"; YAML reads {value} as text, write {number}"
    return not_text_hint(value) if "string" in kinds else ""


def not_text_hint(value: Any) -> str:
    """A hint on a value that is not text where text is wanted."""
    if isinstance(value, bool):
        words, first = ("yes, on or true", "yes") if value else ("no, off or false", "no")
        return f"; YAML reads an unquoted {words} as {value}: quote it, {first!r}"
    if isinstance(value, datetime.date):
        return f"; YAML reads {value} as a date: quote it, {str(value)!r}"
    if isinstance(value, int | float):
        return "; YAML reads it as a number (0123 is octal, 12:30 is base 60): put it in quotes as it is in the file"
    return ""
