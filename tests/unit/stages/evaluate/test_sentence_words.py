"""Words and sentences in several scripts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.evaluate.sentence_words import Text

TEXTS = {
    "The cat can't read 3.5 pages.": ["The", "cat", "can", "t", "read", "3", "5", "pages"],
    "他们去北京了。": list("他们去北京了"),
    "東京タワーへ行く": list("東京タワーへ行く"),
    "ภาษาไทยที่นี่": ["ภ", "า", "ษ", "า", "ไ", "ท", "ย", "ที่", "นี่"],  # marks belong to their consonant
    "हिन्दी में लिखो": ["हिन्दी", "में", "लिखो"],  # and in scripts with spaces to their word
    "naïve नमस्ते 你好 Привет": ["naïve", "नमस्ते", "你", "好", "Привет"],
    "e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}": [
        "e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}"
    ],
}


@pytest.mark.parametrize("text", TEXTS)
def test_words(text: str) -> None:
    assert [text[start:end] for start, end in Text("", "", text).words] == TEXTS[text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Is two? (Yes!) no end", ["One is here.", "Is two?", "Yes!)"]),
        ("Version 3.11 of example.org is out. Good.", ["Version 3.11 of example.org is out.", "Good."]),
        ("A heading\n\nThen a line\nand its end.\n\nMore", ["Then a line\nand its end."]),
        ("我来了。你呢？好！」走", ["我来了。", "你呢？", "好！」"]),
        ("वह आया। वह गया॥ और", ["वह आया।", "वह गया॥"]),
        ("هل جئت؟ نعم.", ["هل جئت؟", "نعم."]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    made = Text("", "", text)
    assert [text[made.words[first][0] : end] for first, _, end in made.sentence_spans()] == expected


@given(st.text(max_size=80), st.integers(1, 5))
def test_what_stands_before_a_word_ends_where_it_begins(text: str, size: int) -> None:
    made = Text("", "", text)
    for number, (start, _) in enumerate(made.words):
        before = made.text_before(number, size)
        assert text[:start].endswith(before) and made.first_word_at(start) == number
        assert len(Text("", "", before).words) == min(number, size) or not before.isascii()
    for first, last, end in made.sentence_spans():
        assert first < last and made.words[last - 1][1] <= end


def test_a_line_of_points_is_read_in_no_time() -> None:
    """In proportion to its length: from each of its points on it took hours."""
    begun = time.process_time()
    assert list(Text("", "", "One." + "." * 500_000 + "x two. Three." + "?)" * 100_000).sentence_spans())
    assert time.process_time() - begun < 20
