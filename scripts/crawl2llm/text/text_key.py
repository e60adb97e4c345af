"""When two questions or answers count as the same."""

from __future__ import annotations


def text_key(text: str) -> str:
    """What two texts must share to be the same: letters' case and white space do not count."""
    return " ".join(text.casefold().split())
