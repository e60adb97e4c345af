"""evaluate.common: every model is scored on the same documents, and as evaluate.model scores them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.formats.documents import DOCUMENT, Writer
from crawl2llm.stages.evaluate import common
from crawl2llm.stages.evaluate.shared_text import Text, choose_texts, texts_digest
from tests.unit.making import document
from tests.unit.stages.finetune import tiny

pytestmark = pytest.mark.slow  # evaluates models

Inputs = dict[str, list[Path]]


def score_model(inputs: Inputs, out: Path, name: str = "base", of: Path | None = None, **changes: Any) -> Manifest:
    """evaluate.common of a model on the corpus and the items of `inputs`."""
    path = out / f"{name}.manifest.json"
    complete = configuration.validate({"evaluate": {"common": changes}})
    config = canonical_json({"step": "evaluate.common", "config": settings_of("evaluate.common", complete, name)})
    given = ["--corpus", *map(str, inputs["corpus"]), "--tasks", str(inputs["tasks"][0])]
    assert (
        common.main(["--config", config, "--model", str(of or inputs["model"][0]), *given, "--manifest", str(path)])
        == 0
    )
    return Manifest.read(path)


def corpus(folder: Path, texts: dict[str, str], shards: int) -> list[Path]:
    """What corpus.write leaves of validation documents, dealt out over shards."""
    made = []
    for shard in range(shards):
        path = folder / f"{shard:05d}.manifest.json"
        with Writer(folder / f"validation/{shard:05d}.parquet", DOCUMENT) as writer:
            for number, (name, text) in enumerate(texts.items()):
                if number % shards == shard:
                    writer.add(document(name, text))
        Manifest("corpus.write", "test").write(path, [folder / f"validation/{shard:05d}.parquet"])
        made.append(path)
    return made


SHORT = {f"d{n}": f"The module {n} reads a file, and gives what is in line {n * n}." for n in range(8)}


@pytest.fixture(scope="module")
def short(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """The same items and model over eight short documents."""
    return {**inputs, "corpus": corpus(tmp_path_factory.mktemp("corpus"), SHORT, 2)}


@pytest.fixture(scope="module")
def first(short: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return score_model(short, tmp_path_factory.mktemp("common"))


def test_bits_of_right_choices_are_those_of_their_likelihoods() -> None:
    row = {"choices": ["a", "four"], "gold": 1}
    assert common.right_choice_bits(row, [-1.0, -8 * math.log(2)]) == 2.0


def test_nats_are_those_of_a_plain_computation(short: Inputs, first: Manifest) -> None:
    import torch

    lm, tokenizer = common.load_model(short["model"][0].parent / "model")
    lines, nats = first.rows("base.heldout.jsonl"), 0.0
    for line in lines:
        end = tokenizer.eos_token_id
        ids = [end, *tokenizer(SHORT[line["document"]], add_special_tokens=False)["input_ids"], end]
        with torch.no_grad():
            logs = lm(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        assert line["nats"] == pytest.approx(-sum(float(logs[at, ids[at + 1]]) for at in range(len(ids) - 1)), abs=1e-3)
        assert line["bytes"] == len(SHORT[line["document"]].encode()) and line["source"] == "web"
        nats += line["nats"]
    assert {line["document"] for line in lines} == set(SHORT)
    summary = first.summary
    assert summary["bits_per_byte"] == pytest.approx(nats / summary["bytes"] / math.log(2), abs=1e-5)
    assert summary["by_source"] == {"web": summary["bits_per_byte"]}
    assert (summary["documents"], summary["bytes"]) == (8, sum(map(len, SHORT.values())))
    answered = first.rows("base.items.jsonl")
    assert set(answered[0]) == {"task", "id", "document", "right", "bits_per_byte"}
    left = sum(of["left_out_too_long"] for of in summary["tasks"].values())
    assert len(answered) + left == summary["items"]["number"]
    for task, of in summary["tasks"].items():
        right = [row["right"] for row in answered if row["task"] == task]
        assert of["accuracy"] == pytest.approx(sum(right) / len(right), abs=1e-5)


def test_another_model_with_another_tokenizer_scores_the_same(short: Inputs, first: Manifest, tmp_path: Path) -> None:
    of = tiny.write_model(
        tmp_path / "other", {"a": "Another text, of which a tokenizer learns little. " * 40}, hidden=32
    )
    other = score_model(short, tmp_path / "out", "sft", of)
    assert other.summary["set"] == first.summary["set"] and other.summary["items"] == first.summary["items"]
    assert other.summary["tokens"] != first.summary["tokens"], "its tokenizer is another"
    for key in ("document", "bytes"):
        assert [row[key] for row in other.rows("sft.heldout.jsonl")] == [
            row[key] for row in first.rows("base.heldout.jsonl")
        ]


def test_a_part_of_them_by_hash(short: Inputs, first: Manifest, tmp_path: Path) -> None:
    few = score_model(short, tmp_path, max_bytes=120)
    whole = [row["document"] for row in first.rows("base.heldout.jsonl")]
    part = few.rows("base.heldout.jsonl")
    assert [row["document"] for row in part] == whole[: len(part)] and 0 < len(part) < len(whole)
    assert sum(row["bytes"] for row in part[:-1]) < 120 <= few.summary["bytes"]
    assert few.summary["set"] != first.summary["set"]
    assert few.counts == {"in": len(whole), "kept": len(part), "dropped": {"over_max_bytes": len(whole) - len(part)}}


def test_the_choice_depends_on_no_shards_and_leaves_out_empty_texts(tmp_path: Path) -> None:
    texts = {f"d{n}": f"Document {n} is here." * (n % 5) for n in range(40)}
    found = [choose_texts(corpus(tmp_path / str(n), texts, n), 300, 0) for n in (1, 3, 8)]
    assert found[0] == found[1] == found[2] and found[0][1] == 32
    assert all(text.text and text.bytes == len(text.text.encode()) for text in found[0][0])
    assert [text.rank for text in found[0][0]] == sorted(text.rank for text in found[0][0])
    assert choose_texts(corpus(tmp_path / "none", {}, 2), 300, 0) == ([], 0)
    assert choose_texts(corpus(tmp_path / "other", texts, 1), 300, 1)[0] != found[0][0], "another seed"


def test_the_mark_is_of_ids_and_texts() -> None:
    one = Text(0.1, "a", "web", "text", 4)
    assert texts_digest([one]) == texts_digest([Text(0.2, "a", "books", "text", 4)])
    assert (
        len(
            {
                texts_digest([one]),
                texts_digest([]),
                texts_digest([Text(0.1, "a", "web", "test", 4)]),
                texts_digest([Text(0.1, "b", "web", "text", 4)]),
            }
        )
        == 4
    )


def test_a_run_that_holds_nothing_out(inputs: Inputs, tmp_path: Path) -> None:
    made = score_model({**inputs, "corpus": corpus(tmp_path / "none", {}, 2)}, tmp_path / "out")
    assert made.summary["bits_per_byte"] is None and made.summary["documents"] == 0 and made.summary["tasks"]
    assert made.summary["notes"][0] == "No loss was measured: main holds out no text."


def test_words_that_look_like_special_tokens_are_text(inputs: Inputs, tmp_path: Path) -> None:
    """As in tokenize.encode: a document that quotes the end-of-text token is not cut there."""
    tokenizer = common.load_model(inputs["model"][0].parent / "model")[1]
    quoted = f"Before {tokenizer.eos_token} after."
    texts = [Text(0.1, "a", "web", quoted, len(quoted.encode()))]
    (found,) = common.encode_texts(texts, tokenizer, tmp_path)
    plain = tokenizer.backend_tokenizer.encode(quoted, add_special_tokens=False).ids
    assert found.tokens == len(plain) + 1 and tokenizer.eos_token_id not in plain
