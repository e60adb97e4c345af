"""The measures: bounds on any text, and known values on small ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.filters.heuristics.measures import MEASURES, Limits, measure_document
from crawl2llm.text.stop_words import stop_words_by_language

EN, ZH = stop_words_by_language({})["en"], stop_words_by_language({})["zh"]
LIMITS = Limits()
PIECES = [
    "the",
    "of",
    "word",
    "字",
    "ที่",
    "。",
    ".",
    "...",
    "…",
    "\n",
    "\n\n",
    " ",
    "- ",
    "#",
    "{",
    '"',
    "42",
    "javascript",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=80).map("".join)), st.booleans())
def test_bounds(text: str, switch: bool) -> None:
    found = measure_document(text, EN, Limits(terminal_punctuation=switch, punctuation_as_words=switch))
    assert list(sorted(found)) == sorted(MEASURES)
    for name, kind in MEASURES.items():
        value = found[name]
        if name == "gopher_quality_mean_word_length" and value is None:
            continue
        assert value >= 0
        assert kind != "share" or value <= 1, name
        assert isinstance(value, int if kind == "count" else float | int), name


@pytest.mark.parametrize("text", ["", " \n\n \n"])
def test_text_without_words(text: str) -> None:
    assert not any(measure_document(text, EN, LIMITS).values())


def test_one_line() -> None:
    found = measure_document("The end of it.", EN, LIMITS)
    assert found["gopher_quality_words"] == 4
    assert found["gopher_quality_mean_word_length"] == 10 / 4
    assert found["gopher_quality_stop_words"] == 2
    assert found["c4_sentences"] == 1
    assert found["fineweb_punctuated_lines"] == 1
    assert found["fineweb_short_lines"] == 1
    assert found["fineweb_newlines_per_word"] == 0
    assert found["gopher_repetition_duplicate_lines"] == 0


def test_lines_and_paragraphs() -> None:
    text = "- one two three\n- one two three\n\nfour five six...\n \nfour five six...\n"
    found = measure_document(text, EN, LIMITS)
    assert found["gopher_quality_bullet_lines"] == 2 / 4
    assert found["gopher_quality_ellipsis_lines"] == 2 / 4
    assert found["gopher_repetition_duplicate_lines"] == 2 / 4
    assert found["gopher_repetition_duplicate_line_characters"] == (15 + 16) / len(text)
    assert found["gopher_repetition_duplicate_paragraphs"] == 1 / 3
    assert found["gopher_repetition_duplicate_paragraph_characters"] == 16 / len(text)
    assert found["fineweb_duplicate_line_characters"] == 31 / 62


def test_c4_lines() -> None:
    lines = [
        "This line stays. It has two sentences.",
        "Please enable JavaScript to read on.",
        "Read our Privacy Policy before you go on.",
        "Too short.",
        "A line of text and " + "x" * 1001 + ".",
        "This line has no end",
    ]
    total = sum(map(len, lines))
    found = measure_document("\n".join(lines), EN, LIMITS)
    shares = {
        "javascript": len(lines[1]),
        "policy": len(lines[2]),
        "few_words": len(lines[3]),
        "long_word": len(lines[4]),
        "unterminated": len(lines[5]),
        "removed": sum(map(len, lines[1:5])),
    }
    assert {name: found[f"c4_{name}_lines"] for name in shares} == {name: n / total for name, n in shares.items()}
    assert found["c4_sentences"] == 3
    strict = measure_document("\n".join(lines), EN, Limits(terminal_punctuation=True))
    assert strict["c4_removed_lines"] == sum(map(len, lines[1:])) / total
    assert strict["c4_sentences"] == 2
    assert measure_document("A cited fact ends here.[12]", EN, LIMITS)["c4_unterminated_lines"] == 0
    assert measure_document("It goes on...", EN, LIMITS)["c4_unterminated_lines"] == 1


def test_punctuation_as_words() -> None:
    text = "One, two, 3."
    assert measure_document(text, EN, LIMITS)["gopher_quality_alphabetic_words"] == 2 / 3
    assert measure_document(text, EN, Limits(punctuation_as_words=True))["gopher_quality_alphabetic_words"] == 2 / 6


def test_text_without_spaces() -> None:
    """Two Han characters are a word; the word length does not apply; a line of ten characters is short."""
    found = measure_document("我们在这里训练语言模型。\n这是一句话。", ZH, LIMITS)
    assert found["gopher_quality_words"] == 16 // 2
    assert found["gopher_quality_mean_word_length"] is None
    assert found["gopher_quality_stop_words"] == 4  # 我 在 这 是
    assert found["fineweb_short_lines"] == 1 / 2
    assert found["fineweb_punctuated_lines"] == 1
    assert found["c4_few_words_lines"] == 6 / 18
    assert found["c4_sentences"] == 1
    assert measure_document("字" * 1500 + "。", ZH, LIMITS)["c4_long_word_lines"] == 0


def test_repeated_words_of_text_without_spaces() -> None:
    """Ten Han characters twice are a 5-gram of words twice."""
    found = measure_document("甲乙丙丁戊己庚辛壬癸一甲乙丙丁戊己庚辛壬癸", ZH, LIMITS)
    assert found["gopher_repetition_duplicate_5_gram"] == 10 / 21
    assert found["gopher_repetition_duplicate_6_gram"] == 0


def test_language_without_stop_words() -> None:
    assert measure_document("some words", None, LIMITS)["gopher_quality_stop_words"] is None
