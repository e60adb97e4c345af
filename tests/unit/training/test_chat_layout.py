"""How models that somebody else trained are asked: by their own chat template, and the run's own by the template of their pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.model_loading import load_tokenizer
from crawl2llm.training.pair_batches import tokenized_pairs
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.template import Template
from tests.unit.training.tiny_published import TEMPLATE, tiny_tokenizer

PAIRS = Template.parse("Question: {question}\nAnswer: {answer}")


def test_a_question_is_laid_out_as_the_model_knows_it_without_a_second_beginning() -> None:
    layout = layout_for(PAIRS, tiny_tokenizer())
    assert layout.prompt("Who?") == "<turn>user\nWho?\n<turn>assistant\n"
    assert layout.completion("I.") == "I." and layout.chat_template() == TEMPLATE
    assert layout.summary() == PAIRS.summary(), "what finetune.pairs wrote is told apart by its own template"


def test_a_conversation_of_the_pairs_becomes_turns_of_the_model() -> None:
    asked = PAIRS.conversation("Be kind.", [("Who?", "I."), ("You?", "She.")], "Why?")
    assert layout_for(PAIRS, tiny_tokenizer()).prompt(asked) == (
        "<turn>user\nBe kind.\n\nWho?\n<turn>assistant\nI.<end>\n<turn>user\nYou?\n<turn>assistant\nShe.<end>\n"
        "<turn>user\nWhy?\n<turn>assistant\n"
    )


def test_models_of_the_run_and_models_without_a_template_are_asked_as_before() -> None:
    assert layout_for(PAIRS, tiny_tokenizer(None)) is PAIRS
    assert layout_for(PAIRS, tiny_tokenizer(PAIRS.chat_template())) is PAIRS


def test_a_template_that_writes_the_date_gives_the_same_prompt_on_any_day() -> None:
    """As Llama 3.2's does: results would differ by the day, and a training that resumes would go on with other texts."""
    dated = "{{ strftime_now('%d %b %Y') }}\n" + TEMPLATE
    assert layout_for(PAIRS, tiny_tokenizer(dated)).prompt("Who?").partition("<turn>")[0] == "26 Jul 2024\n<s>"


def test_a_template_that_takes_no_conversation_is_refused() -> None:
    with pytest.raises(InputError, match="chat template cannot lay out a conversation: no roles"):
        layout_for(PAIRS, tiny_tokenizer("{{ raise_exception('no roles') }}"))
    with pytest.raises(InputError, match="leaves the question or the answer out"):
        layout_for(PAIRS, tiny_tokenizer("{% for message in messages %}{{ message['role'] }}{% endfor %}"))


def test_a_pair_that_spells_a_special_token_of_the_model_is_left_out() -> None:
    """finetune.pairs drops those that spell one of the run's own alone; `<s>` of a page would begin a text."""
    tokenizer = tiny_tokenizer()
    rows = [{"question": "How is text struck?", "answer": answer} for answer in ("By <s>text</s>.", "By an s.")]
    fitted = fit_pairs(rows, layout_for(PAIRS, tokenizer), tokenizer, 64)
    assert fitted.rows == rows[1:] and fitted.left_out == 1 and fitted.cut == [False]


def test_an_answer_is_learned_with_the_end_token_of_the_template(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert {tokenizer.eos_token, tokenizer.pad_token} == {"<end>"}
    layout = layout_for(PAIRS, tokenizer)
    rows = fit_pairs([{"question": "Who? " * 40, "answer": "I am."}], layout, tokenizer, 64)
    assert rows.cut == [True] and not rows.left_out
    ((ids, learned, _),) = tokenized_pairs(rows.rows, layout, tokenizer, 64)
    assert len(ids) <= 64 and ids[0] == tokenizer.bos_token_id != ids[1]
    assert tokenizer.decode(ids[-learned:]) == "I am.<end>"
