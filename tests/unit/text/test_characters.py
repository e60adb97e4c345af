"""Tokens, sentences and terminal marks in many scripts."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.text.characters import SENTENCE_END, SYMBOLS, TERMINAL, is_symbol, tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't stop, e.g. now.", ["Don't", "stop", ",", "e.g", ".", "now", "."]),
        ("10,000 a,b well-known", ["10,000", "a", ",", "b", "well", "-", "known"]),
        ("snake_case example.org ... -----", ["snake_case", "example.org", "...", "-----"]),
        ("हिन्दी में।", ["हिन्दी", "में", "।"]),
        ("我们用GPU训练。", ["我", "们", "用", "GPU", "训", "练", "。"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("سلام؟ می‌خواهم", ["سلام", "؟", "می‌خواهم"]),
        ("צה״ל l’eau col·legi", ["צה״ל", "l’eau", "col·legi"]),
        ("한국어를 배운다", ["한국어를", "배운다"]),
        ("ok 😀😀", ["ok", "😀", "😀"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@given(st.text())
def test_tokens_hold_all_but_white_space(text: str) -> None:
    assert "".join(tokenize(text)) == "".join(text.split())


def test_symbols() -> None:
    assert all(map(is_symbol, [",", "…", "—", "。", "#", "😀", "\u200b"]))
    assert not any(map(is_symbol, ["a", "1", "é", "字", "ี", "ж"]))
    assert not SYMBOLS & {"a", "5", "_a", " "}


def test_terminal_marks_are_unicodes() -> None:
    everything = "".join(chr(point) for point in range(0x20000) if not 0xD800 <= point < 0xE000)
    unicode_marks = set(regex.findall(r"\p{Sentence_Terminal}", everything))
    assert unicode_marks >= TERMINAL
    assert set(".!?。！？؟।።") <= TERMINAL


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("One. Two! Three?", 2),
        ("He said “yes.” She left", 1),
        ("It costs 3.14 at e.g. shops", 0),
        ("第一句。第二句！第三句。", 2),
        ("पहला वाक्य। दूसरा वाक्य।", 1),
        ("One... and two", 0),
    ],
)
def test_sentence_ends_inside_a_line(text: str, inside: int) -> None:
    assert len(SENTENCE_END.findall(text)) == inside
