"""Files with labels as tasks of their own: what is asked, and the numbers of a classification."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from crawl2llm.formats.public_tasks.measures import QUESTIONS
from crawl2llm.stages.evaluate import multiple_choice
from crawl2llm.training.template import Template

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")


def row(number: int, gold: int, labels: list[str] | None = None, of: str = "films.tsv") -> dict[str, Any]:
    choices = labels or ["one", "two", "three", "four"]
    return {
        "id": str(number),
        "document": f"d{number}",
        "question": f"q{number}",
        "choices": choices,
        "gold": gold,
        "of": of,
        **({"labels": labels} if labels else {}),
    }


def words() -> Any:
    """A tokenizer of words."""
    tokenizer = Tokenizer(WordLevel({"<end>": 0}, unk_token="<end>"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")  # noqa: S106


def test_each_file_with_labels_is_a_task() -> None:
    labels = ["bad", "very good indeed"]
    without = {key: value for key, value in row(9, 0).items() if key not in ("choices", "gold")}
    rows = [row(0, 0), row(1, 1, labels), row(2, 0, labels), row(3, 1, ["a b c d", "b"], "other.tsv"), without]
    questions, films, other = multiple_choice.question_tasks(rows, TEMPLATE, words(), context=4)
    assert (questions.name, len(questions.rows)) == (QUESTIONS, 1) and questions.delimiter == " "
    assert (films.name, len(films.rows), films.left_out) == ("films.tsv", 2, {multiple_choice.TOO_LONG: 0})
    assert films.rows[0]["context"] == "Question: q1\nAnswer:"
    assert (other.name, other.rows, other.left_out) == ("other.tsv", [], {multiple_choice.TOO_LONG: 1})


def test_confusion_f1_and_the_most_frequent_label() -> None:
    labels = ["bad", "good", "so"]
    gold, chosen = [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]
    rows = [row(number, each, labels) for number, each in enumerate(gold)]
    task = multiple_choice.Task("films.tsv", rows)
    samples = [
        {"doc_id": number, "filtered_resps": [[0.0 if at == each else -1.0, False] for at in range(3)]}
        for number, each in enumerate(chosen)
    ]
    numbers, lines = multiple_choice.task_results([task], {"films.tsv": samples}, 0)
    found = numbers["films.tsv"]
    assert found["confusion"] == {
        "bad": {"bad": 3, "good": 1, "so": 0}, "good": {"bad": 1, "good": 1, "so": 0}, "so": {"bad": 0, "good": 0, "so": 0},
    }  # fmt: skip
    assert found["macro_f1"] == pytest.approx((6 / 8 + 2 / 4 + 0) / 3, abs=1e-6)
    assert found["majority"] == pytest.approx(4 / 6, abs=1e-6) and found["accuracy"] == pytest.approx(4 / 6, abs=1e-6)
    assert found["chance"] == pytest.approx(1 / 3, abs=1e-6) and len(lines) == 6
