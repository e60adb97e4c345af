"""evaluate.compare on evaluations as evaluate.model writes them: what is sure, what is not, and what the numbers are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import canonical_json
from crawl2llm.core import intervals
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.evaluate import compare
from crawl2llm.stages.evaluate.settings import CompareSettings

SETTINGS = CompareSettings(resamples=500, confidence=0.95, seed=0)
Right = Callable[[int], bool]


def evaluation(
    folder: Path,
    name: str,
    right: Right,
    nats: Callable[[int], float],
    documents: int = 60,
    tokens: int = 100,
    scored_documents: int = 0,
) -> Path:
    """A manifest of evaluate.model: four items of each document, and what the documents take, of so many tokens each.

    scored_documents: how many documents are scored, if not as many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    items = [
        {
            "task": "next_word",
            "id": f"i{at}",
            "document": f"d{at // 4}",
            "chosen": 0,
            "right": right(at),
            "log_likelihoods": [0.0],
        }
        for at in range(4 * documents)
    ]
    scored = [
        {"document": f"d{at}", "bytes": 1000 + at, "tokens": tokens, "nats": nats(at)}
        for at in range(scored_documents or documents)
    ]
    files = []
    for kind, rows in (("items", items), ("heldout", scored)):
        files.append(folder / f"{name}.{kind}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / f"{name}.manifest.json"
    Manifest(
        "evaluate.model", "0" * 16, counts={"in": documents + 3, "kept": documents, "dropped": {"over_max_tokens": 3}}
    ).write(path, files)
    return path


def compare_evaluations(
    folder: Path, evaluations: list[Path], status: int = 0, more: list[str] | None = None, **settings: Any
) -> dict[tuple[str, str, str], Any]:
    """{(first, second, measure): what was found}."""
    whole = config.validate({"evaluate": {"compare": settings}})["evaluate"]["compare"]
    out = folder / "compare/manifest.json"
    given = canonical_json({"step": "evaluate.compare", "config": whole})
    words = ["--evaluations", *map(str, evaluations), *(more or []), "--manifest", str(out)]
    assert compare.main(["--config", given, *words]) == status
    if status:
        return {}
    read = sum(Manifest.read(path).counts["kept"] for path in evaluations)  # what a plan scales the step's time by
    counts = Manifest.read(out).counts
    assert counts["in"] == read == counts["kept"] + sum(counts["dropped"].values())
    found = json.loads((out.parent / "compare.json").read_text())
    assert found == Manifest.read(out).summary
    return {(pair["first"], pair["second"], one["measure"]): one for pair in found["pairs"] for one in pair["measures"]}


def test_verdicts_of_what_is_better_worse_and_alike(tmp_path: Path) -> None:
    chance = random.Random(0)  # noqa: S311
    luck = [chance.random() for _ in range(240)]
    made = [
        evaluation(tmp_path, "base", lambda at: luck[at] < 0.5, lambda at: 900.0 + at),
        evaluation(tmp_path, "good", lambda at: luck[at] < 0.7, lambda at: 870.0 + at + at % 7),
        evaluation(tmp_path, "same", lambda at: luck[at] < 0.5 or at == 3, lambda at: 900.0 + at + (at % 2 - 0.5)),
        evaluation(tmp_path, "untrained", lambda at: False, lambda at: 5000.0),
    ]
    found = compare_evaluations(tmp_path, made)
    assert {key[:2] for key in found} == {("base", "good"), ("base", "same"), ("good", "same")}
    assert {key: one["verdict"] for key, one in found.items()} == {
        ("base", "good", "heldout_text"): "better", ("base", "good", "next_word"): "better",
        ("base", "same", "heldout_text"): "unclear", ("base", "same", "next_word"): "unclear",
        ("good", "same", "heldout_text"): "worse", ("good", "same", "next_word"): "worse",
    }  # fmt: skip
    one = found["base", "good", "next_word"]
    more = sum(0.5 <= value < 0.7 for value in luck)
    assert (one["only_first"], one["only_second"], one["items"], one["documents"]) == (0, more, 240, 60)
    assert (
        one["difference"]
        == pytest.approx(more / 240, abs=1e-6)
        == pytest.approx(one["second"] - one["first"], abs=2e-6)
    )
    text = found["base", "good", "heldout_text"]
    size = sum(1000 + at for at in range(60)) * np.log(2)
    assert text["first"] == pytest.approx(sum(900 + at for at in range(60)) / size, abs=1e-6)
    assert text["difference"] == pytest.approx(sum(at % 7 - 30 for at in range(60)) / size, abs=1e-6)
    assert compare_evaluations(tmp_path / "again", made) == found


def test_only_what_both_answered_counts(tmp_path: Path) -> None:
    made = [
        evaluation(tmp_path, "base", lambda _: True, lambda _: 1.0, 40, scored_documents=12),
        evaluation(tmp_path, "sft", lambda _: True, lambda _: 1.0, 12),
    ]
    found = compare_evaluations(tmp_path, made)
    assert {(one["documents"], one["difference"], one["verdict"]) for one in found.values()} == {(12, 0.0, "unclear")}


def test_models_that_were_scored_on_other_text_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [evaluation(tmp_path, name, lambda _: True, lambda _: 1.0, n) for name, n in (("base", 12), ("tiny", 11))]
    compare_evaluations(tmp_path, made, status=1)
    told = "scored base on 12 held-out documents of 12,066 bytes and tiny on 11 held-out documents of 11,055 bytes, not the same"
    assert told in capsys.readouterr().err


def test_few_documents_have_no_interval(tmp_path: Path) -> None:
    made = [
        evaluation(tmp_path, name, lambda _, n=number: n > 0, lambda _: 1.0, 9)
        for number, name in enumerate(("base", "sft"))
    ]  # type: ignore[misc]
    one = compare_evaluations(tmp_path, made)["base", "sft", "next_word"]
    assert one["verdict"] == "unclear" and one["difference"] == 1.0 and "low" not in one


def test_one_model_has_nobody_to_be_compared_with(tmp_path: Path) -> None:
    assert not compare_evaluations(tmp_path, [evaluation(tmp_path, "base", lambda _: True, lambda _: 1.0)])


def test_a_damaged_evaluation_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [evaluation(tmp_path, name, lambda _: True, lambda _: 1.0) for name in ("base", "sft")]
    (tmp_path / "sft.items.jsonl").write_text("{}\n")
    compare_evaluations(tmp_path, made, status=1)
    assert "sft.items.jsonl" in capsys.readouterr().err


def test_the_interval_is_as_wide_as_theory_says() -> None:
    """Documents of one size: the error is the sample's over the root of their number; nine of ten intervals hold the truth."""
    chance = np.random.default_rng(1)
    inside = 0
    for trial in range(60):
        gains = chance.normal(0.1, 1, 100)
        wide, low, high = intervals.bootstrap_interval(gains, np.ones(100), 600, 0.9, [trial])
        assert wide == pytest.approx(gains.std(ddof=1) / 10, rel=0.15)
        inside += low < 0.1 < high
    assert 45 <= inside <= 60


def test_intervals_over_few_documents_hold_the_truth_as_often_as_they_say() -> None:
    """Of 600 intervals of 0.95 over ten documents 570; plain percentiles gave 540. Two standard errors of that share are 11."""
    chance, inside = np.random.default_rng(2), 0
    for trial in range(600):
        _, low, high = intervals.bootstrap_interval(chance.normal(0.1, 1, 10), np.ones(10), 1000, 0.95, [trial])
        inside += low < 0.1 < high
    assert 550 <= inside <= 590


@pytest.mark.parametrize(("number", "confidence"), [(10, 0.9), (10, 0.99), (30, 0.95), (1000, 0.95)])
def test_tails_are_those_of_students_distribution(number: int, confidence: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    wide = stats.t.ppf((1 + confidence) / 2, number - 1) * (number / (number - 1)) ** 0.5
    assert intervals.tail_share(confidence, number) == pytest.approx(stats.norm.cdf(-wide), rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 15), st.booleans(), st.booleans()), min_size=1, max_size=40), st.randoms())
def test_swapping_the_models_turns_the_sign_and_order_does_not_matter(
    rows: list[tuple[int, bool, bool]], chance: Any
) -> None:
    there = [(f"{document:02d}", float(a), float(b), 1.0) for document, a, b in rows]
    back = [(document, b, a, size) for document, a, b, size in there]
    one, other = (compare.compare_scores("next_word", each, SETTINGS, "salt") for each in (there, back))
    assert one and other
    assert one["difference"] == pytest.approx(-other["difference"], abs=2e-6) and one["first"] == other["second"]
    chance.shuffle(there)
    assert compare.compare_scores("next_word", there, SETTINGS, "salt") == one
