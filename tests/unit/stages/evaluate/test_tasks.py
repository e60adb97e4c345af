"""Items from one document: the right choice is what stands there, and nothing but the language tells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.stages.evaluate.sentence_words import Text
from crawl2llm.stages.evaluate.settings import ItemsSettings
from crawl2llm.stages.evaluate.tasks import CHOICES, MAKERS, Maker
from crawl2llm.training.special_tokens import EOS
from tests.unit.stages.finetune import tiny

SETTINGS: dict[str, Any] = {"seed": 0, "per_document": 50, "context_words": 6, "continuation_words": 3}
words = st.sampled_from(
    ["a", "to", "is", "Is", "cat", "dog", "Dog", "red", "sun", "house", "mouse", "你", "好", "不", "ที่", "12", "été"]
)
marks = st.sampled_from([" ", " ", " ", " ", "\n", "  ", ". ", "! ", "。", "\n\n", "-", ", "])
texts = st.lists(st.tuples(words, marks), max_size=120).map(lambda parts: "".join(a + b for a, b in parts))


@settings(max_examples=60)
@given(texts, st.sampled_from(sorted(MAKERS)), st.integers(0, 3), st.integers(1, 9))
def test_gold_is_the_real_text_and_the_choices_differ(text: str, task: str, seed: int, most: int) -> None:
    found = MAKERS[task](Maker(Text("d", "s", text), ItemsSettings(**{**SETTINGS, "seed": seed, "per_document": most})))
    assert len(found.items) <= most and found.candidates == len(found.items) + found.dropped.total()
    for item in found.items:
        assert text[: item.at].endswith(item.context) and text[item.at :].startswith(item.choices[0])
        assert len({choice.casefold() for choice in item.choices}) == len(item.choices)
        assert len(item.choices) + item.lacking == (2 if task == "word_order" else CHOICES)
        if task == "word_order":
            right, wrong = item.choices
            assert Counter(right) == Counter(wrong) and right != wrong
        elif task == "next_word":
            assert len({len(choice.encode()) for choice in item.choices}) == 1
        else:
            counts = [len(Text("", "", choice).words) for choice in item.choices]
            assert counts == [SETTINGS["continuation_words"]] * len(counts)
            assert all(choice in text for choice in item.choices)


def of_page(task: str, module: str = "shutil", **changes: Any) -> Any:
    return MAKERS[task](Maker(Text("d", "s", tiny.page(module)), ItemsSettings(**{**SETTINGS, **changes})))


def test_next_words_are_about_as_frequent() -> None:
    text = Text("d", "s", tiny.page("shutil"))
    counts = Counter(text.folded_words)
    found = of_page("next_word")
    assert len(found.items) > 20
    for item in found.items:
        powers = {counts[choice.casefold()].bit_length() for choice in item.choices}
        assert len(powers) == 1


def test_next_words_have_their_capitals_alike() -> None:
    """Where a sentence begins, the only word with a capital letter would be the right one."""
    found = [item for module in ("logging", "pathlib", "subprocess") for item in of_page("next_word", module).items]
    assert len(found) > 20 and {word[0].isupper() for item in found for word in item.choices} == {True, False}
    for item in found:
        assert len({(word[0].isupper(), word[1:] == word[1:].lower()) for word in item.choices}) == 1, item


def test_the_first_word_of_a_sentence_stays() -> None:
    """Its capital letter would tell."""
    found = of_page("word_order")
    assert len(found.items) > 10
    for item in found.items:
        right, wrong = (Text("", "", choice) for choice in item.choices)
        assert right.folded_words[0] == wrong.folded_words[0]
        moved = [at for at, (a, b) in enumerate(zip(right.folded_words, wrong.folded_words, strict=True)) if a != b]
        assert len(moved) == 2 and moved[1] == moved[0] + 1


def test_a_continuation_is_not_among_what_is_shown() -> None:
    for item in of_page("continuation", context_words=40).items:
        assert not any(choice in item.context for choice in item.choices[1:] if len(choice) > 30)


@pytest.mark.parametrize("task", sorted(MAKERS))
def test_a_text_that_spells_a_special_token_gives_no_item(task: str) -> None:
    text = tiny.page("shutil")
    spelled = text.replace(" ", f" {EOS} ")
    found = MAKERS[task](Maker(Text("d", "s", spelled), ItemsSettings(**SETTINGS)))
    assert not found.items or all(EOS not in item.context + "".join(item.choices) for item in found.items)
    assert found.dropped["special_token"] > 0


@pytest.mark.parametrize("task", sorted(MAKERS))
def test_another_seed_asks_other_items(task: str) -> None:
    one, two = (of_page(task, per_document=8, seed=seed) for seed in (0, 1))
    assert [item.id for item in one.items] == [item.id for item in of_page(task, per_document=8).items]
    assert {item.at for item in one.items} != {item.at for item in two.items}
