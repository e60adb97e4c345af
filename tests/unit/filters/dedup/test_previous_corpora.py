"""A corpus against the export of an earlier one: what the earlier texts themselves would have done, without them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup import export, previous_corpora
from crawl2llm.formats.documents import Writer
from crawl2llm.stages.corpus.split import SPLIT_TABLE
from tests.unit.filters.dedup.test_select import CONFIG, jaccard, run, verdicts

TEXTS = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=7).map(" ".join), max_size=12)


def documents(texts: list[str], first: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{(first + n) * 7919 % 1009:032x}", "text": text, "curated": n % 5 == 0} for n, text in enumerate(texts)
    ]


def exported(folder: Path, skipped_by: Sequence[str] = ()) -> Path:
    """The export of what dedup.select kept in a run of test_select.run, without the documents of sources that skip dedup."""
    kept = {name for name, row in verdicts(folder / "select" / "manifest.json").items() if row["kept"]}
    files = []
    for path in sorted((folder / "signature").glob("*.manifest.json")):
        shard = path.name.split(".")[0]
        judged = Manifest.read(folder / "select" / "manifest.json").file(f"{shard}.parquet")
        import pyarrow.parquet as pq

        with Writer(folder / "split" / f"{shard}.parquet", SPLIT_TABLE) as writer:
            for name in pq.read_table(judged, columns=["id"])["id"].to_pylist():
                if name in kept:
                    writer.add({"id": name, "split": "train"})
        files.append(writer.path)
    Manifest("corpus.split", "test").write(folder / "split" / "manifest.json", files)
    mark = json.dumps({"step": "dedup.export", "config": {"write": True, "skipped_by": list(skipped_by)}})
    for path in sorted((folder / "signature").glob("*.manifest.json")):
        options = ["--documents", str(folder / "documents" / path.name), "--signals", str(path)]
        options += ["--split", str(folder / "split" / "manifest.json")]
        assert export.main(["--config", mark, "--manifest", str(folder / "export" / path.name), *options]) == 0
    return folder / "export"


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, TEXTS, st.integers(1, 3), st.integers(1, 3))
@pytest.mark.slow  # seconds
def test_the_new_corpus_has_nothing_of_the_old_one(
    tmp_path_factory: Any, old: list[str], new: list[str], shards_before: int, shards: int
) -> None:
    before, folder = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    old_documents, new_documents = documents(old, 0), documents(new, 500)
    run(before, old_documents, shards_before, CONFIG)
    place = exported(before)
    config = {**CONFIG, "exact": {"earlier": [str(place)], "skipped_by": []}}
    found = verdicts(run(folder, new_documents, shards, config))
    assert found.keys() == {row["id"] for row in new_documents}, "documents of the earlier corpus have no verdict here"

    kept = {name for name, row in verdicts(before / "select" / "manifest.json").items() if row["kept"]}
    text = {row["id"]: row["text"] for row in old_documents + new_documents}
    # The same with the texts: the earlier documents are curated, and longer than all others.
    curated = [{**row, "curated": True} for row in old_documents if row["id"] in kept]
    others = [{**row, "curated": False} for row in new_documents]
    both = verdicts(run(tmp_path_factory.mktemp("both"), curated + others, shards, CONFIG))
    plain = verdicts(run(tmp_path_factory.mktemp("plain"), others, shards, config))
    for name, row in plain.items():
        if both[name]["duplicate_of"] in kept or row["duplicate_of"] in kept:
            assert row["kept"] == both[name]["kept"]
    for name, row in found.items():
        keeper = row["duplicate_of"]
        if keeper is None:
            assert not any(text[name] == text[other] for other in kept)
        else:
            assert keeper in kept or found[keeper]["kept"]
            same = 1.0 if text[name] == text[keeper] else jaccard(text[name], text[keeper], 2)
            assert row["similarity"] == same >= 0.5
    summary = Manifest.read(folder / "select" / "manifest.json").summary
    assert summary["earlier"] == sum(row["duplicate_of"] in kept for row in found.values())
    counts = Manifest.read(folder / "exact" / "manifest.json").counts
    assert counts["in"] == len(new_documents)


def test_a_copy_of_an_export_s_document_goes(tmp_path: Path) -> None:
    text = "one two three four five six"
    run(tmp_path / "old", documents([text, "other words altogether here"], 0), 2, CONFIG)
    place = exported(tmp_path / "old")
    config = {**CONFIG, "exact": {"earlier": [str(place)], "skipped_by": []}}
    new = documents([text, text + " seven", "something else again now"], 500)
    found = verdicts(run(tmp_path / "new", new, 2, config))
    ids = [row["id"] for row in new]
    old = documents([text], 0)[0]["id"]
    assert [found[name]["rule"] for name in ids] == ["exact", "near", None]
    assert [found[name]["duplicate_of"] for name in ids] == [old, old, None]
    assert found[ids[1]]["similarity"] == 5 / 6


def test_a_source_that_skips_dedup_is_not_exported(tmp_path: Path) -> None:
    """So it is no reason to drop a document of a later run either; and a source of a later run is none of the export."""
    old = [
        {**row, "source": source}
        for row, source in zip(documents(["a b c d", "e f g h"], 0), ("code", "web"), strict=True)
    ]
    run(tmp_path / "old", old, 1, CONFIG)
    place = exported(tmp_path / "old", ["code"])
    made = Manifest.read(place / "00000.manifest.json")
    assert made.counts == {"in": 2, "kept": 1, "dropped": {"not in the corpus": 0, "of a source that skips dedup": 1}}
    assert made.summary["documents"] == 1
    new = documents(["a b c d", "e f g h"], 500)
    config = {**CONFIG, "exact": {"earlier": [str(place)], "skipped_by": ["web"]}}
    found = verdicts(run(tmp_path / "new", new, 1, config))
    assert [found[row["id"]]["kept"] for row in new] == [True, False]


def test_what_is_no_export_of_these_settings_is_refused(tmp_path: Path) -> None:
    run(tmp_path, documents(["one two three"], 0), 1, CONFIG)
    place = exported(tmp_path)
    signature = Manifest.read_unchecked(tmp_path / "signature" / "00000.manifest.json")
    assert len(previous_corpora.earlier_shards([str(place)], [signature])) == 1
    with pytest.raises(InputError, match=r"nowhere has no manifest of dedup.export"):
        previous_corpora.earlier_shards([str(tmp_path / "nowhere")])
    with pytest.raises(InputError, match=r"is a manifest of dedup.signature, not of dedup.export"):
        previous_corpora.earlier_shards([str(tmp_path / "signature")])
    signature.summary["seed"] = 7
    with pytest.raises(InputError, match=r"was made with dedup.signature.seed 1, here it is 7"):
        previous_corpora.earlier_shards([str(place)], [signature])
    (place / "sets" / "00000.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="has 0 bytes"):
        previous_corpora.earlier_shards([str(place)])
