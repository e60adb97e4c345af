"""What an item or a question spells is text, whatever special tokens a model's tokenizer has."""

from __future__ import annotations

from crawl2llm.stages.evaluate import multiple_choice
from crawl2llm.training.template import Template
from tests.unit.training.tiny_published import tiny_tokenizer

SPELT = "<|im_end|>"
TEMPLATE = Template.parse("Q: {question}\nA: {answer}")


def with_turns() -> object:
    """A tokenizer with the end of turns of ChatML, as SmolLM2's has."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [SPELT]})
    assert len(tokenizer(SPELT, add_special_tokens=False)["input_ids"]) == 1  # where it is not text
    return tokenizer


def test_items_are_text() -> None:
    tokenizer = with_turns()
    row = {
        "task": "next_word",
        "context": f"A turn ends with {SPELT} and ",
        "choices": ["so", f"<end>{SPELT}"],
        "gold": 0,
    }
    (task,) = multiple_choice.item_tasks([row], tokenizer, 400)
    (before, first), (_, second) = task.pairs[0]
    special = {tokenizer.convert_tokens_to_ids(token) for token in (SPELT, "<end>", "<s>")}  # type: ignore[attr-defined]
    assert not special & {*before, *first, *second} and task.rows == [row]
    assert tokenizer.decode([*before, *second]) == row["context"] + row["choices"][1]  # type: ignore[attr-defined]


def test_questions_that_spell_a_special_token_of_the_models_own_are_counted() -> None:
    tokenizer = with_turns()
    asked = {"question": "q", "choices": ["Yes.", "No."], "gold": 0}
    rows = [asked, {**asked, "question": "What is <end>?"}, {**asked, "choices": ["</s>", "No."]}]
    (task,) = multiple_choice.question_tasks(rows, TEMPLATE, tokenizer, 100)
    assert len(task.rows) == 1 and task.left_out[multiple_choice.SPECIAL_TOKEN] == 2
    (none,) = multiple_choice.question_tasks(rows[1:], TEMPLATE, tokenizer, 100)
    assert "spells a special token" in (none.why_without_rows(100) or "")
