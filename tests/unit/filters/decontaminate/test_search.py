"""Items of evaluation sets in texts: what a reader takes for the same text is found, by brute force too, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crawl2llm.filters.decontaminate.items import Item, build_items
from crawl2llm.filters.decontaminate.ngrams import HashSet, hash_numbers, hash_stretches
from crawl2llm.filters.decontaminate.search import Index, Match
from crawl2llm.filters.decontaminate.words import split_words, word_spans

QUESTION = (
    "A farmer's 17 hens lay twelve eggs each week, and on market days she sells all but five of them for two dollars; "
    "how many dollars does the farmer take home from the market after a month?"
)
ANSWER = "She takes home seven hundred and ninety-six dollars."
FILLER = "Birds were singing in the old garden while the children were building a small boat from wood. " * 5


def index(*asked: tuple[str, str], method: str = "ngram", n: int = 13, least: int = 8) -> Index:
    found = build_items(
        [("own", str(number), ([question], answer)) for number, (question, answer) in enumerate(asked)], n, least
    )
    return Index(found, method, n, least)


def one(found: Index, text: str) -> Match | None:
    matches = found.find_matches([text])[0]
    return matches[0] if matches else None


PLANTED = {
    "verbatim": QUESTION,
    "wrapped": QUESTION.replace(" ", "\n"),
    "upper": QUESTION.upper(),
    "punctuation": QUESTION.replace(",", " -").replace(";", "!").replace("'", "\u2019"),
    "bold": QUESTION.replace("twelve", "**twelve**"),
    "digits": QUESTION.replace("17", "\u0661\u0667"),
    "full width": "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in QUESTION),
    "soft hyphens": QUESTION.replace("market", "mar\u00adket"),
}


@pytest.mark.parametrize("method", ["ngram", "idf"])
@pytest.mark.parametrize("kind", PLANTED)
def test_an_item_is_found_however_it_is_written_and_its_place_is_exact(kind: str, method: str) -> None:
    planted = PLANTED[kind]
    text = f"{FILLER}\n{planted} {ANSWER} {FILLER}"
    n = 13 if method == "ngram" else 5
    match = one(
        index(
            (QUESTION, ANSWER),
            ("What is the largest city of the northern part of France today?", "Lille"),
            method=method,
            n=n,
        ),
        text,
    )
    assert match and match.overlap == 1 and match.answered and match.item
    assert text[match.start : match.end] == f"{planted} {ANSWER}".rstrip(".")


def test_a_part_counts_by_its_share_and_other_text_not_at_all() -> None:
    found = index((QUESTION, ""))
    parts = QUESTION.split()
    match = one(found, f"{FILLER} {' '.join(parts[:20])} {FILLER}")
    assert match and match.words == 20 and match.overlap == round(20 / len(parts), 6)
    assert one(found, f"{FILLER} {' '.join(parts[:12])} {FILLER}") is None
    assert one(found, FILLER) is None and found.find_matches(["", " \n"]) == [[], []]


def test_an_edited_item_is_found_by_idf_alone() -> None:
    """Every tenth word another: no stretch of 13 words is left."""
    parts = [word if number % 10 != 9 else "something" for number, word in enumerate(QUESTION.split())]
    text = f"{FILLER} {' '.join(parts)} {ANSWER}"
    others = [
        (f"Question number {number} of a long list, on what the people of a town may do in winter?", "Ski")
        for number in range(9)
    ]
    assert one(index((QUESTION, ANSWER), *others), text) is None
    match = one(index((QUESTION, ANSWER), *others, method="idf", n=5), text)
    assert match and match.item and match.overlap > 0.5


def test_short_questions_need_every_word_and_the_shortest_their_answer() -> None:
    found = index(
        ("The man broke his toe.", "He dropped a hammer on it."),
        ("What is the capital of the old kingdom of Mercia?", "Tamworth"),
    )
    assert one(found, "We heard that the man broke his toe. It was on Monday.") is None
    assert one(found, "THE MAN BROKE HIS TOE -- he dropped a hammer on it!") is not None
    assert one(found, "Q: The man broke his toe. Answer: He dropped a hammer on it.") is not None
    assert one(found, "So: what is the capital of the old kingdom of Mercia? Nobody knows.") is not None
    assert one(found, "What is the capital of the old kingdom of Wessex? Nobody knows.") is None
    assert build_items([("own", "a", (["Who?"], "He."))], 13, 8)[0].short


def test_a_short_question_needs_its_answer_whatever_the_words_of_a_stretch() -> None:
    (asked,) = build_items([("own", "a", (["Which bird sleeps while it flies?"], "The common swift of Europe"))], 5, 8)
    found = Index([asked], "ngram", 5, 8)
    assert one(found, "They asked which bird sleeps while it flies, and nobody could tell them.") is None
    assert one(found, "Which bird sleeps while it flies? The common swift of Europe.") is not None


def test_questions_of_which_only_signs_differ_are_not_searched_for() -> None:
    asked = [
        ("own", str(n), ([f"Complete the rest of this long sequence of brackets as it should be: {'(' * n}"], ""))
        for n in range(5)
    ]
    assert all(item.short for item in build_items(asked, 13, 8))
    assert not any(item.short for item in build_items(asked[:2], 13, 8))


def test_two_copies_are_two_matches_and_scripts_without_spaces_are_read_by_character() -> None:
    question = "\u6c34\u304c\u6cb8\u9a30\u3059\u308b\u6e29\u5ea6\u306f\u4f55\u5ea6\u3067\u3059\u304b"
    found = index((question, ""))
    text = f"{FILLER}{question}{FILLER}{question}"
    assert [text[match.start : match.end] for match in found.find_matches([text])[0]] == [question, question]


def test_equal_hashes_of_other_words_are_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "crawl2llm.filters.decontaminate.search.hash_numbers", lambda numbers: np.ones(len(numbers), np.uint64)
    )
    found = index((QUESTION, ""))
    other = " ".join(reversed(QUESTION.split()))  # known words alone: every stretch has the hash of one of the item's
    assert one(found, other) is None and one(found, QUESTION) is not None


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=40)


def brute(question: list[str], text: list[str], n: int) -> int:
    """Words of a question in stretches of n words that the text has too."""
    known = {tuple(text[at : at + n]) for at in range(len(text) - n + 1)}
    covered = {
        at + step for at in range(len(question) - n + 1) if tuple(question[at : at + n]) in known for step in range(n)
    }
    return len(covered)


@settings(max_examples=300, deadline=None)
@given(WORDS.filter(lambda found: len(found) >= 4), WORDS, st.integers(2, 4))
def test_search_equals_brute_force(question: list[str], text: list[str], n: int) -> None:
    found = Index([Item("own", "a", [" ".join(question)])], "ngram", n, n)
    match = one(found, " ".join(text))
    known = {tuple(question[at : at + n]) for at in range(len(question) - n + 1)}
    at = [place for place in range(len(text) - n + 1) if tuple(text[place : place + n]) in known]
    assume(all(later - before <= n + 11 for before, later in pairwise(at)))  # else they are two passages
    assert (match.words if match else 0) == brute(question, text, n)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 14))
def test_hashes_of_stretches_are_equal_where_their_words_are(numbers: list[int], n: int) -> None:
    found = hash_stretches(hash_numbers(np.array(numbers, np.int64)), n).tolist()
    each = [tuple(numbers[at : at + n]) for at in range(len(numbers) - n + 1)]
    assert len(found) == len(each)
    assert len(set(found)) == len(set(each)) == len(set(zip(found, each, strict=True)))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_a_set_of_hashes_finds_what_is_in_it(held: list[int], others: list[int]) -> None:
    known = HashSet(np.array(held, np.uint64))
    asked = held + others
    where, rows = known.find_places(np.array(asked, np.uint64))
    assert where.tolist() == [at for at, value in enumerate(asked) if value in set(held)]
    assert known.sorted[rows].tolist() == [asked[at] for at in where.tolist()]


@settings(max_examples=300)
@given(st.text() | st.text(alphabet="aB1 .'\u2019\u00e9\ufb01\u4e2d\u0e01\u0661\u00bd\u200b-\n"))
def test_places_are_those_of_the_words(text: str) -> None:
    found, where = split_words(text), word_spans(text)
    assert len(found) == len(where)
    assert all(word in split_words(text[start:end]) for word, (start, end) in zip(found, where.tolist(), strict=True))


@given(st.lists(st.sampled_from(["Don't", "stop", "3", "x-y", "e.g."]), max_size=9).map(" ".join))
def test_the_same_words_whatever_stands_beside(text: str) -> None:
    """Text that is ASCII alone goes another way."""
    assert split_words(text) == split_words(f"{text} \u00e9")[:-1]
