"""What a filter gives as examples of its rules, in its `examples.py`, which no program imports: an edit of them reruns nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Examples:
    """Documents as rows of the filter's signals; what a row lacks was not measured.

    passes: a document that no rule drops. drops: (rule, what differs of a document that this rule drops, and no other); each of several
    rules with one name has an example. settings: of the filter's `select`, so that all rules are on.
    """

    passes: Row
    drops: Sequence[tuple[str, Row]]
    settings: Row
