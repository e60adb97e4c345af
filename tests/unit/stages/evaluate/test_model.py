"""evaluate.model as a program, and what it takes from lm-evaluation-harness."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import Writer
from crawl2llm.formats.public_tasks.measures import QUESTIONS, split_tokens
from crawl2llm.stages.evaluate import harness, model, multiple_choice
from crawl2llm.stages.finetune import pairs
from crawl2llm.stages.tokenize.encode import DOCS
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.template import read_pairs
from tests.unit.stages.evaluate.conftest import made_items
from tests.unit.stages.finetune import tiny

pytestmark = pytest.mark.slow  # evaluates models

LIMITS = {"max_tokens": 1500, "max_new_tokens": 8, "questions": 2}


def evaluate_base(
    inputs: dict[str, list[Path]], out: Path, *options: str, name: str = "base", **changes: object
) -> tuple[int, Path]:
    path = out / f"{name}.manifest.json"
    config = tiny.config("evaluate.model", **{**LIMITS, **changes})
    inputs = {"heldout": inputs["tokens"], **inputs}
    keys = ("model", "pairs", "tokens", "heldout", "tasks")
    given = [part for key in keys for part in (f"--{key}", *map(str, inputs[key]))]
    return model.main(["--config", config, *given, "--manifest", str(path), *options]), path


@pytest.fixture(scope="module")
def first(inputs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, path = evaluate_base(inputs, tmp_path_factory.mktemp("first"))
    assert status == 0
    return path


def test_numbers(inputs: dict[str, list[Path]], first: Path) -> None:
    found = json.loads((first.parent / "base.evaluation.json").read_text())
    asked, text = found["questions"], found["heldout_text"]
    assert (asked["items"], asked["chance"]) == (40, 0.25)
    assert asked["acc_z"] == pytest.approx((asked["acc"] - 0.25) / (0.25 * 0.75 / 40) ** 0.5, abs=1e-3)
    assert {"acc_stderr", "acc_norm", "acc_norm_stderr", "gold_nats_per_byte"} <= asked.keys()
    # A random model is next to uniform over its 1,024 entries.
    assert text["loss"] == pytest.approx(6.93, abs=0.3)
    summary = Manifest.read(first).summary
    assert summary["questions"] == asked
    shown = [json.loads(line) for line in (first.parent / "base.samples.jsonl").read_text().splitlines()]
    assert [row["decoding"] for row in shown] == ["greedy", "sampled", "greedy", "sampled", "greedy", "greedy"]
    assert shown[-1]["reference"] == read_pairs(inputs["pairs"][0], "heldout")[0][1]["answer"]


def test_accuracy_is_that_of_a_plain_computation(inputs: dict[str, list[Path]], first: Path) -> None:
    import torch

    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    rows, template = read_pairs(inputs["pairs"][0], "heldout")
    right = scored = 0
    for row in rows:
        prompt, sums = template.prompt(row["question"]), []
        shared = len(tokenizer(prompt)["input_ids"])
        whole = [tokenizer(prompt + template.completion(c))["input_ids"] for c in row["choices"]]
        if max(map(len, whole)) > tiny.CONTEXT:
            continue  # lm-eval cuts these on the left
        for ids in whole:
            with torch.no_grad():
                logs = lm(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            sums.append(sum(float(logs[at - 1, ids[at]]) for at in range(shared, len(ids))))
        right += sums.index(max(sums)) == row["gold"]
        scored += 1
    assert scored > 30
    accuracy = json.loads((first.parent / "base.evaluation.json").read_text())["questions"]["acc"]
    assert right <= round(accuracy * len(rows)) <= right + len(rows) - scored


def test_same_bytes_again_and_at_another_batch_size(inputs: dict[str, list[Path]], first: Path, tmp_path: Path) -> None:
    assert evaluate_base(inputs, tmp_path, "--batch-size", "3")[0] == 0
    for name in ("base.manifest.json", "base.evaluation.json", "base.items.jsonl", "base.samples.jsonl"):
        assert (tmp_path / name).read_bytes() == (first.parent / name).read_bytes()
    text = (tmp_path / "base.evaluation.json").read_text()
    assert not re.search(r'"(date|time|host|git_hash|seconds)', text)


def test_own_task(few: dict[str, list[Path]], tmp_path: Path) -> None:
    rows, _ = read_pairs(few["pairs"][0], "heldout")
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps({"q": r["question"], "c": r["choices"], "g": r["gold"]}) + "\n" for r in rows))
    task = {
        "task": "own_task",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{q}}\nAnswer:",
        "doc_to_choice": "{{c}}",
        "doc_to_target": "{{g}}",
        "metric_list": [{"metric": "acc"}],
    }
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(task))
    status, manifest = evaluate_base(few, tmp_path, tasks=[str(path)], max_tokens=100)
    assert status == 0
    summary = Manifest.read(manifest).summary
    # The same questions by another way: the same accuracy.
    assert summary["tasks"]["results"]["own_task"]["acc"] == summary["questions"]["acc"]
    assert summary["tasks"]["results"]["own_task"]["items"] == 10
    assert list(summary["tasks"]["files"]) == [str(path)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tasks": ["absent.yaml"]}, "evaluate.model.tasks[0] is 'absent.yaml'"),
        ({"context": 4096}, "evaluate.model.context is 4096; the context of the model"),
    ],
)
def test_what_it_refuses(
    inputs: dict[str, list[Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    told: str,
) -> None:
    assert evaluate_base(inputs, tmp_path, **changes)[0] == 1
    assert told in capsys.readouterr().err


@given(st.integers(0, 100), st.integers(2, 8))
def test_against_chance(right: int, choices: int) -> None:
    z = harness.against_chance(right / 100, 100, 1 / choices)
    assert (z > 0) == (right / 100 > 1 / choices)


def test_likelihoods() -> None:
    rows = [{"choices": ["aa", "bbbb"], "gold": 1}]
    assert harness.mean_likelihoods([[-4.0, -2.0]], rows) == {
        "gold_nats_per_byte": -0.5,
        "distractor_nats_per_byte": -2.0,
    }


def test_answers_longer_than_the_context_are_left_out(inputs: dict[str, list[Path]]) -> None:
    tokenizer = load_model(inputs["model"][0].parent / "model")[1]
    _, template = read_pairs(inputs["pairs"][0], "heldout")
    rows = [{"question": "q", "choices": ["A word.", end]} for end in ("Two words.", "word " * 200)]
    (task,) = multiple_choice.question_tasks(rows, template, tokenizer, 64)
    assert (task.rows, task.left_out[multiple_choice.TOO_LONG]) == ([{**rows[0], "context": template.prompt("q")}], 1)
    assert multiple_choice.question_tasks(rows[1:], template, tokenizer, 64)[0].rows == []


def test_items_with_too_long_choices_are_left_out_and_counted(inputs: dict[str, list[Path]]) -> None:
    _, tokenizer = load_model(inputs["model"][0].parent / "model")
    rows = [
        {"task": "word_order", "context": "So it ", "choices": ["is", end], "gold": 0} for end in ("si", "word " * 200)
    ]
    (task,) = multiple_choice.item_tasks(rows, tokenizer, 64)
    assert (task.rows, task.left_out[multiple_choice.TOO_LONG]) == (rows[:1], 1)


def test_items(inputs: dict[str, list[Path]], first: Path) -> None:
    """By lm-eval, and by a plain computation over each item's whole text: the same log-likelihoods, choices and accuracies."""
    import torch

    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    found = json.loads((first.parent / "base.evaluation.json").read_text())["items"]
    rows = {row["id"]: row for row in multiple_choice.read_items(inputs["tasks"][0])}
    lines = [json.loads(line) for line in (first.parent / "base.items.jsonl").read_text().splitlines()]
    assert set(found) == {"word_order", "next_word", "continuation"}
    compared = 0
    for line in lines:
        if line["task"] == QUESTIONS:
            continue
        row = rows[line["id"]]
        before, choices = split_tokens(lambda text: tokenizer(text)["input_ids"], row["context"], row["choices"])
        sums = []
        for ids in choices:
            whole = (before or [tokenizer.eos_token_id]) + ids
            if len(whole) > tiny.CONTEXT:
                break
            with torch.no_grad():
                logs = lm(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
            sums.append(sum(float(logs[at - 1, whole[at]]) for at in range(len(whole) - len(ids), len(whole))))
        else:
            compared += 1
            assert line["log_likelihoods"] == pytest.approx(sums, abs=1e-3)
            assert line["right"] == (line["chosen"] == row["gold"]) and line["document"] == row["document"]
    assert compared > 15
    for task, numbers in found.items():
        own = [line["right"] for line in lines if line["task"] == task]
        assert numbers["accuracy"] == pytest.approx(sum(own) / len(own), abs=1e-6) and numbers["items"] == len(own)
        assert numbers["accuracy"] == numbers[numbers["headline"]]
        centered = (numbers["accuracy"] - numbers["chance"]) / (1 - numbers["chance"])
        assert numbers["centered"] == pytest.approx(centered, abs=1e-5)
    questions = [line for line in lines if line["task"] == QUESTIONS]
    assert len(questions) == 40 and len({line["document"] for line in questions}) > 3


def test_untrained(few: dict[str, list[Path]], first: Path, tmp_path: Path) -> None:
    """Of the shape of base, other weights, no samples; the same bytes again."""
    found = []
    for place in ("one", "two"):
        status, path = evaluate_base(
            few, tmp_path / place, name="untrained", seed=7, max_tokens=100
        )  # base has the weights of seed 0
        assert status == 0
        found.append({file.name: file.read_bytes() for file in path.parent.iterdir() if "run" not in file.name})
    assert found[0] == found[1] and "untrained.samples.jsonl" not in found[0]
    numbers, base = json.loads(found[0]["untrained.evaluation.json"]), Manifest.read(first).summary
    assert numbers["parameters"] == base["parameters"]
    assert numbers["heldout_text"]["loss"] != base["heldout_text"]["loss"]
    assert set(numbers["items"]) == set(base["items"])


def test_without_questions_and_without_validation_text(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    """A small corpus has neither: the model is evaluated on what there is, and the result says what is missing."""
    config = tiny.config("finetune.pairs", min_heldout=50_000)
    few = tmp_path / "pairs/manifest.json"
    assert pairs.main(["--config", config, "--corpus", *map(str, inputs["corpus"]), "--manifest", str(few)]) == 0
    with Writer(tmp_path / "tokens/validation/00000.docs.parquet", DOCS) as writer:
        pass
    Manifest("tokenize.encode", "0" * 16).write(tmp_path / "tokens/00000.manifest.json", [writer.path])
    given = {**inputs, "pairs": [few], "tokens": [tmp_path / "tokens/00000.manifest.json"]}
    given["tasks"] = [made_items(given, tmp_path / "items/manifest.json")]
    status, path = evaluate_base(given, tmp_path)
    assert status == 0
    summary = Manifest.read(path).summary
    assert summary["questions"] is None and summary["heldout_text"] is None
    assert [note.split(":")[0] for note in summary["notes"]] == [
        "No held-out questions were asked",
        "No loss was measured on held-out text",
    ]
    assert json.loads((tmp_path / "base.evaluation.json").read_text())["notes"] == summary["notes"]
    assert len((tmp_path / "base.samples.jsonl").read_text().splitlines()) == 4  # the prompts alone


def test_answers_that_are_all_too_long_are_said(few: dict[str, list[Path]], tmp_path: Path) -> None:
    status, path = evaluate_base(few, tmp_path, context=2, max_tokens=100)
    assert status == 0
    summary = Manifest.read(path).summary
    assert summary["questions"] is None and "longer than the context of 2 tokens" in summary["notes"][0]
