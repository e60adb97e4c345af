"""How a context and its choices are cut into tokens: the same for items, questions, labels and tasks of the harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.measures import QUESTIONS, split_tokens
from crawl2llm.stages.evaluate import harness, logit_pieces, multiple_choice
from crawl2llm.stages.evaluate.answer_scores import score_answers
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.template import Template
from tests.unit.stages.finetune import tiny

pytestmark = pytest.mark.slow  # scores with a model

SPACED, GLUED = "Question: {question}\nAnswer: {answer}", "Question: {question} ({answer}"
HOW = {"context": tiny.CONTEXT, "batch_size": 4, "seed": 0}
Row = dict[str, Any]
# With GLUED the bracket before the answer joins what some of them begin with, and all of one of them.
ANSWERS = (["(a)", "a list", ")", "b)"], ["the first", ")(", "an empty list", "None"], ["x", "y", "z", "w"])


def questions(labels: list[str] | None = None) -> list[Row]:
    same = {"answer": "", "of": "own.tsv", "gold": 0}
    return [
        {"id": f"{number}", "document": f"d{number}", "question": f"What does call {number} give?", **same}
        | ({"choices": labels, "labels": labels} if labels else {"choices": answers})
        for number, answers in enumerate(ANSWERS)
    ]


@pytest.fixture(scope="module")
def model_and_tokenizer(inputs: dict[str, list[Path]]) -> tuple[Any, Any]:
    return load_model(inputs["model"][0].parent / "model")


def plain(model: Any, tokenizer: Any, context: str, choices: list[str]) -> list[float]:
    """The nats of each choice from the first token at which any of them leaves the context's tokens, each text scored by itself."""
    before, *whole = (tokenizer(text)["input_ids"] for text in (context, *(context + choice for choice in choices)))
    shared = 0
    while shared < len(before) and all(len(ids) > shared + 1 and ids[shared] == before[shared] for ids in whole):
        shared += 1
    found = []
    for ids in whole:
        with torch.no_grad():
            logs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        found.append(sum(float(logs[at - 1, ids[at]]) for at in range(shared, len(ids))))
    return found


def by_harness(model_and_tokenizer: tuple[Any, Any], context: str, choices: list[str]) -> list[float] | None:
    """What lm-evaluation-harness itself finds, cutting as it does; None if a choice has no token left, which it cannot score."""
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=model_and_tokenizer[0], tokenizer=model_and_tokenizer[1], max_length=tiny.CONTEXT)
    pairs = [lm._encode_pair(context, choice) for choice in choices]
    if not all(scored for _, scored in pairs):
        return None
    return [nats for nats, _ in lm._loglikelihood_tokens([(("", ""), *pair) for pair in pairs], disable_tqdm=True)]


@pytest.mark.parametrize("labels", [None, [")", "bad", "good"]])
@pytest.mark.parametrize("text", [SPACED, GLUED])
def test_questions_and_labels_are_cut_as_items_are(
    model_and_tokenizer: tuple[Any, Any], text: str, labels: list[str] | None
) -> None:
    template = Template.parse(text)
    rows = questions(labels)
    tasks = [
        task
        for task in multiple_choice.question_tasks(rows, template, model_and_tokenizer[1], tiny.CONTEXT)
        if task.rows
    ]
    assert [task.name for task in tasks] == ["own.tsv" if labels else QUESTIONS]
    found, _ = harness.run_tasks(*model_and_tokenizer, tasks, [], **HOW)
    _, lines = multiple_choice.task_results(tasks, found["samples"], 0)
    items = [
        {**row, "task": "items", "context": template.prompt(row["question"]), "choices": [template.completion(c) for c in row["choices"]]}
        for row in rows
    ]  # fmt: skip
    as_items = multiple_choice.item_tasks(items, model_and_tokenizer[1], tiny.CONTEXT)
    again, _ = harness.run_tasks(*model_and_tokenizer, as_items, [], **HOW)
    _, same = multiple_choice.task_results(as_items, again["samples"], 0)
    equal = 0
    for row, line, item in zip(items, lines, same, strict=True):
        assert line["log_likelihoods"] == item["log_likelihoods"]
        assert line["log_likelihoods"] == pytest.approx(
            plain(*model_and_tokenizer, row["context"], row["choices"]), abs=1e-4
        )
        own = by_harness(model_and_tokenizer, row["context"], row["choices"])
        equal += bool(own) and line["log_likelihoods"] == pytest.approx(own, abs=1e-4)
    equal_rows = 0 if labels else 1
    if text == SPACED:
        equal_rows = 3
    assert equal == equal_rows, "rows in which nothing is joined are the harness's"


def test_lengths_are_those_of_what_is_scored(model_and_tokenizer: tuple[Any, Any]) -> None:
    """What counts is the tokens that are scored, which begin before the answer if the template joins it to what stands there."""
    tokenizer = model_and_tokenizer[1]
    row = questions()[0] | {"choices": [")" * 4, "a"]}
    template = Template.parse("{question}" + "(" * 3 + "{answer}")
    scored = split_tokens(lambda t: tokenizer(t)["input_ids"], template.prompt(row["question"]), row["choices"])[1]
    longest = max(map(len, scored))
    assert multiple_choice.question_tasks([row], template, tokenizer, longest + 1)[0].rows
    assert multiple_choice.question_tasks([row], template, tokenizer, longest)[0].left_out["too_long"] == 1


def test_two_rows_with_the_same_text_keep_their_tokens(model_and_tokenizer: tuple[Any, Any]) -> None:
    """The same context and choice beside another choice are cut elsewhere: each row has its own tokens."""
    rows = [
        {"task": "t", "id": str(n), "document": "d", "context": "It gives (", "choices": ["a list", other], "gold": 0}
        for n, other in enumerate((")", "b"))
    ]
    tasks = multiple_choice.item_tasks(rows, model_and_tokenizer[1], tiny.CONTEXT)
    found, _ = harness.run_tasks(*model_and_tokenizer, tasks, [], **HOW)
    _, lines = multiple_choice.task_results(tasks, found["samples"], 0)
    for row, line in zip(rows, lines, strict=True):
        assert line["log_likelihoods"] == pytest.approx(
            plain(*model_and_tokenizer, row["context"], row["choices"]), abs=1e-4
        )


def own_task(folder: Path, rows: list[Row], **more: Any) -> str:
    data, path = folder / "own.jsonl", folder / "own.yaml"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": "own_task",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "{{c}}",
        "doc_to_target": "{{g}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    path.write_text(yaml.safe_dump(task | more))
    return str(path)


def test_a_task_with_joined_and_too_long_choices_is_a_counted_result(
    model_and_tokenizer: tuple[Any, Any], tmp_path: Path
) -> None:
    kept = [{"q": "What is it?", "c": ["a", "b"], "g": 0}, {"q": "It gives (", "c": ["a list", ")"], "g": 1}]
    long = {"q": "Which?", "c": ["so " * 2 * tiny.CONTEXT, "a"], "g": 1}
    _, tasks = harness.run_tasks(*model_and_tokenizer, [], [own_task(tmp_path, [kept[0], long, kept[1], long])], **HOW)
    result = tasks["results"]["own_task"]
    right = sum(
        nats.index(max(nats)) == row["g"] for row in kept for nats in [plain(*model_and_tokenizer, row["q"], row["c"])]
    )
    assert result["acc"] == pytest.approx(right / 2)
    assert (result["items"], result["left_out_too_long"], result["joined"]) == (2, 2, 1)
    assert [note.split(":")[0] for note in harness.task_notes(tasks["results"])] == ["evaluate.model.tasks"] * 2

    (tmp_path / "fits").mkdir()
    _, fits = harness.run_tasks(*model_and_tokenizer, [], [own_task(tmp_path / "fits", kept[:1])], **HOW)
    assert fits["results"]["own_task"].keys() >= {"acc", "items"} and not harness.task_notes(fits["results"])
    assert not fits["results"]["own_task"].keys() & {"left_out_too_long", "joined"}


@pytest.mark.parametrize(
    ("rows", "more", "told"),
    [
        (
            [{"q": "Which?", "c": ["so " * 2 * tiny.CONTEXT, "a"], "g": 1}],
            {},
            "own_task: every one of its 1 items has a choice longer than the context of 64 tokens",
        ),
        (
            [{"q": "Which?", "c": ["a"], "g": 0}],
            {
                "output_type": "generate_until",
                "doc_to_choice": None,
                "doc_to_target": "{{c[0]}}",
                "metric_list": [{"metric": "exact_match"}],
            },
            "lm-eval cannot run them",
        ),
    ],
)
def test_a_task_that_does_not_fit_is_refused_in_words(
    model_and_tokenizer: tuple[Any, Any], tmp_path: Path, rows: list[Row], more: Row, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        harness.run_tasks(*model_and_tokenizer, [], [own_task(tmp_path, rows, **more)], **HOW)


def test_rows_of_the_same_tokens_are_scored_each_from_its_own_place(model_and_tokenizer: tuple[Any, Any]) -> None:
    model, _ = model_and_tokenizer
    requests = [
        (("", ""), [1, 2], [3, 4]),
        (("", ""), [1, 2, 3], [5]),
        (("", ""), [6] * 9, [7]),
        (("", ""), [1, 2], [3, 5]),
    ]
    got = score_answers(model, requests, 64, 2, lambda rows: None)
    for (_, context, scored), (nats, likeliest) in zip(requests, got, strict=True):
        with torch.no_grad():
            logits = torch.log_softmax(model(torch.tensor([context + scored[:-1]])).logits[0, -len(scored) :], dim=-1)
        assert nats == pytest.approx(sum(float(logits[at, token]) for at, token in enumerate(scored)), abs=1e-4)
        assert likeliest == (logits.argmax(-1).tolist() == scored)


def test_logits_are_made_in_pieces(model_and_tokenizer: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = model_and_tokenizer
    requests = [(("", ""), [1, number], [3, 4, 5]) for number in range(8)]
    whole = score_answers(model, requests, 64, 8, lambda rows: None)
    passed: list[int] = []
    monkeypatch.setattr(logit_pieces, "LOGITS_AT_ONCE", 2 * 3 * 4 * model.config.vocab_size)
    pieces = score_answers(model, requests, 64, 8, passed.append)
    assert passed == [2] * 4
    assert [nats for nats, _ in pieces] == pytest.approx([nats for nats, _ in whole], abs=1e-4)


def test_logits_of_a_row_are_made_in_pieces(
    model_and_tokenizer: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where answers of several lengths end at the same place."""
    model, _ = model_and_tokenizer
    text = [number % 50 + 3 for number in range(20)]
    with torch.no_grad():
        likeliest = int(model(torch.tensor([text])).logits[0, -1].argmax())
    requests = [(("", ""), text[:at], [*text[at:], last]) for at in (1, 12, 17, 19, 20) for last in (likeliest, 7)]
    whole = score_answers(model, requests, 64, 8, lambda rows: None)
    monkeypatch.setattr(logit_pieces, "LOGITS_AT_ONCE", 6 * 4 * model.config.vocab_size)
    pieces = score_answers(model, requests, 64, 8, lambda rows: None)
    assert [nats for nats, _ in pieces] == pytest.approx([nats for nats, _ in whole], rel=1e-6)
    assert [right for _, right in pieces] == [right for _, right in whole] and whole[-2][1]


@given(st.text("ab ", max_size=6), st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_choice_has_a_token_and_all_begin_at_the_same_place(context: str, choices: list[str]) -> None:
    """By an encoder that joins any two equal letters."""

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for letter in text:
            if found and found[-1] == ord(letter):
                found[-1] += 1000
            else:
                found.append(ord(letter))
        return found

    before, scored = split_tokens(encode, context, choices)
    assert all(scored)
    assert [before + ids for ids in scored] == [encode(context + choice) for choice in choices]
    assert before == encode(context)[: len(before)]
