"""lines: RefinedWeb's line-wise corrections, off by default."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.filters.lines import corrections, rules
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.formats.spans import EditedText

OFF: dict[str, Any] = {"words_min": 0, "policy": False, "javascript": False}
RULES: dict[str, Any] = {"uppercase_max": 0.5, "numerals": True, "counters": True, "navigation": True}
DEFAULT, ON = ScoreSettings(**OFF), ScoreSettings(**OFF, **RULES)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("3 likes", "counters"),
        ("1.2K views · 14 comments", "counters"),
        ("Comments (12)", "counters"),
        ("12 likes are what this page got.", None),
        ("There were 3 comments", None),
        ("2026", "numerals"),
        ("12 / 30 – 45", "numerals"),
        ("12 a", None),
        ("***", None),
        ("BREAKING NEWS", "uppercase"),
        ("The BBC and the NHS", None),
        ("BBC a", "uppercase"),
        ("新闻", None),
        ("Home | Sign in | Register", "navigation"),
        ("HOME", "uppercase"),
        ("Sign-in", "navigation"),
        ("Read more...", "navigation"),
        ("0 items in cart", "navigation"),
        ("Home is where the heart is.", None),
        ("I would like to read more", None),
        ("The mayor has resigned. Read more »", None),
    ],
)
def test_a_line(line: str, rule: str | None) -> None:
    assert rules.rule_removing(line, ON) == rule
    assert rules.rule_removing(line, DEFAULT) is None


@given(st.text(st.sampled_from("12.,\u00a0 KMmb+:()s\u0661_é"), max_size=4) | st.just(""), st.data())
def test_counters_are_those_of_an_expression_that_backtracks(first: str, data: st.DataObject) -> None:
    """Of RE2's classes the ASCII ones are replaced by those of `re`."""
    number = r"\d[\d.,\u00a0\u202f]*\s?(?:[KMB]|mio|mill?)?\+?"
    count = rf"(?:{number}\s*(?:{corrections._COUNTED})|(?:{corrections._COUNTED})\s?[:(]\s?{number}\)?)"
    slow = re.compile(rf"[\W_]*{count}(?:[\W_]+{count})*[\W_]*", re.IGNORECASE)
    part = st.sampled_from(
        ["1", " like", "likes: ", "1.2K views", ".", ", ", "\u00a0", "_", "Comments (3)", "m", " members", "x"]
    )
    line = first + "".join(data.draw(st.lists(part, max_size=6)))
    assert corrections.is_counter(line) == (slow.fullmatch(line) is not None)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The mayor has resigned. Read more...\nNext line.", "The mayor has resigned.\nNext line."),
        ("  Home > The city's new mayor\n", "  The city's new mayor\n"),
        ("You have 3 items in your cart now", "You have  now"),
        ("Some news, continue reading →", "Some news, "),
        ("A fact.[1] Read more", "A fact."),
        ("Read more about the mayor of the city.", "Read more about the mayor of the city."),
        ("Home | " + "a line of more than ten words is no navigation at all here", None),
        ("Home | News\nText that stays.\n4 likes", "News\nText that stays."),
    ],
)
def test_what_is_cut_from_a_line(text: str, left: str | None) -> None:
    found = list(rules.removed_spans(text, ON))
    assert EditedText(text, found).text == (text if left is None else left)
    assert list(rules.removed_spans(text.replace("[1]", ""), DEFAULT)) == []


def test_the_share_of_flagged_words() -> None:
    def flagged(text: str, **settings: Any) -> float:
        return rules.flagged_share(text, list(rules.removed_spans(text, ScoreSettings(**{**OFF, **RULES, **settings}))))

    assert flagged("One two three.\n4 likes") == 2 / 5 == flagged("One two three.\n4 likes\n")
    assert flagged("One two three. Read more...\nFour five.") == 5 / 7
    assert flagged("One two.[1]\nThree.") == 0 == flagged("")
    assert flagged("4 likes\n\nOne two three.\n\n5 likes", counters=False) == 0


PIECE = st.sampled_from(
    ["Home", " | ", "Read more", "...", "3 likes", "[1]", "\n", " ", "Some words. ", "items in cart", "A", "»"]
)


@given(st.lists(PIECE, max_size=14).map("".join))
def test_spans_are_in_order_and_do_not_overlap(text: str) -> None:
    found = list(rules.removed_spans(text, ON))
    ends = [0, *(span.end for span in found)]
    assert all(span.start >= end for span, end in zip(found, ends, strict=False))
    assert 0 <= rules.flagged_share(text, found) <= 1
    lines = text.split("\n")
    stay = [line for line in lines if rules.rule_removing(line, ON) is None and any(map(str.isalpha, line))]
    assert len(stay) <= len([line for line in EditedText(text, found).text.split("\n") if line.strip()]) <= len(lines)
