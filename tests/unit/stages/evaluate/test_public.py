"""evaluate.stage and evaluate.public as programs: what data they take, and that what they find is what a plain computation finds."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.formats.public_tasks import core, presets, rows
from crawl2llm.formats.public_tasks.presets import PRESETS
from crawl2llm.formats.public_tasks.task_files import TaskFiles
from crawl2llm.stages.evaluate import public, stage
from crawl2llm.training.model_loading import load_model

DATA = Path(os.environ.get("CRAWL2LLM_DATA", "data"))  # see CONTRIBUTING.md
WORDS = ["The", "function", "returns", "a", "list", "of", "the", "names", "that", "its", "module", "has"]
Row = dict[str, Any]


def config(step: str, **changes: Any) -> str:
    """What `--config` takes of a step of public tasks."""
    complete = configuration.validate({"evaluate": {"public": {"threads": 1, **changes}}})
    return canonical_json({"step": step, "config": settings_of(step, complete)})


def save(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def copa(number: int) -> list[Row]:
    chance = np.random.default_rng(0)
    texts = [" ".join(chance.choice(WORDS, 4, replace=False)).capitalize() + "." for _ in range(3 * number)]
    return [
        {"premise": a, "choice1": b, "choice2": c, "question": ("cause", "effect")[at % 2], "label": at % 3 % 2}
        for at, (a, b, c) in enumerate(zip(*[iter(texts)] * 3, strict=True))
    ]


def stage_data(folder: Path, tmp_path: Path, names: list[str], **changes: Any) -> Path:
    out = tmp_path / "stage/manifest.json"
    given = config("evaluate.stage", presets=names, data=[str(folder)], **changes)
    assert stage.main(["--config", given, "--manifest", str(out)]) == 0
    return out


def ask_model(inputs: dict[str, list[Path]], made: Path, out: Path, name: str = "base", **changes: Any) -> Row:
    path = out / f"{name}.manifest.json"
    given = ["--model", str(inputs["model"][0]), "--staged", str(made), "--manifest", str(path)]
    assert public.main(["--config", config("evaluate.public", **changes), *given]) == 0
    found: Row = json.loads((out / f"{name}.public.json").read_text())
    return found


def likelihood(lm: Any, tokenizer: Any, context: str, answer: str) -> tuple[float, bool, int]:
    """(nats of an answer after a context, whether each of its tokens is the likeliest, their number), plainly; what they spell is text."""
    import torch

    before, whole = (tokenizer(text, split_special_tokens=True)["input_ids"] for text in (context, context + answer))
    with torch.no_grad():
        logs = lm(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
    nats = sum(float(logs[at - 1, whole[at]]) for at in range(len(before), len(whole)))
    greedy = all(int(logs[at - 1].argmax()) == whole[at] for at in range(len(before), len(whole)))
    return nats, greedy, len(whole) - len(before)


def test_copa_is_that_of_a_plain_computation(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    rows = copa(20)
    rows[3]["premise"] = "The list <|endoftext|> ends."  # as text
    save(tmp_path / "copa_validation.jsonl", rows)
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, ["copa"]), tmp_path / "out")["tasks"]["copa"]
    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    right, bits = 0, 0.0
    for row in rows:
        context = f"{row['premise'][:-1]} {'because' if row['question'] == 'cause' else 'therefore'}"
        nats = [  # two spaces: the harness's own choices begin with one, behind its delimiter
            likelihood(lm, tokenizer, context, f"  {row[key][0].lower()}{row[key][1:]}")[0]
            for key in ("choice1", "choice2")
        ]
        right += (nats[1] > nats[0]) == row["label"]
        bits -= nats[row["label"]] / math.log(2) / (len(row[f"choice{row['label'] + 1}"].encode()) + 2)
    assert found["bits_per_byte"] == pytest.approx(bits / 20, abs=1e-4) and found["bits_per_byte_stderr"] > 0
    assert found["accuracy"] == right / 20 and found["items"] == 20
    assert found["chance"] == 0.5 and found["centered"] == pytest.approx(2 * right / 20 - 1)
    assert found["cut_to_context"] == found["left_out_too_long"] == 0
    lines = [json.loads(line) for line in (tmp_path / "out/base.items.jsonl").read_text().splitlines()]
    assert sum(line["right"] for line in lines) == right and len({line["id"] for line in lines}) == 20


def test_core_is_that_of_a_plain_computation(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    free = [{"context": " ".join(WORDS[at : at + 4]), "continuation": WORDS[at + 4]} for at in range(6)]
    # One whose answer is what the model says, so that a greedy answer is found.
    import torch

    told = tokenizer("Names of the\nAnswer:", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        free.append(
            {
                "context": "Names of the",
                "continuation": tokenizer.decode(lm(told).logits[0, -1].argmax()).strip() or "x",
            }
        )
    choice = [
        {"query": f"{row['premise']}", "choices": [row["choice1"], row["choice2"]], "gold": row["label"]}
        for row in copa(8)
    ]
    schema = [
        {
            "context_options": [f"{word} {WORDS[at]}" for word in WORDS[:2]],
            "continuation": " ".join(WORDS[at + 1 : at + 4]),
            "gold": at % 2,
        }
        for at in range(6)
    ]
    save(tmp_path / "jeopardy_all.jsonl", free)
    save(tmp_path / "copa.jsonl", choice)
    save(tmp_path / "winograd_wsc.jsonl", schema)
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, ["core"]), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out/base.items.jsonl").read_text().splitlines()]
    by_task = {task: [line for line in lines if line["task"] == task] for task in found["tasks"]}
    for row, line in zip(choice, by_task["core.copa"], strict=True):
        means = [
            nats / number
            for nats, _, number in (likelihood(lm, tokenizer, row["query"], f" {c}") for c in row["choices"])
        ]
        assert line["chosen"] == means.index(max(means)) and line["right"] == (line["chosen"] == row["gold"])
    for row, line in zip(schema, by_task["core.winograd"], strict=True):
        means = [likelihood(lm, tokenizer, context, f" {row['continuation']}") for context in row["context_options"]]
        assert line["log_likelihoods"] == pytest.approx([nats for nats, _, _ in means], abs=1e-3)
    items = [json.loads(line) for line in (tmp_path / "stage/core.jeopardy.jsonl").read_text().splitlines()]
    for item, line in zip(items, by_task["core.jeopardy"], strict=True):
        assert item["before"].count("\nAnswer: ") == 6, "all other items, as there are no ten"
        assert core.example_text(core.TASKS["jeopardy"], item["row"]) not in item["before"].split("\n\n")
        context = f"{item['before']}{item['row']['context']}\nAnswer:"
        assert line["right"] == likelihood(lm, tokenizer, context, f" {item['row']['continuation']}")[1]
    centered = [found["tasks"][f"core.{name}"]["centered"] for name in ("jeopardy", "copa", "winograd")]
    assert found["core"]["centered"] == pytest.approx(sum(centered) / 3, abs=1e-5)
    assert (found["core"]["tasks"], found["core"]["of"], len(found["core"]["missing"])) == (3, 22, 19)


def test_too_long_for_the_context(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    long = " ".join(WORDS * 12)  # more than the 64 tokens of the model
    rows = [
        {"subject": "astronomy", "question": question, "choices": ["a", "b", "c", "d"], "answer": 1}
        for question in ("Which?", long)
    ]
    save(tmp_path / "mmlu_test.jsonl", rows)
    save(tmp_path / "mmlu_dev.jsonl", [{**rows[0], "question": f"Which of {number}?"} for number in range(5)])
    save(
        tmp_path / "piqa.jsonl",
        [
            {"goal": "To do", "sol1": long, "sol2": "it", "label": 1},
            {"goal": "To", "sol1": "a", "sol2": "b", "label": 0},
        ],
    )
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, ["mmlu", "piqa"]), tmp_path / "out")["tasks"]
    assert (found["mmlu"]["items"], found["mmlu"]["cut_to_context"], found["mmlu"]["shots"]) == (2, 2, 5)
    assert (found["piqa"]["items"], found["piqa"]["left_out_too_long"], found["piqa"]["rows"]) == (1, 1, 2)
    assert Manifest.read(tmp_path / "out/base.manifest.json").counts == {"in": 4, "kept": 3, "dropped": {"too_long": 1}}


def test_mmlu_as_cloze_has_no_examples(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    choices = ["Io", "Mars", "Sun", "Moon"]
    row = {"subject": "astronomy", "question": "Which?", "choices": choices, "answer": 1}
    save(tmp_path / "mmlu_test.jsonl", [row])
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, ["mmlu_cloze"]), tmp_path / "out")["tasks"]["mmlu_cloze"]
    (line,) = (json.loads(line) for line in (tmp_path / "out/base.items.jsonl").read_text().splitlines())
    assert (found["items"], found["shots"]) == (1, 0)
    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    head = "The following are questions (with answers) about astronomy.\n\nQuestion: Which?\nAnswer:"
    nats = [likelihood(lm, tokenizer, head, f" {choice}")[0] for choice in choices]
    assert line["log_likelihoods"] == pytest.approx(nats, abs=1e-3)
    assert found["bits_per_byte"] == pytest.approx(-nats[1] / math.log(2) / len(" Mars"), abs=1e-4)


def test_blimp_is_asked_by_phenomenon(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    for at, name in enumerate(("adjunct_island", "causative")):
        good, bad = " ".join(WORDS[at : at + 5]), " ".join(WORDS[at : at + 5][::-1])
        save(tmp_path / f"{name}.jsonl", [{"sentence_good": good, "sentence_bad": bad, "UID": name, "field": "syntax"}])
    ask_model(inputs, stage_data(tmp_path, tmp_path, ["blimp"]), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out/base.items.jsonl").read_text().splitlines()]
    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    assert [line["part"] for line in lines] == ["adjunct_island", "causative"]
    for at, line in enumerate(lines):
        said = WORDS[at : at + 5]
        nats = [likelihood(lm, tokenizer, tokenizer.eos_token, f" {' '.join(part)}")[0] for part in (said, said[::-1])]
        assert line["right"] == (nats[0] > nats[1])


def test_examples_stand_before_the_question_as_the_harness_lays_them_out(tmp_path: Path) -> None:
    from lm_eval.api.task import ConfigurableTask

    row = {"subject": "astronomy", "question": "Which?", "choices": ["Io", "Mars", "Sun", "Moon"], "answer": 1}
    made = public.task_definition("mmlu", "astronomy", [row], [{**row, "answer": 2}] * 5, int)
    task = ConfigurableTask(config=made)
    text = "Which?\nA. Io\nB. Mars\nC. Sun\nD. Moon\nAnswer:"
    head = "The following are multiple choice questions (with answers) about astronomy.\n\n"
    assert task.fewshot_context(row, 5) == head + f"{text} C\n\n" * 5 + text


def test_gsm8k_is_generated_and_read(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    rows = [
        {"question": f"How much is {number} and 1?", "answer": f"It is {number + 1}.\n#### {number + 1}"}
        for number in range(8)
    ]
    save(tmp_path / "gsm8k_test.jsonl", rows[:3])
    save(tmp_path / "gsm8k_train.jsonl", rows[3:])
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, ["gsm8k"]), tmp_path / "out")["tasks"]["gsm8k"]
    assert (found["items"], found["chance"], found["accuracy"], found["cut_to_context"]) == (3, 0.0, 0.0, 3)


def test_humaneval_is_written_and_run(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    row = {
        "prompt": 'def one():\n    """The number one."""\n', "canonical_solution": "    return 1\n", "entry_point": "one",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }  # fmt: skip
    save(tmp_path / "human_eval.jsonl", [{**row, "task_id": "a"}, {**row, "prompt": "return = 1\n" + row["prompt"]}])
    names = ["humaneval", "humaneval_instruct"]
    made = stage_data(tmp_path, tmp_path, names)
    with pytest.raises(AssertionError):  # the second prompt is no Python, so that its tests cannot run
        ask_model(inputs, made, tmp_path / "out")
    save(tmp_path / "human_eval.jsonl", [row])
    found = ask_model(inputs, stage_data(tmp_path, tmp_path, names), tmp_path / "out")["tasks"]
    lines = [json.loads(line) for line in (tmp_path / "out/base.items.jsonl").read_text().splitlines()]
    assert [line["task"] for line in lines] == names and all(line["failed"] for line in lines)
    assert all(found[name]["accuracy"] == found[name]["chance"] == 0.0 for name in names)
    sample = {"arguments": [("", {"max_gen_toks": 8})]}
    bounded = public.BoundedScorer(
        public.harness.language_model(*load_model(inputs["model"][0].parent / "model"), context=64, batch_size=1)
    )
    answers = ["    return 1\n", "    return 2\n", "    return 1\n```\nIt returns one."]
    for name, right in (("humaneval", [True, False, False]), ("humaneval_instruct", [True, False, True])):
        samples = [
            ("", {"id": answer, "row": row}, ("a", 0), {**sample, "filtered_resps": [answer]}) for answer in answers
        ]
        outcomes = public.judge_samples(name, samples, bounded, 2)
        assert [outcome.right for outcome in outcomes] == right


def test_limit_is_by_hash_and_not_by_place() -> None:
    names = [f"{number:032x}" for number in range(100)]
    few, more = ({names[at] for at in stage.choose_places(names, limit, 0)} for limit in (5, 20))
    assert few < more and len(few) == 5 and few != set(names[:5])
    turned = names[::-1]
    assert (
        {turned[at] for at in stage.choose_places(turned, 5, 0)}
        == few
        != {names[at] for at in stage.choose_places(names, 5, 1)}
    )
    assert stage.choose_places(names, None, 0) == list(range(100))


def test_files_in_folders_and_archives_are_the_same(tmp_path: Path) -> None:
    rows = copa(3)
    plain = save(tmp_path / "super_glue_copa_validation.jsonl", rows).read_bytes()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, data in (("a/copa.jsonl", plain), ("a/b/copa_validation.jsonl.zst", zstandard.compress(plain))):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    (tmp_path / "all.tar.zst").write_bytes(zstandard.compress(whole.getvalue()))
    found = TaskFiles([str(tmp_path)], presets.item_file_names(PRESETS["copa"])).files_named(
        presets.item_file_names(PRESETS["copa"])
    )
    assert [data for _, data in found] == [plain] * 3
    assert found[0][0] == f"{tmp_path.name}/all.tar.zst/a/b/copa_validation.jsonl.zst"


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("copa", {"label": 2}, "copa.jsonl, line 3: column 'label' is 2; it must be one of 0, 1"),
        ("copa", {"premise": " "}, "line 3: column 'premise' is \" \"; it must be text that is not empty"),
        ("copa", "no object", "line 3: str; each line must be a JSON object"),
        (
            "sciq",
            {},
            "sciq.jsonl, line 1: columns choice1, choice2, label, premise, question; this task needs question, support,",
        ),
        ("blimp", {}, "evaluate.public.presets has 'blimp', and evaluate.public.data"),
    ],
)
def test_bad_data_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, row: Any, told: str) -> None:
    rows: list[Any] = copa(3)
    rows[2] = {**rows[2], **row} if isinstance(row, dict) else row
    if name != "blimp":
        save(tmp_path / f"{name}.jsonl", rows)
    given = config("evaluate.stage", presets=[name], data=[str(tmp_path)])
    assert stage.main(["--config", given, "--manifest", str(tmp_path / "out/manifest.json")]) == 1
    assert told in capfd.readouterr().err


def test_the_hub_s_layout_and_that_of_llm_foundry_are_one_question(tmp_path: Path) -> None:
    labeled = {"question": "Which?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
    other = {"query": "Question: Which?", "choices": ["a", "b"], "gold": 1}
    files = [("one", json.dumps(labeled).encode()), ("two", json.dumps(other).encode())]
    first, second = rows.rows_in_layout(files, PRESETS["arc_easy"])
    assert first == second


def test_copied_from_a_data_set_of_the_hub_s_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` reads a folder of a data set's name like the data set: here without a network."""
    folder = tmp_path / "aps/super_glue"
    folder.mkdir(parents=True)
    rows = copa(4)
    save(folder / "copa.jsonl", rows)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: copa\n  data_files:\n  - split: validation\n    path: copa.jsonl\n---\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out/manifest.json"
    given = config("evaluate.stage", presets=["copa"], hub=True)
    assert stage.main(["--config", given, "--manifest", str(out)]) == 0
    assert [json.loads(line)["row"] for line in (tmp_path / "out/copa.jsonl").read_text().splitlines()] == rows


def test_real_data(tmp_path: Path) -> None:
    if not (DATA / "eval").is_dir():
        pytest.skip(f"{DATA / 'eval'} is not here; set CRAWL2LLM_DATA")
    names = [name for name in PRESETS if name != "blimp"]
    given = config(
        "evaluate.stage",
        presets=[*names, "core"],
        data=[str(DATA / "eval"), str(DATA / "sft/gsm8k_train.jsonl.zst")],
        limit=1000,
    )
    out = tmp_path / "manifest.json"
    assert stage.main(["--config", given, "--manifest", str(out)]) == 0
    found = Manifest.read(out).summary["presets"]
    rows = {name: found[name]["rows"] for name in names}
    assert rows == {
        "hellaswag": 1000, "arc_easy": 2376, "arc_challenge": 1172, "piqa": 1838, "winogrande": 1267, "lambada": 5153, "boolq": 3270,
        "openbookqa": 500, "copa": 100, "commonsense_qa": 1221, "sciq": 1000, "siqa": 1954, "mmlu": 14042, "mmlu_cloze": 14042,
        "triviaqa": 3000, "gsm8k": 1319, "humaneval": 164, "humaneval_instruct": 164,
    }  # fmt: skip
    assert found["core"]["missing"] == ["squad", "coqa", "bigbench_language_identification"]
    # What HellaSwag's definition makes of a row that was rebuilt is the question as it was given.
    from lm_eval.tasks.hellaswag.utils import preprocess

    for line in (tmp_path / "core.hellaswag_zeroshot.jsonl").read_text().splitlines():
        row = json.loads(line)["row"]
        label, _, rest = row["query"].partition(": ")
        assert preprocess(f"{label}: {rest} ") == row["query"]


FOUR = {"query": "a: b", "choices": ["a", "b", "c", "d"]}
ENDINGS = {"activity_label": "a", "ctx_a": "x", "ctx_b": "y", "endings": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("hellaswag", json.dumps({**ENDINGS, "label": ""}), "label"),
        ("hellaswag", json.dumps({**FOUR, "gold": "B"}), "gold"),
        ("hellaswag", json.dumps({**FOUR, "gold": float("nan")}), "gold"),
        ("hellaswag", json.dumps({**FOUR, "gold": 0}).replace("0}", "1e999}"), "gold"),
        ("arc_easy", json.dumps({"query": "Question: b", "choices": list("abcdefghijkl"), "gold": 11}), "choices"),
    ],
)
def test_what_a_column_cannot_hold_is_named(name: str, text: str, column: str) -> None:
    with pytest.raises(InputError, match=rf"f.jsonl, line 1: column '{column}' is .*; it must be a"):
        rows.rows_in_layout([("f.jsonl", text.encode())], PRESETS[name])


def test_a_gold_of_core_that_is_no_number_is_named(tmp_path: Path) -> None:
    save(tmp_path / "copa.jsonl", [{"query": "a", "choices": ["x", "y"], "gold": "first"}])
    given = TaskFiles([str(tmp_path)], ["copa"])
    with pytest.raises(
        InputError, match=r"copa.jsonl, line 1: column 'gold' is .first.; it must be a place in choices"
    ):
        stage.stage_core(given, SETTINGS, tmp_path)


@pytest.mark.parametrize("gold", [1, 1.0, "1"])
def test_a_place_is_a_whole_number_however_it_is_written(gold: Any) -> None:
    def row(name: str, given: Row) -> Row:
        return rows.rows_in_layout([("f.jsonl", json.dumps(given).encode())], PRESETS[name])[0]

    assert row("hellaswag", {**FOUR, "gold": gold})["label"] == "1"
    assert row("hellaswag", {**ENDINGS, "label": gold})["label"] == "1"
    assert row("arc_easy", {**FOUR, "gold": gold})["answerKey"] == "B"
    answer = row("mmlu", {"subject": "x", "question": "b", "choices": FOUR["choices"], "answer": gold})["answer"]
    assert answer == 1 and type(answer) is int


def test_a_log_likelihood_that_is_no_number_is_refused() -> None:
    sample = {"arguments": [], "filtered_resps": [[float("nan"), False], [-1.0, False]], "acc": 1.0}
    with pytest.raises(InputError, match=r"copa, item i: .*nan, -1.0"):
        public.item_outcome("copa", "", {"id": "i"}, ("copa", 0), sample, Any)  # type: ignore[arg-type]

    class Model:
        max_length = 64

        def _loglikelihood_tokens(self, requests: list[Any], disable_tqdm: bool) -> list[tuple[float, bool]]:
            return [(float("nan"), False)] * len(requests)

    class Words:
        eos_token_id = 0

        def __call__(self, text: str, add_special_tokens: bool) -> Row:
            return {"input_ids": list(text.encode())}

    item = {"id": "i", "row": {"query": "a", "choices": ["x", "y"], "gold": 0}, "before": ""}
    with pytest.raises(InputError, match=r"core.copa, item i: the model"):
        public.core_outcomes(Model(), Words(), "copa", [item])


SETTINGS = stage.Task(presets=[], seed=0, limit=None, hub=False, data=[])


@pytest.mark.parametrize("number", [0, 2])
def test_a_subject_with_too_few_examples_is_named(tmp_path: Path, number: int) -> None:
    def rows(subject: str, many: int) -> list[Row]:
        one = {"subject": subject, "choices": ["a", "b", "c", "d"], "answer": 0}
        return [{**one, "question": f"q{at}"} for at in range(many)]

    save(tmp_path / "mmlu_test.jsonl", rows("anatomy", 2) + rows("astronomy", 2))
    save(tmp_path / "mmlu_dev.jsonl", rows("anatomy", 5) + rows("astronomy", number))
    given = TaskFiles([str(tmp_path)], ["mmlu_test", "mmlu_dev"])
    with pytest.raises(
        InputError, match=rf"mmlu_dev.jsonl: {number} rows with subject 'astronomy'; .* must have 5 or more"
    ):
        stage.stage_preset("mmlu", given, SETTINGS, tmp_path)


def test_no_row_of_core_is_shown_its_own_answer(tmp_path: Path) -> None:
    rows = [{"context": name, "continuation": name.upper()} for name in ("a", "b", "a", "c", "a")]
    save(tmp_path / "jeopardy_all.jsonl", rows)
    found, _ = stage.stage_core(TaskFiles([str(tmp_path)], ["jeopardy_all"]), SETTINGS, tmp_path)
    assert found["tasks"]["jeopardy"]["shots"] == 4, "as many as there are"
    items = [json.loads(line) for line in (tmp_path / "core.jeopardy.jsonl").read_text().splitlines()]
    shown = [sorted(item["before"].replace("\nAnswer: ", "").split()) for item in items]
    of_a = ["bB", "cC"]
    assert shown == [of_a, ["aA", "aA", "aA", "cC"], of_a, ["aA", "aA", "aA", "bB"], of_a]


def test_blimp_of_one_file_and_of_many_is_counted_once(tmp_path: Path) -> None:
    rows = [{"sentence_good": f"g {at}", "sentence_bad": f"b {at}", "UID": "adjunct_island"} for at in range(5)]
    save(tmp_path / "blimp.jsonl", rows)
    save(tmp_path / "adjunct_island.jsonl", rows)
    given = TaskFiles([str(tmp_path)], ["blimp", "adjunct_island"])
    found, _ = stage.stage_preset("blimp", given, SETTINGS, tmp_path)
    assert (found["rows"], found["items"]) == (5, 5)


def test_half_of_a_surrogate_pair_is_named() -> None:
    row = {"goal": "x\ud83d", "sol1": "a", "sol2": "b", "label": 1}
    with pytest.raises(InputError, match=r"f.jsonl, line 1: column 'goal' holds '.ud83d', half of a surrogate pair"):
        rows.rows_in_layout([("f.jsonl", json.dumps(row).encode())], PRESETS["piqa"])
