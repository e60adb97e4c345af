"""evaluate.generate as a program, on summaries of real dialogues, and its measures against plain ones."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.stages.evaluate import generate, overlap
from crawl2llm.stages.finetune import pairs
from crawl2llm.training.model_loading import load_model
from tests.unit.stages.finetune import tiny

DATA = Path(os.environ.get("CRAWL2LLM_DATA", "data"))  # see CONTRIBUTING.md
Inputs = dict[str, list[Path]]


def generate_texts(inputs: Inputs, held: Path, out: Path, **changes: Any) -> dict[str, Any]:
    complete = configuration.validate({"evaluate": {"generate": {"threads": 1, "max_new_tokens": 8, **changes}}})
    given = canonical_json({"step": "evaluate.generate", "config": settings_of("evaluate.generate", complete)})
    words = ["--model", str(inputs["model"][0]), "--pairs", str(held), "--manifest", str(out / "base.manifest.json")]
    assert generate.main(["--config", given, *words]) == 0
    return dict(json.loads((out / "base.generated.json").read_text()))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_answers_and_samples(inputs: Inputs, tmp_path: Path) -> None:
    import torch

    found = generate_texts(inputs, inputs["pairs"][0], tmp_path, questions=6, samples=3)
    rows = lines(tmp_path / "base.answers.jsonl")
    assert found["answers"]["all"]["items"] == len(rows) == 6 and found["samples"]["items"] == 3
    lm, tokenizer = load_model(inputs["model"][0].parent / "model")
    template = generate.read_pairs(inputs["pairs"][0], "heldout")[1]
    for row in rows:
        ids = tokenizer(template.prompt(row["question"]))["input_ids"][-(tiny.CONTEXT - 8) :]
        nats, written = 0.0, list[int]()
        while len(written) < 8 and (not written or written[-1] != tokenizer.eos_token_id):
            with torch.no_grad():
                logs = lm(input_ids=torch.tensor([[*ids, *written]])).logits[0, -1].log_softmax(-1)
            written.append(int(logs.argmax()))
            nats -= float(logs.max())
        assert row["text"] == tokenizer.decode(written, skip_special_tokens=True).strip()
        assert row["nats"] == pytest.approx(nats, abs=1e-3) and row["tokens"] == len(written)
    nats, tokens = (sum(row[key] for row in rows) for key in ("nats", "tokens"))
    assert found["answers"]["all"]["self_perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    # Fewer questions are some of the same, with the same answers; in a batch of another size products are rounded in another order.
    few = generate_texts(inputs, inputs["pairs"][0], tmp_path / "few", questions=2)
    assert few["samples"] is None
    for row, wanted in zip(lines(tmp_path / "few/base.answers.jsonl"), rows[:2], strict=True):
        assert row == wanted | {"nats": pytest.approx(wanted["nats"], abs=1.5e-4)}  # they are rounded to 1e-4
    again = generate_texts(inputs, inputs["pairs"][0], tmp_path / "again", questions=6, samples=3)
    assert again == found and lines(tmp_path / "again/base.texts.jsonl") == lines(tmp_path / "base.texts.jsonl")


def test_questions_that_spell_a_special_token_of_the_models_own_are_counted(inputs: Inputs, tmp_path: Path) -> None:
    rows = generate.choose_questions(generate.read_pairs(inputs["pairs"][0], "heldout")[0], 3, 0)
    tokenizer = load_model(inputs["model"][0].parent / "model")[1]
    word = next(word for word in rows[0]["question"].split() if sum(word in row["question"] for row in rows) == 1)
    tokenizer.add_special_tokens({"additional_special_tokens": [word]})
    model = tmp_path / "pretrain/manifest.json"
    shutil.copytree(inputs["model"][0].parent / "model", model.parent / "model")
    tokenizer.save_pretrained(model.parent / "model")
    Manifest("pretrain.train", "0" * 16).write(model, list((model.parent / "model").iterdir()))
    generate_texts({**inputs, "model": [model]}, inputs["pairs"][0], tmp_path, questions=3, max_new_tokens=1)
    made = Manifest.read(tmp_path / "base.manifest.json")
    assert made.counts["kept"] == 2 and made.counts["dropped"]["special_token"] == 1
    assert made.summary["notes"] == [
        "1 of 3 held-out questions were not answered: they spell a special token of the model's."
    ]


@pytest.mark.parametrize(
    ("number", "shares"),
    [
        (9, {"a": 3, "b": 3, "c": 3}),
        (30, {"a": 3, "b": 13, "c": 14}),
        (500, {"a": 3, "b": 20, "c": 200}),
        (2, {"b": 1, "c": 1}),
    ],
)
def test_every_file_has_its_share_of_the_questions(number: int, shares: dict[str, int]) -> None:
    """A file of three questions is asked whole beside one of 200; what it lacks the others give."""
    rows = [{"id": f"{of}{at}", "of": of} for of, size in (("a", 3), ("b", 20), ("c", 200)) for at in range(size)]
    classified = [{"id": f"d{at}", "of": "d", "labels": ["yes", "no"]} for at in range(50)]
    found = generate.choose_questions([*rows, *classified], number, 0)
    assert Counter(row["of"] for row in found) == shares
    more = generate.choose_questions([*rows, *classified], number + 5, 0)
    assert {row["id"] for row in found} <= {row["id"] for row in more}, "fewer questions are some of the same"


def test_summaries_of_dialogues(inputs: Inputs, tmp_path: Path) -> None:
    path = DATA / "sft/dialogsum.dev.jsonl.zst"
    if not path.exists():
        pytest.skip(f"{path} is not here; set CRAWL2LLM_DATA")
    file = {"path": str(path), "question": "{dialogue}\nSummary?", "answer": "{summary}", "heldout": 0.2}
    made = tiny.config("finetune.pairs", patterns=[], files=[file], min_train=1, min_heldout=4)
    held = tmp_path / "pairs/manifest.json"
    assert pairs.main(["--config", made, "--corpus", *map(str, inputs["corpus"]), "--manifest", str(held)]) == 0
    found = generate_texts(inputs, held, tmp_path, questions=20)["answers"]["all"]
    rows = lines(tmp_path / "base.answers.jsonl")
    assert found["items"] == 20 and found["cut"] > 15, "dialogues are longer than 64 tokens"
    assert 0 <= found["rougeL"] < 0.2 and found["reference_words"] > 10
    # The same metrics by their libraries alone, over the references as answers: all is right.
    same = overlap.answer_measures(
        [
            {**row, "text": row["reference"], **overlap.compare_with_reference(row["reference"], row["reference"])}
            for row in rows
        ],
        0,
    )
    assert (
        (same["rouge1"], same["rougeL"]) == (1.0, 1.0)
        and same["bleu"] == pytest.approx(100)
        and same["chrf"] == pytest.approx(100)
    )
    from sacrebleu import corpus_bleu, corpus_chrf

    texts, references = [row["text"] for row in rows], [[row["reference"] for row in rows]]
    assert found["bleu"] == pytest.approx(corpus_bleu(texts, references).score, abs=1e-5)
    assert found["chrf"] == pytest.approx(corpus_chrf(texts, references).score, abs=1e-5)


def test_rouge_reads_any_script() -> None:
    assert overlap.compare_with_reference("Это новый дом.", "Это старый дом")["rouge1"] == pytest.approx(
        2 / 3, abs=1e-6
    )
    assert overlap.compare_with_reference("我爱你", "我爱他")["rougeL"] == pytest.approx(2 / 3, abs=1e-6)
    assert overlap.compare_with_reference("", "a word") == dict.fromkeys((*overlap.ROUGE, "bleu", "chrf"), 0.0)


def test_repetition_and_distinct_words() -> None:
    assert overlap.repetition_share(["a b c d a b c d a b c d"]) == pytest.approx(1 - 4 / 9)
    assert overlap.repetition_share(["a b c d e", "x y"]) == 0 and overlap.repetition_share(["x y"]) is None
    assert (
        overlap.distinct_share(["a b a", "A c"], 1) == pytest.approx(3 / 5)
        and overlap.distinct_share(["a", "b"], 2) is None
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_a_corpus_of_one_document_has_no_error(numbers: list[int]) -> None:
    texts = [f"the word {number} is here" for number in numbers]
    found = overlap.corpus_scores(texts, texts[::-1], ["d"] * len(texts), 0)
    assert found["bleu_stderr"] is None and 0 <= (found["bleu"] or 0) <= 100.001


def test_too_few_pairs_are_a_note(inputs: Inputs, tmp_path: Path) -> None:
    made = tiny.config("finetune.pairs", max_train=100, min_heldout=4000)
    held = tmp_path / "pairs/manifest.json"
    assert pairs.main(["--config", made, "--corpus", *map(str, inputs["corpus"]), "--manifest", str(held)]) == 0
    found = generate_texts(inputs, held, tmp_path, questions=3)
    assert found["answers"] is None and found["notes"] == [
        "No held-out question was answered: finetune.pairs found too few."
    ]
    assert Manifest.read(tmp_path / "base.manifest.json").counts["kept"] == 0
