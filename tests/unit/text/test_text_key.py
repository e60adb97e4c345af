"""Texts that count as the same."""

from __future__ import annotations

from crawl2llm.text.text_key import text_key


def test_case_and_white_space_do_not_count() -> None:
    assert text_key(" Weiß  die\tKUH?\n") == text_key("weiss die kuh?")
    assert text_key("weiss die kuh") != text_key("weiss die kuh?")
    assert text_key(" \n") == ""
