"""What of a list a setting leaves out, in words."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.stages.report.sweeps.tables import setting_changes, without_text

ALL = ["language", "heuristics", "dedup"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (ALL, ["language", "heuristics"], "without dedup"),
        (ALL, ["heuristics"], "without language, dedup"),
        ([{"name": "web", "kind": "warc"}, {"name": "books"}], [{"name": "books"}], "without web"),
        ([{"shares": 1}, {"shares": 2}], [{"shares": 1}], "without {shares: 2}"),
        # Two such changes could have the same words, and a setting would be taken for another.
        (ALL, [*ALL, "quality"], ""),
        (ALL, ["quality", *ALL], ""),
        (ALL, ["dedup", "language"], ""),
        ([{"name": "web", "paths": ["a"]}], [{"name": "web", "paths": ["b"]}], ""),
        (ALL, [], ""),
        (0.1, 0.2, ""),
        (None, ALL, ""),
    ],
)
def test_what_a_list_lacks(old: Any, new: Any, words: str) -> None:
    assert without_text(old, new) == words


def test_changes_of_a_setting() -> None:
    setting = {"changes": {"filters": (ALL, ALL[:2]), "rate": (0.1, 0.2), "order": (ALL, [])}}
    assert setting_changes(setting) == [
        ("filters", "without dedup"), ("rate", "0.1 → 0.2"), ("order", "[language, heuristics, dedup] → []"),
    ]  # fmt: skip
