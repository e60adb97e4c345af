"""Leftovers: fewer shards than before leave no file behind that would pass for a result."""

from __future__ import annotations

from pathlib import Path

from scripts.workflow.leftovers import leftovers, lone, of_models, remove


def test_only_what_is_of_no_task_goes(tmp_path: Path) -> None:
    names = (
        "corpus/write/00000.manifest.json", "corpus/write/00003.manifest.json", "corpus/write/00003.run.json",
        "corpus/write/train/00000.parquet", "corpus/write/train/00003.parquet", "corpus/write/manifest.json",
        "benchmarks/corpus/write/00003.tsv", "benchmarks/corpus/write/00000.tsv", "language/score/00003.parquet",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert remove(leftovers(tmp_path, "corpus.write", ["00000", "00001"])) == 4
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(name for name in names if "00003" not in name or name.startswith("language"))
    assert remove(leftovers(tmp_path, "corpus.write", ["00000", "00001"])) == 0
    assert remove(leftovers(tmp_path, "not.there", [])) == 0


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
    assert remove(lone(tmp_path, "language.select")) == len(gone)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_a_model_that_the_config_no_longer_has_goes_with_its_folder_and_nothing_else(tmp_path: Path) -> None:
    gone = (
        "finetune/train/sft2.manifest.json", "finetune/train/sft2.run.json", "finetune/train/.sft2.manifest.copy",
        "finetune/train/sft2/losses.jsonl", "finetune/train/sft2/model/model.safetensors",
        "finetune/train/begun.run.json", "finetune/train/begun/losses.jsonl",
        "benchmarks/finetune/train/sft2.tsv", "benchmarks/finetune/train/sft2.work.tsv",
    )  # fmt: skip
    kept = (
        "finetune/train/sft.manifest.json", "finetune/train/sft/model/model.safetensors", "finetune/train/notes.txt",
        "finetune/train/my/model.safetensors", "finetune/train/manifest.json", "finetune/train/model/model.safetensors",
        "finetune/pairs/manifest.json", "benchmarks/finetune/train/sft.tsv", "evaluate/model/sft2.manifest.json",
        "checkpoints/sft2/model.safetensors",
    )  # fmt: skip
    for name in (*gone, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert remove(of_models(tmp_path, "finetune.train", ["sft"])) == len(gone)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(kept)
    assert not (tmp_path / "finetune/train/sft2").exists() and not (tmp_path / "finetune/train/begun").exists()
    assert remove(of_models(tmp_path, "finetune.train", ["sft"])) == 0
