"""quality.train: what it learns from, what it holds out, and its one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import score, select, train
from crawl2llm.filters.quality.train import roc_auc
from crawl2llm.formats.documents import parquet_file, rows
from tests.unit import making

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.5000001, 0.75, 1.0]) | st.floats(0, 1), min_size=1, max_size=25)


@given(SCORES, SCORES)
def test_roc_auc_is_the_share_of_pairs_in_the_right_order(positive: list[float], negative: list[float]) -> None:
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    assert roc_auc(np.array(positive), np.array(negative)) == pytest.approx(wins / (len(positive) * len(negative)))


def test_roc_auc_of_an_empty_side_is_no_number() -> None:
    assert np.isnan(roc_auc(np.array([]), np.array([0.5]))) and np.isnan(roc_auc(np.array([0.5]), np.array([])))


def crawl(folder: Path, curated: bool = True) -> tuple[list[Path], Path]:
    """(manifests of two shards of documents, manifest of verdicts that drop every fifth)."""
    made, ids = [], {}
    for shard in ("00000", "00001"):
        rows = []
        for number in range(120):
            good = curated and number % 3 == 0
            text = f"the proof of lemma {number % 7}" if good else f"buy the discount {number % 7} now"
            facts = {"url": f"https://h{number % 40}.org/{shard}-{number}", "source": "good" if good else "web"}
            rows.append(making.document(f"{shard}-{number}", text, curated=good, **facts))
        made.append(making.documents(folder / "documents", rows, shard))
        ids[shard] = [row["id"] for row in rows]
    return made, making.verdicts(folder / "dedup", ids, lambda name: name.endswith(("0", "5")))


def run(folder: Path, documents: list[Path], verdicts: Path, **settings: Any) -> Manifest | None:
    argv = ["--config", making.config("quality.train", **{"dimensions": 8, "buckets": 500, **settings})]
    argv += ["--documents", *map(str, documents), "--verdicts", str(verdicts)]
    if train.main([*argv, "--manifest", str(folder / "manifest.json")]):
        return None
    return Manifest.read(folder / "manifest.json")


def test_trained_on_survivors_with_a_held_out_share(tmp_path: Path) -> None:
    manifest = run(tmp_path / "train", *crawl(tmp_path), heldout_fraction=0.25)
    assert manifest is not None and list(manifest.files) == ["model.bin"]
    summary = manifest.summary
    assert summary["positives"] + summary["heldout"]["positives"] == 64  # every third of the survivors
    assert summary["negatives"] + summary["heldout"]["negatives"] == 128
    assert 16 <= summary["heldout"]["positives"] <= 24 and 32 <= summary["heldout"]["negatives"] <= 48
    assert {part["by"] for part in summary["split"].values()} == {"origin"} and summary["notes"] == []
    assert summary["roc_auc"] == 1.0 and summary["trained"] is True
    assert [path.name for path in (tmp_path / "train").iterdir() if path.name.startswith(".")] == [".manifest.copy"]


def test_same_bytes_again(tmp_path: Path) -> None:
    made = crawl(tmp_path)
    for name in "ab":
        assert run(tmp_path / name, *made)
    assert (tmp_path / "a/model.bin").read_bytes() == (tmp_path / "b/model.bin").read_bytes()
    assert (tmp_path / "a/manifest.json").read_bytes() == (tmp_path / "b/manifest.json").read_bytes()


def test_sample_is_of_about_the_wanted_size(tmp_path: Path) -> None:
    manifest = run(tmp_path / "train", *crawl(tmp_path), max_positives=20, max_negatives=40, heldout_fraction=0)
    assert manifest is not None
    assert 8 <= manifest.summary["positives"] <= 32 and 24 <= manifest.summary["negatives"] <= 56
    assert manifest.summary["roc_auc"] is None


@pytest.mark.parametrize(("least", "trained"), [(1, True), (40, True), (80, False)])
def test_too_little_to_train_on_is_said_and_keeps_everything(tmp_path: Path, least: int, trained: bool) -> None:
    manifest = run(tmp_path / "train", *crawl(tmp_path), min_examples=least)
    assert manifest is not None and manifest.summary["trained"] is trained and bool(manifest.files) is trained
    if not trained:
        assert "56 curated documents and" in manifest.summary["notes"][0]
        assert (
            "quality.train.min_examples is 80. Quality selection keeps every document." in manifest.summary["notes"][0]
        )


def library(folder: Path) -> tuple[list[Path], Path]:
    """Twenty books of ten pieces, each with a vocabulary of its own, and as many pages; style says nothing about the side."""
    rows = []
    for number in range(400):
        book, piece = divmod(number % 200, 10)
        words = " ".join(f"w{number // 200}x{book}x{(piece * 3 + word * 7) % 23}" for word in range(60))
        facts: dict[str, Any] = {"curated": True, "url": f"file:b{book}.txt#{piece}", "metadata": '{"piece": 1}'}
        rows.append(
            making.document(f"{number}", words, **(facts if number < 200 else {"url": f"https://h{book}.org/{piece}"}))
        )
    return [making.documents(folder / "documents", rows)], making.verdicts(
        folder / "dedup", {"00000": [r["id"] for r in rows]}
    )


def test_roc_auc_is_that_of_books_and_hosts_never_seen(tmp_path: Path) -> None:
    """Each book has its own words: pieces of known books are easy to tell, unknown books cannot be told."""
    made = library(tmp_path)
    options = {"heldout_fraction": 0.2, "epochs": 50, "learning_rate": 0.5, "word_ngrams": 1}
    leaky = run(tmp_path / "document", *made, split_by="document", **options)
    clean = run(tmp_path / "origin", *made, **options)
    assert leaky is not None and clean is not None
    assert leaky.summary["roc_auc"] > 0.99
    assert clean.summary["roc_auc"] < 0.9
    assert clean.summary["split"]["positives"]["origins"] == 20


def test_scores_and_selection_follow_from_the_model(tmp_path: Path) -> None:
    documents, verdicts = crawl(tmp_path)
    assert run(tmp_path / "train", documents, verdicts)
    signals = []
    for path in documents:
        signals.append(tmp_path / "score" / path.name)
        argv = ["--config", making.config("quality.score"), "--documents", str(path), "--verdicts", str(verdicts)]
        assert (
            score.main([*argv, "--model", str(tmp_path / "train/manifest.json"), "--manifest", str(signals[-1])]) == 0
        )
        assert Manifest.read(signals[-1]).counts["in"] == 96
    argv = ["--config", making.config("quality.select", keep_fraction=0.25), "--signals", *map(str, signals)]
    assert select.main([*argv, "--manifest", str(tmp_path / "select/manifest.json")]) == 0
    manifest = Manifest.read(tmp_path / "select/manifest.json")
    assert manifest.summary["scored"] == 128 == sum(manifest.summary["histogram"])
    assert manifest.counts["in"] == 192 and manifest.counts["kept"] >= 64 + 32


def test_without_curated_documents_nothing_is_trained_and_all_stay(tmp_path: Path) -> None:
    documents, verdicts = crawl(tmp_path, curated=False)
    manifest = run(tmp_path / "train", documents, verdicts)
    assert manifest is not None and manifest.files == {} and manifest.summary["trained"] is False
    signals = tmp_path / "score/00000.manifest.json"
    argv = ["--config", making.config("quality.score"), "--documents", str(documents[0]), "--verdicts", str(verdicts)]
    assert score.main([*argv, "--model", str(tmp_path / "train/manifest.json"), "--manifest", str(signals)]) == 0
    for method in ("fraction", "pareto"):
        out = tmp_path / method / "manifest.json"
        argv = ["--config", making.config("quality.select", method=method), "--signals", str(signals)]
        assert select.main([*argv, "--manifest", str(out)]) == 0
        assert Manifest.read(out).counts == {"in": 96, "kept": 96, "dropped": {}}
        assert Manifest.read(out).summary["threshold"] is None


def test_a_source_that_skips_it_teaches_nothing_and_stays(tmp_path: Path) -> None:
    """Whether curated or not: the model is that of the others alone, and so is the cut."""
    others = [row for path in crawl(tmp_path)[0] for row in rows(parquet_file(path))]
    code = [{**row, "id": f"x{n}", "source": "code", "curated": n % 2 == 0} for n, row in enumerate(others)]
    made = {}
    for name, pages in (("both", [*code, *others]), ("alone", others)):
        documents = making.documents(tmp_path / name, pages)
        verdicts = making.checked(tmp_path / name / "check", documents)
        options = ["--documents", str(documents), "--verdicts", str(verdicts)]
        model, signals, out = (
            tmp_path / name / step
            for step in ("train/manifest.json", "score/00000.manifest.json", "select/manifest.json")
        )
        for step, module, more in (
            ("train", train, [*options, "--manifest", str(model)]),
            ("score", score, [*options, "--model", str(model), "--manifest", str(signals)]),
            ("select", select, ["--signals", str(signals), "--manifest", str(out)]),
        ):
            settings = {"train": {"dimensions": 8, "buckets": 500}, "select": {"keep_fraction": 0.5}}.get(step, {})
            assert module.main(["--config", making.config(f"quality.{step}", ["code"], **settings), *more]) == 0
        made[name] = (Manifest.read(model), Manifest.read(out))
    (model_both, found), (model_alone, found_alone) = made["both"], made["alone"]
    assert model_both.files == model_alone.files and model_both.summary == model_alone.summary
    same = ("threshold", "histogram", "scored")
    assert [found.summary[key] for key in same] == [found_alone.summary[key] for key in same]
    assert found.counts["dropped"] == found_alone.counts["dropped"]
    assert found.counts["kept"] == found_alone.counts["kept"] + len(code)
    assert found.summary["source_exempt"] > 0 == found_alone.summary["source_exempt"]
