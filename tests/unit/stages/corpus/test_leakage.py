"""Training documents that are near-duplicates of validation documents, against a plain reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import SPLITS, rows, uniform_hash
from crawl2llm.stages.corpus import split, write
from tests.unit import making
from tests.unit.filters.dedup.test_select import CONFIG, named
from tests.unit.filters.dedup.test_select import run as deduplicate

TEXTS = st.lists(st.lists(st.sampled_from("abcd"), min_size=2, max_size=7).map(" ".join), min_size=2, max_size=24)
SPLIT = {"validation_fraction": 0.4, "split_by": "document"}
Rows = dict[str, dict[str, Any]]


def run(
    folder: Path, documents: list[dict[str, Any]], shards: int, exact: bool = True, most: int = 64, **options: Any
) -> Path:
    """The steps of dedup and corpus.split over documents; returns the manifest of the latter."""
    select = {**CONFIG["select"], "threshold": 0.8, "exact": exact}
    judged = deduplicate(folder, documents, shards, {**CONFIG, "band": {"max_candidates": most}, "select": select})
    argv = ["--documents", *map(str, sorted((folder / "documents").glob("*.manifest.json")))]
    argv += ["--verdicts", str(folder / "verdicts/manifest.json"), str(judged)]
    argv += ["--signals", *map(str, sorted((folder / "signature").glob("*.manifest.json")))]
    argv += ["--pairs", *map(str, sorted((folder / "verify").glob("*.manifest.json")))]
    argv += ["--exact", str(folder / "exact/manifest.json"), "--manifest", str(folder / "split/manifest.json")]
    assert split.main(["--config", making.config("corpus.split", **SPLIT, **options), *argv]) == 0
    return folder / "split/manifest.json"


def chosen(manifest: Path) -> Rows:
    """The rows of corpus.split by id."""
    made = Manifest.read(manifest)
    return {row["id"]: row for name in made.files for row in rows(made.file(name))}


def measured(folder: Path, texts: dict[str, str]) -> dict[tuple[str, str], float]:
    """(text, text) → the similarity that dedup.verify measured."""
    ids = {}
    for path in sorted((folder / "signature").glob("*.parquet")):
        for row, made in enumerate(rows(path, ["id"])):
            ids[(int(path.stem) << 32) + row] = made["id"].hex()
    found = {}
    for path in (folder / "verify").glob("*.parquet"):
        for pair in rows(path):
            one, other = texts[ids[pair["low"]]], texts[ids[pair["high"]]]
            found[one, other] = found[other, one] = pair["similarity"]
    return found


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.integers(1, 3), st.booleans(), st.sampled_from([0.3, 0.5, 1.0]))
@pytest.mark.slow  # seconds
def test_no_near_duplicate_of_a_validation_document_is_trained_on(
    tmp_path_factory: Any, texts: list[str], shards: int, exact: bool, similarity: float
) -> None:
    folder = tmp_path_factory.mktemp("run")
    documents = [making.document(named(f"{number}"), text) for number, text in enumerate(texts)]
    manifest = run(folder, documents, shards, exact, similarity=similarity)
    counted = run(
        tmp_path_factory.mktemp("run"), documents, shards, exact, similarity=similarity, drop_near_duplicates=False
    )
    sides, found = chosen(counted), chosen(manifest)
    text = {row["id"]: row["text"] for row in documents}
    near = measured(folder, text)

    def same(one: str, other: str) -> float:
        return 1.0 if text[one] == text[other] else near.get((text[one], text[other]), 0.0)

    held = [name for name, row in sides.items() if row["split"] == "validation"]
    assert held == [name for name, row in found.items() if row["split"] == "validation"]
    best = {name: max((same(name, other) for other in held), default=0.0) for name in sides if name not in held}
    leaks = {name for name, value in best.items() if value >= similarity}
    made = Manifest.read(manifest)
    assert made.summary["near_duplicates"] == {"documents": len(leaks), "similarity": similarity, "cut": 0}
    if len(leaks) == len(best):  # nothing would be left to train on
        assert found == sides and (not leaks or "no document was dropped" in made.summary["notes"][-1])
        return
    assert {name for name, row in found.items() if row["split"] is None} == leaks
    for name in leaks:
        row = found[name]
        assert row["duplicate_of"] in held and row["similarity"] == best[name] == same(name, row["duplicate_of"])
    assert made.counts["in"] == made.counts["kept"] + len(leaks) == len(sides)
    assert Manifest.read(counted).summary["near_duplicates"] == made.summary["near_duplicates"]


def test_what_was_dropped_is_in_the_table_of_the_corpus(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    texts = [
        " ".join(words),
        " ".join([*words[:8], "other", "words"]),
        *((chr(97 + n) * 5 + " ") * 9 for n in range(26)),
    ]
    documents = [making.document(f"{number:032x}", text) for number, text in enumerate(texts)]
    places = ([uniform_hash(seed, row["id"], "split") for row in documents[:2]] for seed in range(100))
    seed = next(seed for seed, (held, trained) in enumerate(places) if held < 0.2 and trained > 0.8)
    manifest = run(tmp_path, documents, 1, seed=seed)
    row = chosen(manifest)[documents[1]["id"]]
    assert row["split"] is None and row["duplicate_of"] == documents[0]["id"] and 0.5 <= row["similarity"] < 0.8
    argv = ["--documents", str(tmp_path / "documents/00000.manifest.json"), "--verdicts"]
    argv += [str(tmp_path / "verdicts/manifest.json"), str(tmp_path / "select/manifest.json"), "--split", str(manifest)]
    out = tmp_path / "write/00000.manifest.json"
    assert write.main(["--config", making.config("corpus.write"), *argv, "--manifest", str(out)]) == 0
    made = Manifest.read(out)
    kept = [row["id"] for side in SPLITS for row in rows(made.file(f"{side}/00000.parquet"))]
    assert documents[1]["id"] not in kept and len(kept) == made.counts["kept"]
    gone = {row["id"]: row for row in rows(made.file("dropped/00000.parquet"))}[documents[1]["id"]]
    assert (gone["stage"], gone["rule"], gone["value"]) == ("corpus", "near_validation", row["similarity"])
    assert gone["duplicate_of"] == documents[0]["id"] and gone["bytes"] == len(texts[1])
    assert made.counts["in"] == made.counts["kept"] + sum(made.counts["dropped"].values())


def test_pairs_that_were_cut_are_told(tmp_path: Path) -> None:
    """Many pages of one template: of a bucket not all pairs are measured."""
    template = " ".join(chr(97 + n) * 4 for n in range(12))
    documents = [making.document(f"{n:032x}", f"{template} {chr(97 + n) * 6} {chr(97 + n) * 7}") for n in range(20)]
    made = Manifest.read(run(tmp_path, documents, 1, most=2))
    assert made.summary["near_duplicates"]["cut"] > 0
    assert "pairs of overfull buckets were not measured (dedup.band.max_candidates)" in made.summary["notes"][-2]
