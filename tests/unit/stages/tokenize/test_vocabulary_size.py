"""The vocabulary that `auto` stands for."""

from __future__ import annotations

import pytest

from crawl2llm.training.vocabulary_size import vocabulary_entries


@pytest.mark.parametrize(
    ("size", "found"),
    [(1, 1024), (1_999_999, 1024), (2_000_000, 2048), (80_000_000, 4096), (10**9, 8192), (10**13, 32768)],
)
def test_auto_grows_with_the_corpus(size: int, found: int) -> None:
    assert vocabulary_entries("auto", size) == found


def test_a_number_stays() -> None:
    assert vocabulary_entries(601, 10**9) == 601
