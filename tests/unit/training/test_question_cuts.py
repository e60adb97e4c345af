"""Questions that are too long lose a part of themselves, and never their answer: pairs, preferences, prompts, choices."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.align.batches import Preferences, PromptBatches
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.stages.evaluate import multiple_choice
from crawl2llm.training.model_loading import load_tokenizer
from crawl2llm.training.pair_batches import cut_counts, report_notes, tokenized_pairs
from crawl2llm.training.question_cuts import SEAM, cut_prompts, fit_pairs
from crawl2llm.training.special_tokens import EOS
from crawl2llm.training.template import LEFT, MIDDLE, RIGHT, Template

LONG = "first words " + "and so on 😀 " * 40 + "last words"
PARTS = (LEFT, MIDDLE, RIGHT)
TEMPLATES = (
    "Question: {question}\nAnswer: {answer}",
    "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}",
    "### Instruction:\n{question}\n\n### Response:\n{answer}",
)


@pytest.fixture(scope="session")
def tokenizer(base_model: Path) -> Any:
    return load_tokenizer(base_model.parent / "model")


def template(part: str = MIDDLE) -> Template:
    return Template.parse("Question: {question}\nAnswer: {answer}", part)


def whole(tokenizer: Any, row: dict[str, Any], name: str = "answer") -> list[int]:
    """The ids of a pair, uncut."""
    text = template().prompt(row["question"]) + template().completion(row[name]) + tokenizer.eos_token
    return list(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("part", PARTS)
def test_the_answer_stays_whole_and_the_part_that_goes_can_be_chosen(tokenizer: Any, part: str) -> None:
    row = {"id": "a", "question": LONG, "answer": "It is a heap."}
    assert len(whole(tokenizer, row)) > 64
    found = fit_pairs([row], template(part), tokenizer, 64)
    ids, scored, _ = next(tokenized_pairs(found.rows, template(part), tokenizer, 64))
    assert 60 < len(ids) <= 64 and found.cut == [True]
    assert tokenizer.decode(ids[len(ids) - scored :]) == " It is a heap." + tokenizer.eos_token
    question = found.rows[0]["question"]
    assert list(ids) == whole(tokenizer, found.rows[0]), "the tokens are those of a text"
    assert question.startswith("first words") == (part != LEFT) and question.endswith("last words") == (part != RIGHT)
    assert (SEAM in question) == (part == MIDDLE)


@given(st.text(max_size=300), st.text(min_size=1, max_size=60), st.integers(8, 64), st.sampled_from(PARTS))
def test_every_pair_fits_with_its_answer_or_is_counted(
    tokenizer: Any, question: str, answer: str, length: int, part: str
) -> None:
    row = {"id": "a", "question": question, "answer": answer}
    found = fit_pairs([row], template(part), tokenizer, length)
    assert len(found.rows) + found.left_out == 1 and len(found.cut) == len(found.rows)
    if len(whole(tokenizer, row)) <= length:
        assert found.rows == [row] and found.cut == [False]
    for one in found.rows:
        ids = whole(tokenizer, one)
        assert len(ids) <= length and ids[-1] == tokenizer.eos_token_id
        assert not question or one["question"]
    if found.left_out:  # not even a character of it fits, which is up to 4 tokens
        assert len(whole(tokenizer, {**row, "question": ""})) + 4 > length


def test_pairs_that_are_cut_and_left_out_are_counted(tokenizer: Any) -> None:
    short, long = ({"id": word, "question": word, "answer": "Yes."} for word in ("short", LONG))
    lost = {"id": "c", "question": "short", "answer": LONG}
    found = fit_pairs([short, long, lost], template(), tokenizer, 48)
    assert [row["id"] for row in found.rows] == ["short", LONG] and found.cut == [False, True]
    assert (cut_counts(found).pairs, cut_counts(found).cut, cut_counts(found).left_out) == (3, 1, 1)
    (said,) = report_notes(cut_counts(found), cut_counts(fit_pairs([short], template(), tokenizer, 48)), 48, MIDDLE)
    assert said.startswith("In 1 of 3 training pairs, and in 0 of 1 held-out pairs, the question is cut (middle)")
    assert "1 training and 0 held-out pairs are left out" in said


def turn(role: str, number: int, words: int) -> str:
    """Words that say whose they are: `u2.0 u2.1 …` of the third question, `a0.0 …` of the first answer."""
    return " ".join(f"{role}{number}.{word}" for word in range(words))


def roles(prompt: str, cut: Template) -> list[tuple[str, str]]:
    """(role, text) of every turn of a prompt, by the marks of the template alone."""
    head, _, tail = cut.before.partition("{question}")
    found = []
    for number, each in enumerate(exchanges := prompt.split(EOS + "\n")):
        assert each.startswith(head)
        asked, mark, answered = each.removeprefix(head).partition(tail)
        assert mark and bool(answered) == (number < len(exchanges) - 1)
        found += [("u", asked), *([("a", answered)] if answered else [])]
    return found


@pytest.mark.parametrize("text", TEMPLATES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "sizes", [(9, 9, 9, 9, 9, 9, 9), (60, 3, 3, 3, 3), (3, 60, 3, 3, 3), (3, 3, 3, 3, 60), (60, 9, 60)]
)
def test_a_conversation_is_cut_between_turns_or_in_one(
    tokenizer: Any, sizes: tuple[int, ...], part: str, text: str
) -> None:
    """What is kept has the role that it came from, answers are whole, and the last question is never without a word."""
    cut = Template.parse(text, part)
    said = [turn("ua"[number % 2], number // 2, words) for number, words in enumerate(sizes)]
    turns = list(zip(said[:-1:2], said[1::2], strict=True))
    row = {"id": "a", "question": cut.conversation("", turns, said[-1]), "answer": "It is a heap."}
    assert roles(cut.prompt(row["question"]), cut) == [
        ("ua"[n % 2], ("" if n % 2 == 0 else cut.delimiter) + w) for n, w in enumerate(said)
    ]
    length = len(tokenizer(cut.prompt(row["question"]) + cut.completion(row["answer"]) + EOS)["input_ids"])
    kept = []
    for most in range(40, length, 23):
        found = fit_pairs([row], cut, tokenizer, most)
        if found.left_out:
            continue
        assert found.cut == [True], "and is counted"
        prompt = cut.prompt(found.rows[0]["question"])
        ids, scored, _ = next(tokenized_pairs(found.rows, cut, tokenizer, most))
        assert len(ids) <= most and tokenizer.decode(ids[len(ids) - scored :]) == cut.completion("It is a heap.") + EOS
        held = roles(prompt, cut)
        assert [role for role, _ in held] == ["ua"[number % 2] for number in range(len(held))]
        for role, words in held:
            numbers = {match for match in re.findall(r"([ua]\d+)\.\d", words)}
            assert len(numbers) <= 1 and all(number.startswith(role) for number in numbers), (role, words)
            assert role == "u" or words.removeprefix(cut.delimiter) in said, "an answer is whole"
        assert all(part in said[-1] for part in held[-1][1].split(SEAM)), "the last question is the last"
        kept.append(len(ids))
    assert kept and (part == LEFT or max(kept) > length / 2), "a long question is cut before all of it goes"


@pytest.mark.parametrize("text", ["{question}{answer}", "Q: {question}{answer}", "{question} {answer}"])
@pytest.mark.parametrize("part", PARTS)
def test_a_conversation_without_a_mark_before_answers_is_cut(tokenizer: Any, text: str, part: str) -> None:
    cut = Template.parse(text, part)
    said = [turn("ua"[number % 2], number // 2, words) for number, words in enumerate((20, 20, 5))]
    question = cut.conversation("", [(said[0], said[1])], said[2])
    sizes = [len(tokenizer(cut.prompt(some))["input_ids"]) for some in (said[2], question)]
    for most in (sizes[0], sum(sizes) // 2):
        ((prompt, is_cut),) = cut_prompts([question], cut, tokenizer, most)
        assert is_cut and prompt.endswith(said[2]) and len(tokenizer(prompt)["input_ids"]) <= most


@pytest.mark.parametrize("text", TEMPLATES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sizes", [(2, 9, 2, 2, 25), (2, 9, 9), (30, 9, 25), (25, 2, 2, 9, 25)])
def test_the_last_question_is_whole_if_it_fits_alone(
    tokenizer: Any, sizes: tuple[int, ...], part: str, text: str
) -> None:
    cut = Template.parse(text, part)
    said = [turn("ua"[number % 2], number // 2, words) for number, words in enumerate(sizes)]
    question = cut.conversation("", list(zip(said[:-1:2], said[1::2], strict=True)), said[-1])
    alone, whole = (len(tokenizer(cut.prompt(some))["input_ids"]) for some in (said[-1], question))
    for most in range(alone, whole, 3):
        ((prompt, _),) = cut_prompts([question], cut, tokenizer, most)
        assert len(tokenizer(prompt)["input_ids"]) <= most and roles(prompt, cut)[-1] == ("u", said[-1])


def preferences(tokenizer: Any, method: str, length: int) -> Preferences:
    made = Preferences.__new__(Preferences)
    made.method, made.rows_each = method, 2 if method == "dpo" else 1
    made.tokenizer, made.template = tokenizer, template()
    made.trained_texts = {"dpo": ("chosen", "rejected"), "kto": ("answer",)}[method]
    made.settings = TrainSettings(max_length=length)
    return made


def test_both_answers_of_a_preference_have_the_same_question(tokenizer: Any) -> None:
    row = {"id": "a", "question": LONG, "chosen": "Yes.", "rejected": "No, it is a list that is sorted by its length."}
    made = preferences(tokenizer, "dpo", 64)
    found = made.fit_rows([row])
    assert found.cut == [True] and found.rows[0]["question"] != LONG
    for name in ("chosen", "rejected"):
        ids, scored, _ = made.answer_pieces(found.rows, name)[0]
        assert tokenizer.decode(ids[len(ids) - scored :]) == f" {row[name]}{tokenizer.eos_token}"
    assert made.fit_rows([{**row, "rejected": LONG}]).left_out == 1


def test_an_answer_to_another_question_does_not_drop_a_labelled_answer(tokenizer: Any) -> None:
    row = {"id": "a", "question": LONG, "answer": "Yes.", "label": True, "other": "No, it is a list."}
    made = preferences(tokenizer, "kto", 64)
    found = made.fit_rows([row])
    assert len(whole(tokenizer, found.rows[0], "other")) <= 64 and not found.left_out
    found = made.fit_rows([{**row, "other": LONG}])
    assert len(whole(tokenizer, found.rows[0])) <= 64 and not found.left_out


def test_prompts_are_cut_to_leave_room_for_an_answer(tokenizer: Any) -> None:
    made = preferences(tokenizer, "dpo", 40)
    found = PromptBatches.fit_prompts(made, [{"id": "a", "question": LONG}, {"id": "b", "question": "What?"}], 16)
    sizes = [len(made.prompt_ids(row)) for row in found.rows]
    assert found.cut == [True, False] and 20 < sizes[0] <= 24 and found.rows[1]["question"] == "What?"
    for row in found.rows:
        text = tokenizer.decode(made.prompt_ids(row))
        assert text.startswith("Question: ") and text.endswith("\nAnswer:")


def test_questions_of_an_evaluation_keep_their_choices_and_the_template(tokenizer: Any) -> None:
    row = {"id": "a", "document": "d", "of": "x", "question": LONG, "choices": ["Yes.", "Not at all."], "gold": 0}
    (task,) = multiple_choice.question_tasks([row], template(), tokenizer, 48)
    assert task.cut == 1 and len(task.rows) == 1 and task.rows[0]["context"].startswith("Question: first words")
    assert task.rows[0]["context"].endswith("last words\nAnswer:") and task.rows[0]["question"] == LONG
    assert all(len(before) + len(scored) <= 48 for before, scored in task.pairs[0])


def test_prompts_of_a_generation_keep_the_template(tokenizer: Any) -> None:
    (long, cut), (short, uncut) = cut_prompts([LONG, "What?"], template(LEFT), tokenizer, 32)
    assert (cut, uncut) == (True, False) and short == template().prompt("What?")
    assert long.startswith("Question: ") and long.endswith("last words\nAnswer:")
    assert len(tokenizer(long)["input_ids"]) <= 32


def test_a_reward_model_reads_the_whole_answer(tokenizer: Any) -> None:
    from crawl2llm.stages.align.reward_model import RewardModel

    judge: Any = SimpleNamespace(tokenizer=tokenizer, template=template(), context=40)
    ids = RewardModel.token_ids(judge, LONG, "It is a heap.")
    assert len(ids) <= 40 and tokenizer.decode(ids).endswith("Answer: It is a heap.")
    assert np.array_equal(
        RewardModel.token_ids(judge, "What?", LONG),
        tokenizer(template().prompt("What?") + " " + LONG)["input_ids"][:40],
    )
