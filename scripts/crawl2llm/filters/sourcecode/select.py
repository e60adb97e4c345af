"""Drop source files that nobody wrote to be read; those of curated sources and of sources that skip this filter stay, and what is no code.

Rules: `lines_max`, `longest_line_max`, `mean_line_max`, `alphanumeric_min`, `alphabetic_min`, `encoded_run_max`, `encoded_share_max`, and
two that compare no number: `generated` (the head says that a program wrote it) and `licence` (the SPDX header names one that is not
allowed).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.columns import Columns, Truths
from crawl2llm.filters.framework.rules import Match, Rule, Rules
from crawl2llm.filters.sourcecode.settings import SelectSettings

TOKEN = re.compile(r"[()]|\b(?:AND|OR|WITH)\b|[^\s()]+", re.IGNORECASE)


def is_permitted(expression: str, licences: Collection[str]) -> bool:
    """Whether an SPDX expression allows a use under listed licences: of `A OR B` one is enough, of `A AND B` both are needed.

    Brackets count, and without them AND binds before OR (SPDX 2.3, annex D). `A WITH B` is a name of its own. What is no expression
    allows nothing.
    """
    allowed_names = {" ".join(name.lower().split()) for name in licences}
    tokens = [*TOKEN.findall(expression.lower()), ""]

    def parse_or() -> bool:
        is_allowed = parse_and()
        while tokens[0] == "or":
            tokens.pop(0)
            is_allowed |= parse_and()
        return is_allowed

    def parse_and() -> bool:
        is_allowed = parse_licence()
        while tokens[0] == "and":
            tokens.pop(0)
            is_allowed &= parse_licence()
        return is_allowed

    def parse_licence() -> bool:
        name = tokens.pop(0)
        if name == "(":
            is_allowed = parse_or()
            if tokens.pop(0) != ")":
                raise ValueError
            return is_allowed
        if name in ("", ")", "and", "or", "with"):
            raise ValueError
        if tokens[0] == "with":
            tokens.pop(0)
            name = f"{name} with {tokens.pop(0)}"
        return name in allowed_names

    try:
        return parse_or() and tokens == [""]
    except (ValueError, IndexError):
        return False


def is_code(columns: Columns) -> Truths:
    """Which documents are source files."""
    return columns.has_value("extension")


def is_data(columns: Columns) -> Truths:
    """Which of them are in a language of long lines."""
    return is_code(columns) & columns.truth_values("data")


def is_program(columns: Columns) -> Truths:
    """Which of them are not."""
    return is_code(columns) & ~is_data(columns)


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `sourcecode.select`, in the order in which the first that fails gives the reason."""

    def find_phrase(phrase: str | None) -> str | None:
        return phrase if settings.generated else None

    def find_licence(expression: str | None) -> str | None:
        return (
            expression if settings.licences and expression and not is_permitted(expression, settings.licences) else None
        )

    return [
        Rule("lines_max", "lines", ">", "lines_max", when=is_code),
        Rule("longest_line_max", "longest_line", ">", "longest_line_max", when=is_program),
        Rule("longest_line_max", "longest_line", ">", "data_longest_line_max", when=is_data),
        Rule("mean_line_max", "mean_line", ">", "mean_line_max", when=is_program),
        Rule("alphanumeric_min", "alphanumeric", "<", "alphanumeric_min", when=is_code),
        Rule("alphabetic_min", "alphabetic", "<", "alphabetic_min", when=is_code),
        Rule("encoded_run_max", "encoded_run", ">", "encoded_run_max", when=is_code),
        Rule("encoded_share_max", "encoded_share", ">", "encoded_share_max", when=is_code),
        Match("generated", "generated", find_phrase, when=is_code),
        Match("licence", "spdx", find_licence, when=is_code),
    ]


main = select.program("sourcecode.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
