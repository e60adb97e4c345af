"""Leftovers: fewer shards than before leave no file behind that would pass for a result."""

from __future__ import annotations

from pathlib import Path

from crawl2llm.training.packed_windows import packing_files
from crawl2llm.workflow.stale_results import leftover_files, one_task_files, remove_files


def test_only_what_is_of_no_task_goes(tmp_path: Path) -> None:
    names = (
        "corpus/write/00000.manifest.json", "corpus/write/00003.manifest.json", "corpus/write/00003.run.json",
        "corpus/write/train/00000.parquet", "corpus/write/train/00003.parquet", "corpus/write/manifest.json",
        "benchmarks/corpus/write/00003.tsv", "benchmarks/corpus/write/00000.tsv", "language/score/00003.parquet",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert remove_files(leftover_files(tmp_path, "corpus.write", ["00000", "00001"])) == 4
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(name for name in names if "00003" not in name or name.startswith("language"))
    assert remove_files(leftover_files(tmp_path, "corpus.write", ["00000", "00001"])) == 0
    assert remove_files(leftover_files(tmp_path, "not.there", [])) == 0


def test_the_only_task_of_a_step_that_has_one_for_each_shard_today(tmp_path: Path) -> None:
    gone = (
        "language/select/manifest.json", "language/select/.manifest.copy", "language/select/run.json",
        "benchmarks/language/select.tsv", "benchmarks/language/select.work.tsv",
    )  # fmt: skip
    kept = ("language/select/00000.parquet", "language/select/00000.manifest.json", "language/score/run.json",
            "benchmarks/language/select/00000.tsv")  # fmt: skip
    for name in (*gone, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert remove_files(one_task_files(tmp_path, "language.select")) == len(gone)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_packed_windows_of_any_context_are_no_leftovers(tmp_path: Path) -> None:
    """Their files are named after the context, which may have as many digits as a shard, a part or a band."""
    for step in ("pretrain.pack", "pretrain.mix"):
        folder = tmp_path / step.replace(".", "/")
        folder.mkdir(parents=True)
        for name in (name for context in (16, 256, 1024, 32768) for name in packing_files(context)):
            (folder / name).touch()
        assert list(leftover_files(tmp_path, step, ["00000"])) == []
