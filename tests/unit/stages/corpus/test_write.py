"""corpus.write: the join of the verdicts, the order, the split, and the table of what was dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import Writer, parquet_file, rows, uniform_hash
from crawl2llm.stages.corpus import split as splitting
from crawl2llm.stages.corpus import write
from crawl2llm.stages.corpus.write import shuffled_tables, verdict_rows
from tests.unit import making

STAGES = {"ingest": "ingest.check"} | {name: f"{name}.select" for name in FILTERS}
IDS = [f"d{number:03d}" for number in range(200)]
DROPS: dict[str, Callable[[str], bool]] = {
    "ingest": lambda name: name.endswith("77"),
    "language": lambda name: name.endswith("0"),
    "heuristics": lambda name: name.endswith("1"),
    "dedup": lambda name: name.endswith("22"),
    "quality": lambda name: name.startswith("d03"),
}


def given(folder: Path, drops: dict[str, Callable[[str], bool]] = DROPS) -> dict[str, Path]:
    """Manifests of one shard's documents and of every stage's verdicts on what the stages before left."""
    rows_ = [making.document(n, f"Text {n}. " * (1 + i % 9), source="ab"[i % 2]) for i, n in enumerate(IDS)]
    made = {"documents": making.documents(folder / "documents", rows_)}
    left = IDS
    for stage, step in STAGES.items():
        made[stage] = making.verdicts(folder / stage, {"00000": left}, drops.get(stage, lambda _: False), step)
        left = [name for name in left if not drops.get(stage, lambda _: False)(name)]
    return made


def options(made: dict[str, Path]) -> list[str]:
    """The inputs of both steps as options."""
    return ["--documents", str(made["documents"]), "--verdicts", *(str(made[stage]) for stage in STAGES)]


def run(folder: Path, made: dict[str, Path], seed: int = 0, edits: Sequence[Path] = (), **settings: Any) -> int:
    """Both steps; the documents' URLs have one host, so that the split is by document."""
    inputs = options(made)
    out = str(folder / "split/manifest.json")
    config = making.config("corpus.split", seed=seed, split_by="document", **settings)
    if status := splitting.main(["--config", config, *inputs, "--manifest", out]):
        return status
    argv = ["--config", making.config("corpus.write", seed=seed), "--manifest", str(folder / "00000.manifest.json")]
    return write.main([*argv, *inputs, "--split", out, "--edits", *map(str, edits)])


def split(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(rows(Manifest.read(folder / "00000.manifest.json").file(f"{name}/00000.parquet")))


def test_survivors_once_with_all_they_had(tmp_path: Path) -> None:
    made = given(tmp_path)
    assert run(tmp_path / "out", made, validation_fraction=0.2) == 0
    kept = split(tmp_path / "out", "train") + split(tmp_path / "out", "validation")
    wanted = [name for name in IDS if not any(drop(name) for drop in DROPS.values())]
    assert sorted(row["id"] for row in kept) == wanted
    documents = {row["id"]: row for row in rows(parquet_file(made["documents"]))}
    assert all(row == documents[row["id"]] for row in kept)


def test_split_and_order_are_hashes_of_seed_and_id(tmp_path: Path) -> None:
    assert run(tmp_path / "out", given(tmp_path), validation_fraction=0.2, seed=5) == 0
    train, validation = split(tmp_path / "out", "train"), split(tmp_path / "out", "validation")
    for rows_, inside in ((validation, True), (train, False)):
        names = [row["id"] for row in rows_]
        assert all((uniform_hash(5, name, "split") < 0.2) is inside for name in names)
        assert names == sorted(names, key=lambda name: uniform_hash(5, name, "shuffle")) != sorted(names)
    assert 0.1 < len(validation) / (len(train) + len(validation)) < 0.3
    assert run(tmp_path / "other", given(tmp_path), validation_fraction=0.2, seed=6) == 0
    assert [row["id"] for row in split(tmp_path / "other", "train")] != [row["id"] for row in train]


def test_every_dropped_document_has_a_row(tmp_path: Path) -> None:
    assert run(tmp_path / "out", given(tmp_path)) == 0
    manifest = Manifest.read(tmp_path / "out/00000.manifest.json")
    dropped = list(rows(manifest.file("dropped/00000.parquet")))
    counts = manifest.counts
    assert counts["in"] == 200 == counts["kept"] + len(dropped)
    assert counts["dropped"] == {
        "ingest.short": 2,
        "language.short": 20,
        "heuristics.short": 20,
        "dedup.short": 2,
        "quality.short": 8,
    }
    assert len({row["id"] for row in dropped}) == len(dropped) == sum(counts["dropped"].values())
    for row in dropped:
        first = next(stage for stage in STAGES if DROPS.get(stage, lambda _: False)(row["id"]))
        assert (row["stage"], row["rule"], row["value"]) == (first, "short", 1.0)
        assert row["source"] in "ab" and row["url"] == f"https://example.org/{row['id']}"


def test_summary_counts_documents_and_bytes(tmp_path: Path) -> None:
    assert run(tmp_path / "out", given(tmp_path), validation_fraction=0.2) == 0
    summary = Manifest.read(tmp_path / "out/00000.manifest.json").summary
    kept = {name: split(tmp_path / "out", name) for name in ("train", "validation")}
    for name, rows_ in kept.items():
        assert summary[name] == {"documents": len(rows_), "bytes": sum(len(row["text"].encode()) for row in rows_)}
    assert sum(part["documents"] for part in summary["by_source"].values()) == sum(map(len, kept.values()))
    assert sum(summary["lengths"]["kept"].values()) == sum(map(len, kept.values()))
    assert sum(summary["lengths"]["dropped"].values()) == 52
    assert set(summary["lengths"]["kept"]) <= {"8", "16", "32", "64"}


def test_a_shard_of_which_nothing_is_left(tmp_path: Path) -> None:
    """Other shards hold the corpus; this one's files are there and empty."""
    made = given(tmp_path, {**DROPS, "language": lambda _: True})
    with Writer(tmp_path / "split/00000.parquet", splitting.SPLIT_TABLE) as writer:
        pass
    made["split"] = tmp_path / "split/manifest.json"
    Manifest("corpus.split", "test").write(made["split"], [writer.path])
    argv = ["--config", making.config("corpus.write"), "--manifest", str(tmp_path / "out/00000.manifest.json")]
    assert write.main([*argv, *options(made), "--split", str(made["split"])]) == 0
    assert split(tmp_path / "out", "train") == split(tmp_path / "out", "validation") == []


def test_a_document_without_a_split_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = given(tmp_path)
    with Writer(tmp_path / "split/00000.parquet", splitting.SPLIT_TABLE) as writer:
        writer.add({"id": IDS[3], "split": "train"})
    made["split"] = tmp_path / "split/manifest.json"
    Manifest("corpus.split", "test").write(made["split"], [writer.path])
    argv = ["--config", making.config("corpus.write"), "--manifest", str(tmp_path / "out/00000.manifest.json")]
    assert write.main([*argv, *options(made), "--split", str(made["split"])]) == 1
    assert "no split for document d002" in capsys.readouterr().err


def test_buckets_on_disk_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = parquet_file(given(tmp_path)["documents"])
    wanted = {name: "train" if number % 3 else "validation" for number, name in enumerate(IDS)}
    found = []
    for bucket in (1 << 30, 4 * documents.stat().st_size // 7):
        monkeypatch.setattr(write, "BUCKET", bucket)
        parts = list(shuffled_tables(documents, wanted, "train", 0, tmp_path, {}))
        found.append([row for part in parts for row in part.to_pylist()])
    assert len(parts) == 8 and found[0] == found[1] and len(found[0]) == 133


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("wrong", ["more", "fewer"])
def test_verdicts_that_do_not_belong_together(tmp_path: Path, stage: str, wrong: str) -> None:
    made = given(tmp_path)
    left = [row["id"] for row in rows(parquet_file(made[stage], "00000"))]
    left = [*left, "stranger"] if wrong == "more" else left[1:]
    made[stage] = making.verdicts(tmp_path / "wrong", {"00000": left}, DROPS.get(stage, lambda _: False), STAGES[stage])
    reached = len(left) + (-1 if wrong == "more" else 1)
    with pytest.raises(InputError, match=f"{stage} judged {len(left)} documents, but {reached} reached it"):
        verdict_rows(parquet_file(made["documents"]), [made[name] for name in STAGES], "00000")
    assert run(tmp_path / "out", made) == 1
    assert not (tmp_path / "out/00000.manifest.json").exists()


def test_same_bytes_again_and_no_scratch_left(tmp_path: Path) -> None:
    for name in "ab":
        assert run(tmp_path / name, given(tmp_path)) == 0
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*"))
    assert files == sorted(path.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*"))
    assert not [path for path in files if path.name.startswith(".") and path.suffix != ".copy"]
    for path in files:
        if (tmp_path / "a" / path).is_file():
            assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
    assert pq.read_schema(tmp_path / "a/dropped/00000.parquet").equals(write.DROPPED)


def test_edits_are_applied_counted_and_traceable(tmp_path: Path) -> None:
    """The corpus has the edited text; the documents stay as they are."""
    made = given(tmp_path)
    one, other = IDS[3], IDS[4]  # "Text d003. …", four and five times
    edits = making.edits(
        tmp_path / "lines", [(one, 0, 5, "", "word"), (other, 5, 9, "X", "name"), (IDS[0], 0, 1, "", "word")]
    )
    assert run(tmp_path / "out", made, edits=[edits]) == 0
    kept = {row["id"]: row["text"] for name in ("train", "validation") for row in split(tmp_path / "out", name)}
    assert kept[one] == "d003. " + "Text d003. " * 3
    assert kept[other] == "Text X. " + "Text d004. " * 4
    summary = Manifest.read(tmp_path / "out/00000.manifest.json").summary
    assert summary["edits"] == {
        "lines": {
            "word": {"documents": 1, "spans": 1, "bytes": 5},  # the one that language drops is not in the corpus
            "name": {"documents": 1, "spans": 1, "bytes": 3},
        }
    }
    assert sum(summary[name]["bytes"] for name in ("train", "validation")) == sum(map(len, kept.values()))
    assert sum(part["bytes"] for part in summary["by_source"].values()) == sum(map(len, kept.values()))
