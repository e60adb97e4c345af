"""freshness.replacement_text: what a run says before its first task."""

from __future__ import annotations

import pytest

from crawl2llm.chain.freshness import replacement_text

WHICH = "; `crawl2llm plan` says which and why"


@pytest.mark.parametrize(
    ("changed", "above", "total", "words"),
    [
        (0, 0, 22, ""),
        (1, 0, 1, f"1 of 1 task replaces results made with other settings or code{WHICH}"),
        (
            4,
            18,
            22,
            "4 of 22 tasks replace results made with other settings or code; 18 more only read what other tasks make anew: each ends "
            f"at once, and keeps its result, if what it reads comes out as before{WHICH}",
        ),
        (
            0,
            1,
            3,
            "1 of 3 tasks only reads what other tasks make anew: each ends at once, and keeps its result, "
            f"if what it reads comes out as before{WHICH}",
        ),
    ],
)
def test_tasks_that_may_end_at_once_do_not_count_as_replacing(changed: int, above: int, total: int, words: str) -> None:
    assert replacement_text(changed, above, total) == words
