"""finetune.pairs on real pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain.config import validate
from crawl2llm.chain.steps import extra_settings
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.stages.finetune import pairs
from crawl2llm.text.text_key import text_key
from crawl2llm.training import template as template_module
from crawl2llm.training.template import Template, read_pairs
from tests.unit.stages.finetune import tiny

DIGITS = str.maketrans("", "", "0123456789")


def test_real_pages(pairs_manifest: Path) -> None:
    train, template = read_pairs(pairs_manifest, "train")
    held, _ = read_pairs(pairs_manifest, "heldout")
    manifest = Manifest.read(pairs_manifest)
    assert (len(train), len(held)) == (300, 60) == (manifest.summary["train"], manifest.summary["heldout"])
    assert manifest.counts["dropped"]["heldout_contaminated"] > 0
    for field in ("question", "answer"):
        assert not {text_key(p[field]) for p in train} & {text_key(p[field]) for p in held}
    assert len({text_key(p["question"]) for p in train}) == len(train)
    assert template.prompt("Why?") == "Question: Why?\nAnswer:"
    assert template.completion("So.") == " So."
    for row in held:
        assert row["choices"][row["gold"]] == row["answer"]
        assert len({text_key(choice) for choice in row["choices"]}) == pairs.CHOICES
    assert {row["gold"] for row in held} == {0, 1, 2, 3}


def test_a_pair_names_its_document(corpus: list[Path], pairs_manifest: Path) -> None:
    for name, split in (("train", "train"), ("heldout", "validation")):
        texts = {
            row["id"]: " ".join(row["text"].split()) for file in pairs.split_files(corpus, split) for row in rows(file)
        }
        found, _ = read_pairs(pairs_manifest, name)
        assert all(pair["answer"] in texts[pair["document"]] for pair in found)


def test_contamination_counts_pairs_over_the_maximum(corpus: list[Path], tmp_path: Path) -> None:
    """A held-out answer that any training document holds is out, also where `max_train` leaves that pair out."""
    kept = []
    for number, most in enumerate((5, 100_000)):
        out = tmp_path / str(number) / "manifest.json"
        config = tiny.config("finetune.pairs", max_train=most, min_train=1)
        assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
        kept.append((out.parent / "heldout.jsonl").read_bytes())
    assert kept[0] == kept[1]


def test_order_of_shards_does_not_matter(corpus: list[Path], pairs_manifest: Path, tmp_path: Path) -> None:
    config = tiny.config("finetune.pairs", max_train=300, max_heldout=60)
    out = tmp_path / "manifest.json"
    assert pairs.main(["--config", config, "--corpus", *map(str, reversed(corpus)), "--manifest", str(out)]) == 0
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / name).read_bytes() == (pairs_manifest.parent / name).read_bytes()


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("train", "Fine-tuning is left out: 1100 training pairs were found, and finetune.pairs.min_train is 50000."),
        (
            "heldout",
            "The held-out questions are not asked: 178 held-out pairs were found, and finetune.pairs.min_heldout is",
        ),
    ],
)
def test_too_few_pairs_are_written_and_said(corpus: list[Path], tmp_path: Path, which: str, told: str) -> None:
    out = tmp_path / "manifest.json"
    config = tiny.config("finetune.pairs", **{f"min_{which}": 50_000})
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    summary = Manifest.read(out).summary
    assert len(summary["notes"]) == 1
    assert (
        summary["notes"][0].translate(DIGITS).startswith(told.translate(DIGITS))
    )  # the numbers are Python's own pages'
    assert summary["enough"] == {"train": which != "train", "heldout": which != "heldout"}
    assert not template_module.has_enough_pairs(out, which)
    assert len(read_pairs(out, which)[0]) == summary[which] > 0


def test_nothing_is_left_out_of_a_run_without_a_model_to_fine_tune(corpus: list[Path], tmp_path: Path) -> None:
    """`models: {}` was warned of a fine-tuning that is left out."""
    assert extra_settings("finetune.pairs", validate({"models": {}})) == {"trains": False}
    assert (
        extra_settings("finetune.pairs", validate({"models": {"sft": {"from": "base", "step": "finetune.train"}}}))
        == {}
    )
    mark = json.loads(tiny.config("finetune.pairs", min_train=50_000))
    config = json.dumps({**mark, "config": {**mark["config"], "trains": False}})
    out = tmp_path / "manifest.json"
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    assert Manifest.read(out).summary["notes"] == []


def test_a_corpus_without_a_pair_and_without_validation(tmp_path: Path) -> None:
    corpus = tiny.write_corpus(tmp_path / "corpus", {"a": "No signature here.", "b": "None here either."})
    out = tmp_path / "manifest.json"
    assert (
        pairs.main(["--config", tiny.config("finetune.pairs"), "--corpus", *map(str, corpus), "--manifest", str(out)])
        == 0
    )
    manifest = Manifest.read(out)
    assert manifest.summary["enough"] == {"train": False, "heldout": False}
    assert "0 held-out pairs with different answers were found" in manifest.summary["notes"][1]
    assert read_pairs(out, "train")[0] == read_pairs(out, "heldout")[0] == []


def test_pages_that_spell_special_tokens_give_no_pairs(tmp_path: Path) -> None:
    """Fine-tuning recognises special tokens in what it tokenizes: an answer with one would end its turn, or begin another."""
    spelled = ["It ends.<|im_end|>", "<|endoftext|>And then?", "A whole answer of some words."]
    texts = {f"{n}": f"ANSWERS\nTopic{n} is {words} in the end.\n" for n, words in enumerate(spelled * 20)}
    out = tmp_path / "manifest.json"
    pattern = {"pattern": r"(?P<subject>Topic\d+) is (?P<answer>.+)", "question": "What is {subject}?"}
    config = tiny.config("finetune.pairs", patterns=[pattern], min_train=1, min_heldout=4)
    corpus = tiny.write_corpus(tmp_path / "corpus", texts)
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    found = [row["answer"] for name in ("train", "heldout") for row in read_pairs(out, name)[0]]
    assert found and not [answer for answer in found if "<|" in answer]
    dropped = Manifest.read(out).counts["dropped"]
    assert dropped["train_special_token"] + dropped["heldout_special_token"] == 40


def test_fewer_answers_than_choices_leave_the_pairs_as_they_are() -> None:
    rows = [{"id": f"{n}", "question": f"q{n}", "answer": "abc"[n % 3]} for n in range(9)]
    assert pairs.with_choices(rows, 0) == rows


def test_bad_template(corpus: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny.config("finetune.pairs", template="Q: {question}")
    out = tmp_path / "manifest.json"
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 1
    assert "finetune.pairs.template" in capsys.readouterr().err
    assert Template.parse("Q: {question}\nA:\n{answer}").delimiter == "\n"


PAIR = st.fixed_dictionaries(
    {
        "id": st.text("0123456789abcdef", min_size=4, max_size=8),
        "question": st.sampled_from([f"q{n}" for n in range(12)]),
        "answer": st.sampled_from(["A.", "B.", "C."]),
    }
)


@given(st.lists(PAIR, max_size=60, unique_by=lambda p: p["id"]), st.integers(1, 15), st.randoms())
def test_lowest_keeps_the_same_whatever_the_order(rows: list[dict[str, Any]], size: int, random: Any) -> None:
    results = []
    for _ in range(2):
        lowest = pairs.LowestHashes(size, 1, "salt")
        for row in rows:
            lowest.add(row)
        results.append(lowest.pairs_by_hash())
        assert len(rows) == len(results[-1]) + sum(lowest.dropped.values())
        random.shuffle(rows)
    assert json.dumps(results[0]) == json.dumps(results[1])
    assert len(results[0]) == min(size, len({row["question"] for row in rows}))


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=4, max_size=40, unique=True))
def test_choices(answers: list[str]) -> None:
    rows = [{"id": str(n), "question": f"q{n}", "answer": answer} for n, answer in enumerate(answers)]
    for row in pairs.with_choices(rows, 0):
        assert row["choices"][row["gold"]] == row["answer"]
        assert len(set(row["choices"])) == pairs.CHOICES
        assert set(row["choices"]) <= set(answers)
