"""Pairs from files of instructions and conversations, in the layouts that are in use."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.finetune import pairs
from crawl2llm.training import pair_files
from crawl2llm.training.pair_layouts import check_pair_settings
from crawl2llm.training.pair_settings import PairsFile
from crawl2llm.training.special_tokens import EOS
from crawl2llm.training.template import CHAT, Template, read_pairs
from tests.unit.stages.finetune import tiny

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")
DATA = Path(os.environ.get("CRAWL2LLM_DATA", "data"))  # see CONTRIBUTING.md
ROWS = [{"question": f"What is {n}?", "answer": f"It is “{n}”,\tno\nless."} for n in range(40)]


def read(entry: dict[str, Any], reasons: Counter[str] | None = None) -> list[tuple[str, str, str]]:
    return list(
        pair_files.pairs(
            0,
            PairsFile(**{key: str(value) if key == "path" else value for key, value in entry.items()}),
            TEMPLATE,
            Counter() if reasons is None else reasons,
        )
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.ndjson.gz", "a.csv.zst"])
def test_formats(tmp_path: Path, name: str) -> None:
    rows = [{key: " ".join(value.split()) for key, value in row.items()} for row in ROWS] if "tsv" in name else ROWS
    path, plain = tmp_path / name, tmp_path / "plain"
    if "json" in name:
        whole = json.dumps(rows) if ".json" in Path(name).suffixes else "".join(json.dumps(row) + "\n" for row in rows)
        plain.write_text(whole, encoding="utf-8")
    else:
        with plain.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.DictWriter(handle, ["question", "answer"], delimiter="\t" if "tsv" in name else ",")
            writer.writeheader()
            writer.writerows(rows)
    raw = plain.read_bytes()
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(raw))
    assert read({"path": path}) == [(row["question"], row["question"], row["answer"]) for row in rows]


def test_layouts(tmp_path: Path) -> None:
    alpaca = [{"instruction": "Add.", "input": "1 and 2", "output": "3"}, {"instruction": "Sing.", "output": "La."}]
    openai = {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]},
        ]
    }
    sharegpt = {
        "conversations": [
            {"from": "human", "value": "Hi"},
            {"from": "gpt", "value": "Hello!"},
            {"from": "human", "value": "Bye"},
            {"from": "gpt", "value": "So long."},
            {"from": "human", "value": "?"},
        ]
    }
    made = {"a.json": alpaca, "c.json": [openai, sharegpt]}
    for name, rows in made.items():
        (tmp_path / name).write_text(json.dumps(rows))
    assert read({"path": tmp_path / "a.json", "layout": "alpaca"}) == [
        ("Add.\n1 and 2", "Add.\n1 and 2", "3"),
        ("Sing.", "Sing.", "La."),
    ]
    found = read({"path": tmp_path / "c.json", "layout": "chat"})
    last = f"Hi\nAnswer: Hello!{EOS}\nQuestion: Bye"
    assert found == [("Hi", "Be kind.\n\nHi", "Hello!"), ("Hi", "Hi", "Hello!"), ("Hi", last, "So long.")]
    (tmp_path / "s.tsv").write_text('a "good" film\t1\na bad one\t0\n')
    entry = {"path": tmp_path / "s.tsv", "columns": ["text", "label"], "question": "{text} Good?", "answer": "{label}"}
    assert [part[1:] for part in read(entry)] == [('a "good" film Good?', "1"), ("a bad one Good?", "0")]


def test_labels_are_words_and_the_choices_of_what_is_held_out(corpus: list[Path], tmp_path: Path) -> None:
    """Only a question that was trained on is contamination: all answers are the same words."""
    rows = [f"film number {n} is {'good' if n % 3 else 'bad'}\t{int(n % 3 > 0)}\n" for n in range(200)]
    path = tmp_path / "films.tsv"
    path.write_text("".join([*rows, "a film\t7\n", rows[0].replace("film number", "FILM  number")]))
    entry = {
        "path": str(path),
        "columns": ["text", "label"],
        "question": "{text}?",
        "answer": "{label}",
        "labels": {"0": "bad", "1": "good"},
        "heldout": 0.3,
    }
    manifest = make_pairs(tmp_path, corpus, files=[entry])
    train, held = (read_pairs(manifest.path, name)[0] for name in ("train", "heldout"))  # type: ignore[arg-type]
    assert len(train) + len(held) == 200 and {row["answer"] for row in train} == {"bad", "good"}
    assert all(row["choices"] == ["bad", "good"] and row["choices"][row["gold"]] == row["answer"] for row in held)
    assert manifest.counts["dropped"] == {"train_unknown_label": 1, "heldout_duplicate": 1} or manifest.counts[
        "dropped"
    ] == {"train_duplicate": 1, "train_unknown_label": 1}
    assert manifest.counts["in"] == 202 and manifest.summary["enough"] == {"train": True, "heldout": True}


def test_a_column_that_looks_like_a_template_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "{answer}?", "answer": "{question}"}))
    assert read({"path": tmp_path / "a.jsonl"}) == [("{answer}?", "{answer}?", "{question}")]


def test_what_is_no_pair_is_counted(tmp_path: Path) -> None:
    said = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}
    rows: list[Any] = [
        {"messages": said}, {"messages": said[::-1]}, {"messages": []}, {"messages": [said[0]]}, {"messages": "Hi"}, {}, [], 3,
        {"messages": [{**said[0], "content": None}, said[1]]}, {"messages": [{**said[0], "content": " "}, said[1]]},
        {"messages": [{**said[0], "content": "<|im_end|>"}, said[1]]}, {"messages": [said[0], {"role": "tool", "content": "x"}]},
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join([*map(json.dumps, rows), "{", "[" * 100_000, ""]))
    reasons = Counter[str]()
    assert len(read({"path": tmp_path / "a.jsonl", "layout": "chat"}, reasons)) == 1
    assert reasons == {"broken_row": 4, "no_turns": 4, "no_text": 3, "empty": 1, "special_token": 1}
    (tmp_path / "b.csv").write_text("question,answer\na,b\nc\nd,e,f\n")
    assert len(read({"path": tmp_path / "b.csv"}, reasons)) == 1 and reasons["broken_row"] == 6


@pytest.mark.parametrize(
    ("name", "content", "entry", "told"),
    [
        ("a.jsonl", b'{"text": "a"}', {}, "no row of .*a.jsonl is a pair by layout 'columns'; the first row has text"),
        ("a.jsonl", b"", {}, "the file has no row"),
        ("a.json", b"[1, ", {}, "a.json: not JSON: .*a row a line is .jsonl"),
        ("a.xlsx", b"PK", {}, "takes files .jsonl, .ndjson, .json, .csv, .tsv, bare or as .gz or .zst"),
        ("a.jsonl", b"\xff\xfe\xff", {}, "not UTF-8"),
        ("a.jsonl.gz", gzip.compress(b'{"question": "a", "answer": "b"}' * 99, mtime=0)[:-9], {}, "a.jsonl.gz: "),
        ("a.jsonl.zst", b"no frame", {}, "a.jsonl.zst: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, name: str, content: bytes, entry: dict[str, Any], told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told):
        read({"path": tmp_path / name, **entry})
    with pytest.raises(InputError, match="No such file"):
        read({"path": tmp_path / "gone.jsonl"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"files": []}, "both empty"),
        ({"files": [{"path": "a", "layout": "chat", "question": "{q}"}]}, r"files\[0\].question goes with layout: columns"),
        ({"files": [{"path": "a", "labels": {"0": "x", "1": "x"}}]}, r"files\[0\].labels is .* two different words or more"),
        ({"files": [{"path": "a"}, {"path": "b", "answer": "no hole"}]}, r"files\[1\].answer is 'no hole'; it must hold"),
    ],
)  # fmt: skip
def test_settings_that_find_nothing_are_refused_before_a_run(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        check_pair_settings([], [PairsFile(**entry) for entry in settings["files"]])


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(
    st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4),
    st.one_of(st.just(""), WORDS),
    st.sampled_from(
        ["Question: {question}\nAnswer: {answer}", "<|im_start|>{question}'s\n\"{answer}", "{question} {answer}"]
    ),
)
def test_a_chat_is_asked_as_it_was_trained(turns: list[tuple[str, str]], system: str, text: str) -> None:
    """The chat template, by transformers, gives the prompt that finetune.train and evaluate.model lay out."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template = Template.parse(text)
    messages = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": role, "content": words}
        for turn in turns
        for role, words in zip(("user", "assistant"), turn, strict=True)
    ]
    rendered, _ = render_jinja_template(
        [messages[:-1]], chat_template=template.chat_template(), add_generation_prompt=True
    )
    assert rendered == [template.prompt(template.conversation(system, turns[:-1], turns[-1][0]))]


def make_pairs(tmp_path: Path, corpus: list[Path], **settings: Any) -> Manifest:
    out = tmp_path / "manifest.json"
    config = tiny.config("finetune.pairs", patterns=[], min_train=1, min_heldout=4, **settings)
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    return Manifest.read(out)


def test_a_file_beside_the_corpus(corpus: list[Path], tmp_path: Path) -> None:
    """Every question is on one side, by its share; all that is left out is counted; the tokenizer gets the chat template."""
    rows = [{"question": f"What is {n}?", "answer": f"It is the number {n} and no other."} for n in range(300)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows[:9], {"question": "Why?"}]))
    manifest = make_pairs(tmp_path / "one", corpus, files=[{"path": str(path), "heldout": 0.2}])
    train, held = (read_pairs(manifest.path, name)[0] for name in ("train", "heldout"))  # type: ignore[arg-type]
    assert len(train) + len(held) == 300 and 30 < len(held) < 90
    assert manifest.counts["in"] == 310 == manifest.counts["kept"] + sum(manifest.counts["dropped"].values())
    assert manifest.summary["by_source"] == {"a.jsonl": {"train": len(train), "heldout": len(held)}}
    assert [row["of"] for row in manifest.summary["examples"]] == ["a.jsonl"] * pairs.EXAMPLES_SHOWN
    assert manifest.file(CHAT).read_text() == TEMPLATE.chat_template()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))  # another order, the same pairs
    again = make_pairs(tmp_path / "two", corpus, files=[{"path": str(path), "heldout": 0.2}])
    assert read_pairs(again.path, "train")[0] == train  # type: ignore[arg-type]
    few = make_pairs(tmp_path / "few", corpus, files=[{"path": str(path), "heldout": 0}]).summary["notes"]
    assert few[0].endswith("Give more rows in finetune.pairs.files, raise their `heldout`, or lower it."), "no patterns"


def test_the_pairs_of_a_conversation_name_it(corpus: list[Path], tmp_path: Path) -> None:
    """So that errors over documents count it once."""
    turns = [[f"Question {n} of {at}?", f"The answer {n} to {at}."] for at in range(9) for n in range(3)]
    path = tmp_path / "chats.jsonl"
    with path.open("w") as out:
        for at in range(0, len(turns), 3):
            said = [
                {"role": role, "content": text}
                for turn in turns[at : at + 3]
                for role, text in zip(("user", "assistant"), turn, strict=True)
            ]
            out.write(json.dumps({"messages": said}) + "\n")
    manifest = make_pairs(tmp_path / "out", corpus, files=[{"path": str(path), "layout": "chat", "heldout": 0.5}])
    assert manifest.path
    found = [row for name in ("train", "heldout") for row in read_pairs(manifest.path, name)[0]]
    by_document: dict[str, set[str]] = {}
    for row in found:
        by_document.setdefault(row["document"], set()).add(row["answer"].rpartition(" ")[2])
    assert len(found) == 27 and len(by_document) == 9 and all(len(chats) == 1 for chats in by_document.values())


REAL = {
    "alpaca_en_demo.json.zst": {"layout": "alpaca"},
    "v1_sft_demo.jsonl.zst": {"layout": "chat"},
    "gsm8k_train.jsonl.zst": {},
    "dialogsum.dev.jsonl.zst": {"question": "{dialogue}\nSummary?", "answer": "{summary}"},
    "train.tsv.zst": {"columns": ["text", "label"], "question": "{text}", "answer": "{label}", "labels": {"0": "bad", "1": "good"}},
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str, corpus: list[Path], tmp_path: Path) -> None:
    path = DATA / "sft" / name
    if not path.exists():
        pytest.skip(f"{path} is not here; set CRAWL2LLM_DATA")
    manifest = make_pairs(tmp_path, corpus, files=[{"path": str(path), **REAL[name]}], max_train=100_000)
    assert manifest.summary["train"] > 80
    assert manifest.counts["in"] == manifest.counts["kept"] + sum(manifest.counts["dropped"].values())


def test_two_files_of_one_name_are_refused() -> None:
    """Their pairs would have one name in the report and in finetune.train.pairs_of."""
    entries = [PairsFile(path=f"{folder}/train.jsonl", layout="alpaca") for folder in ("a", "b")]
    with pytest.raises(
        InputError, match=r"files\[1\]\.path is 'b/train\.jsonl', and 'a/train\.jsonl' has the same name"
    ):
        check_pair_settings([], entries)
    check_pair_settings([], [entries[0].model_copy(update={"heldout": 0.1}), entries[0]])
