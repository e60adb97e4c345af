"""align.pairs: the layouts of files, what is dropped and counted, what is held out, what is refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import batches
from crawl2llm.stages.align.layouts import parse_row
from crawl2llm.stages.align.pairs import Task, from_file, read_rows, rows_with_split
from crawl2llm.stages.align.settings import PairsFile
from crawl2llm.stages.finetune.pairs import from_files
from crawl2llm.stages.finetune.settings import PairsSettings as FinetuneSettings
from crawl2llm.training.pair_layouts import RowError
from crawl2llm.training.template import Template
from tests.unit.stages.align.rows import made_from

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")
USER = {"role": "user", "content": "Why?"}
HUMAN = {"from": "human", "value": "Why?"}
SAID = {"role": "assistant", "content": "So."}
OTHER = {"role": "assistant", "content": "No."}


def deep() -> list[Any]:
    """A list in a list in a list…, deeper than Python calls functions."""
    found: list[Any] = ["Why?"]
    for _ in range(20_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "So.", "rejected": "No."},
        {"prompt": [USER], "chosen": [SAID], "rejected": [OTHER]},
        {"chosen": [USER, SAID], "rejected": [USER, OTHER]},  # the prompt in the answers, as TRL allows
        {
            "conversations": [HUMAN],
            "chosen": {"from": "gpt", "value": "So."},
            "rejected": {"from": "gpt", "value": "No."},
        },
    ],
)
def test_layouts_of_preferences(row: dict[str, Any]) -> None:
    assert parse_row(row, "preference", TEMPLATE)[1] == {"question": "Why?", "chosen": "So.", "rejected": "No."}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, SAID], "label": False},
        {"prompt": "Why?", "completion": "So.", "label": "false"},
        {"prompt": [USER], "completion": [SAID], "label": 0},
        {"conversations": [HUMAN, {"from": "gpt", "value": "So."}], "label": False},
    ],
)
def test_layouts_of_labels(row: dict[str, Any]) -> None:
    assert parse_row(row, "labels", TEMPLATE)[1] == {"question": "Why?", "answer": "So.", "label": False}


def test_prompts_may_have_an_answer() -> None:
    assert parse_row({"question": "2+2?", "answer": 4}, "prompts", TEMPLATE)[1] == {"question": "2+2?", "answer": "4"}
    assert parse_row({"messages": [USER]}, "prompts", TEMPLATE)[1] == {"question": "Why?"}


def test_a_conversation_is_laid_out_as_in_fine_tuning() -> None:
    said = [{"role": "system", "content": "Be short."}, USER, SAID, {"role": "user", "content": "Sure?"}]
    first, found = parse_row({"prompt": said, "chosen": "Yes.", "rejected": "No."}, "preference", TEMPLATE)
    assert found["question"] == TEMPLATE.conversation("Be short.", [("Why?", "So.")], "Sure?") and first == "Why?"


def rows_of(path: Path, *rows: dict[str, Any]) -> dict[str, str]:
    """An entry of align.pairs.files for a file of rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"path": str(path)}


def sides(dropped: Counter[str], *entries: dict[str, Any], asked: frozenset[str] = frozenset()) -> dict[str, set[str]]:
    """{split: questions} of files."""
    found: dict[str, set[str]] = {"train": set(), "heldout": set()}
    settings = Task.model_validate({"files": list(entries), "seed": 1})
    for split, row in rows_with_split(settings, Path(), TEMPLATE, dropped, asked):
        found[split].add(row["question"])
    return found


def test_the_turns_of_a_conversation_are_on_one_side(tmp_path: Path) -> None:
    firsts = [{"role": "user", "content": f"Question {number}?"} for number in range(60)]
    rows = [
        {"prompt": prompt, "chosen": "Yes.", "rejected": "No."}
        for first in firsts
        for prompt in ([first], [first, SAID, USER])
    ]
    found = sides(Counter(), rows_of(tmp_path / "rows.jsonl", *rows) | {"heldout": 0.4})
    for first in firsts:
        turns = {first["content"], TEMPLATE.conversation("", [(first["content"], "So.")], "Why?")}
        assert turns <= found["train"] or turns <= found["heldout"]
    assert 20 < len(found["heldout"]) < 100


def test_questions_that_fine_tuning_holds_out_are_not_trained_on(questions: Path, tmp_path: Path) -> None:
    asked = [json.loads(line)["question"] for line in (questions.parent / "heldout.jsonl").read_text().splitlines()]
    told = {"chosen": "Yes.", "rejected": "No."}
    said = [{"role": "user", "content": asked[1]}, SAID, USER]
    rows = [{"prompt": asked[0].upper(), **told}, {"prompt": said, **told}, {"prompt": "Mine?", **told}]
    made = made_from(rows, tmp_path, questions, heldout=0)
    assert [row["question"] for row in read_rows(made, "train")[0]] == ["Mine?"]
    counts = Manifest.read(made).counts
    assert counts == {"in": 3, "kept": 1, "dropped": {"contaminated": 2}}


def test_both_steps_hold_out_the_same_questions(tmp_path: Path) -> None:
    pairs = [{"question": f"Q{number}?", "answer": "yes"} for number in range(200)]
    entry = rows_of(tmp_path / "rows.jsonl", *pairs) | {"heldout": 0.3}
    settings = FinetuneSettings(files=[entry], seed=1, template=TEMPLATE.text)
    tuned = {row["question"] for row in from_files(settings, "validation", Counter())}
    entry = rows_of(tmp_path / "rows.jsonl", *({"prompt": row["question"]} for row in pairs)) | {"layout": "prompts"}
    assert sides(Counter(), entry | {"heldout": 0.3})["heldout"] == tuned


def test_a_question_in_files_with_other_shares_is_on_one_side(tmp_path: Path) -> None:
    rows = [{"prompt": f"Q{number}?", "chosen": "yes", "rejected": "no"} for number in range(100)]
    few, many = (rows_of(tmp_path / f"{name}.jsonl", *rows) for name in ("few", "many"))
    dropped = Counter[str]()
    found = sides(dropped, few, many | {"heldout": 0.5}, few | {"heldout": 0})
    assert len(found["train"] | found["heldout"]) == 100 and 30 < len(found["heldout"]) < 70
    assert not found["train"] & found["heldout"]
    alone = sides(Counter(), few)["heldout"]
    assert dropped == {"held_elsewhere": 2 * len(found["heldout"]) - len(alone)}


@pytest.mark.parametrize(
    ("row", "layout", "why"),
    [
        ({"prompt": "Why?", "chosen": "So."}, "preference", "no_text"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "So."}, "preference", "same_answers"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": ""}, "preference", "empty"),
        ({"prompt": "Why?", "chosen": "So.<|im_end|>", "rejected": "No."}, "preference", "special_token"),
        ({"prompt": [USER, SAID], "chosen": "So.", "rejected": "No."}, "preference", "no_turns"),
        ({"prompt": "Why?", "chosen": [USER], "rejected": "No."}, "preference", "no_turns"),
        ({"messages": [USER, SAID]}, "labels", "no_label"),
        ({"messages": [USER, SAID], "label": "perhaps"}, "labels", "no_label"),
        ({"messages": [SAID], "label": True}, "labels", "no_turns"),
        ({"answer": "4"}, "prompts", "no_turns"),
        ({"chosen": [USER, SAID], "rejected": [{**USER, "content": "How?"}, OTHER]}, "preference", "other_question"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "No\ud83d"}, "preference", "broken_row"),
        ({"prompt": [{**USER, "content": deep()}], "chosen": "So.", "rejected": "No."}, "preference", "broken_row"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "No.", "more": deep()}, "preference", "broken_row"),
    ],
)
def test_what_is_dropped(row: dict[str, Any], layout: str, why: str) -> None:
    with pytest.raises(RowError, match=f"^{why}$"):
        parse_row(row, layout, TEMPLATE)


def test_rows_are_counted_and_a_question_is_on_one_side(questions: Path, tmp_path: Path) -> None:
    good = [{"prompt": f"Q{n // 2}?", "chosen": f"yes {n}", "rejected": "no"} for n in range(80)]
    bad = [{"prompt": "x", "chosen": "a"}, {"prompt": "x", "chosen": "a", "rejected": "a"}, good[0]]
    made = made_from(good + bad, tmp_path, questions, heldout=0.3)
    manifest = Manifest.read(made)
    assert manifest.counts["in"] == 83 and manifest.counts["kept"] == 80
    dropped = manifest.counts["dropped"]
    assert (dropped["no_text"], dropped["same_answers"], sum(dropped.values())) == (1, 1, 3)
    sides = [{row["question"] for row in read_rows(made, name)[0]} for name in ("train", "heldout")]
    assert not sides[0] & sides[1] and 4 < len(sides[1]) < 20


def test_rows_with_a_long_answer_are_dropped_before_the_most_are_counted(tmp_path: Path) -> None:
    rows = [{"prompt": f"Q{n}?", "chosen": "yes " * (1 + n % 4), "rejected": f"no {n}"} for n in range(40)]
    settings = Task.model_validate(
        {"files": [rows_of(tmp_path / "rows.jsonl", *rows) | {"heldout": 0.3}], "max_answer_words": 2}
    )
    dropped = Counter[str]()
    kept = [row for _, row in rows_with_split(settings, Path(), TEMPLATE, dropped)]
    assert len(kept) == dropped["long"] == 20 and all(len(row["chosen"].split()) <= 2 for row in kept)


def test_without_files_the_questions_are_prompts(questions: Path, tmp_path: Path) -> None:
    from crawl2llm.stages.align import pairs
    from tests.unit.stages.finetune import tiny

    out = tmp_path / "manifest.json"
    assert pairs.main(["--config", tiny.config("align.pairs"), "--pairs", str(questions), "--manifest", str(out)]) == 0
    rows, template = read_rows(out, "heldout")
    asked = [json.loads(line) for line in (questions.parent / "heldout.jsonl").read_text().splitlines()]
    assert {row["question"]: row["answer"] for row in rows} == {row["question"]: row["answer"] for row in asked}
    assert template == TEMPLATE
    with pytest.raises(
        InputError,
        match=r"align\.train\.method is 'dpo', which takes rows of layout preference; align\.pairs has prompts",
    ):
        batches.rows_for("dpo", out, "train")


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a"}\n')
    with pytest.raises(
        InputError,
        match=r"align\.pairs\.files\[2\]: no row of .* is of layout 'labels' .*no_label 1; the first row has text",
    ):
        list(from_file(2, PairsFile(path=str(file), layout="labels"), TEMPLATE, Counter()))
    with pytest.raises(InputError, match=r"align\.pairs\.files\[0\]\.path is rows\.csv; allowed are files \.jsonl"):
        list(from_file(0, PairsFile(path="rows.csv"), TEMPLATE, Counter()))


def test_preferences_are_labelled_answers_too() -> None:
    rows = [{"id": str(n), "question": f"q{n}", "chosen": f"c{n}", "rejected": f"r{n}", "of": "f"} for n in range(3)]
    found = batches.labelled_answers(rows)
    assert sorted((row["answer"], row["label"]) for row in found) == sorted(
        [(f"c{n}", True) for n in range(3)] + [(f"r{n}", False) for n in range(3)]
    )
    assert all(row["other"][1:] != row["answer"][1:] for row in found), "an answer to another question"


def test_a_question_once_has_its_first_good_answer() -> None:
    rows = [
        {"id": str(number), "question": question, "answer": answer, "label": label}
        for number, (question, answer, label) in enumerate(
            [("q", "bad", False), ("q", "good", True), ("q", "better", True), ("other", "bad", False)]
        )
    ]
    assert [(row["id"], row.get("answer")) for row in batches.unique_questions(rows)] == [("0", "good"), ("3", None)]


@pytest.mark.skipif("CRAWL2LLM_DATA" not in os.environ, reason="CRAWL2LLM_DATA names no folder of third-party data")
@pytest.mark.parametrize(("name", "layout", "kept"), [("dpo", "preference", 295), ("kto", "labels", 300)])
def test_published_files(questions: Path, tmp_path: Path, name: str, layout: str, kept: int) -> None:
    from crawl2llm.stages.align import pairs
    from tests.unit.stages.finetune import tiny

    file = Path(os.environ["CRAWL2LLM_DATA"], f"preference/{name}_en_demo.json.zst")
    config = tiny.config("align.pairs", files=[{"path": str(file), "layout": layout}])
    out = tmp_path / "manifest.json"
    assert pairs.main(["--config", config, "--pairs", str(questions), "--manifest", str(out)]) == 0
    assert Manifest.read(out).counts["kept"] == kept


def test_preferences_of_a_model_s_own_answers(base_model: Path, questions: Path, tmp_path: Path) -> None:
    """The best and the worst of an answer's draws by the rule; drawn again they are the same."""
    from crawl2llm.stages.align import pairs
    from tests.unit.stages.finetune import tiny

    file = tmp_path / "vowels.py"
    file.write_text("def share(question, answer, reference):\n    return sum(letter in 'aeiou' for letter in answer)\n")
    changes = {
        "from": "base",
        "rewards": [{"function": f"{file}:share"}],
        "answers": 4,
        "max_new_tokens": 8,
        "threads": 1,
    }
    outs = [tmp_path / name / "manifest.json" for name in ("a", "b")]
    for out in outs:
        options = [
            "--config",
            tiny.config("align.pairs", **changes),
            "--pairs",
            str(questions),
            "--model",
            str(base_model),
        ]
        assert pairs.main([*options, "--manifest", str(out)]) == 0
    rows = [row for name in ("train", "heldout") for row in read_rows(outs[0], name)[0]]
    count = [
        sum(letter in "aeiou" for letter in row["chosen"]) - sum(letter in "aeiou" for letter in row["rejected"])
        for row in rows
    ]
    assert len(rows) > 20 and min(count) > 0 and {row["of"] for row in rows} == {"sampled from base"}
    counts = Manifest.read(outs[0]).counts
    assert counts["kept"] + sum(counts["dropped"].values()) == counts["in"]
    for name in ("preference.train.jsonl", "preference.heldout.jsonl"):
        assert (outs[0].parent / name).read_bytes() == (outs[1].parent / name).read_bytes()
