"""The verdict on a document, from the rules that it fails: for every filter that judges documents one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class FailedRule(NamedTuple):
    """A rule that a document fails. value, threshold: None for a rule that compares no number; detail: what it found instead."""

    rule: str
    value: float | None = None
    threshold: float | None = None
    detail: str | None = None


def verdict_row(identifier: str, failed: Sequence[FailedRule], stays: bool = False) -> dict[str, Any]:
    """The row of VERDICT (formats/documents.py) on a document, which the first rule that it fails drops.

    stays: it is kept all the same, as is one of a curated source; its verdict still lists the rules.
    """
    first = failed[0] if failed and not stays else FailedRule("")
    return {
        "id": identifier,
        "kept": not first.rule,
        "rule": first.rule or None,
        "value": first.value,
        "threshold": first.threshold,
        "detail": first.detail,
        "rules": [decision.rule for decision in failed],
    }
