"""Which checkpoints there are, and of which model each is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core import checkpoint_folders
from crawl2llm.core.atomic_folder import CHECKPOINT, seal_folder, sync_folder
from crawl2llm.training import export, listing


def saved(folder: Path, step: int, size: int = 2_000_000) -> Path:
    made = folder / f"step-{step:06d}"
    made.mkdir(parents=True)
    (made / "weights").write_bytes(b"x" * size)
    seal_folder(made, CHECKPOINT, {"step": step}, sync_folder(made))
    return made


def test_each_names_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export.main([]) == 0 and capsys.readouterr().out == "no checkpoint below checkpoints\n"
    places = {
        "aa": "results/main/pretrain/train/manifest.json",
        "bb": "results/main/finetune/train/sft.manifest.json",
        "cc": "/data/run/results/hot/finetune/train/sft.manifest.json",
    }
    for name, manifest in places.items():
        saved(Path("checkpoints", name), 10)
        checkpoint_folders.write_pointer(Path("checkpoints", name), Path(manifest), "x")
    saved(Path("checkpoints/aa"), 1200, 120_000_000)
    saved(Path("checkpoints/aa-0123"), 5)
    (saved(Path("checkpoints/bb"), 20) / "weights").write_bytes(b"cut off")
    for seconds, name in enumerate(("aa", "aa-0123", "cc", "bb")):
        for place in Path("checkpoints", name).glob(f"step-*/{CHECKPOINT}"):
            os.utime(place, (seconds, seconds))
    assert export.main([]) == 0
    head, *rows, note = capsys.readouterr().out.splitlines()
    assert head.split() == list(listing.HEADINGS) and note.startswith("?: ")
    assert [row[:50].split()[0].split("/", 1)[1] for row in rows] == [
        "aa/step-000010", "aa/step-001200", "aa-0123/step-000005", "cc/step-000010", "bb/step-000010",
    ]  # fmt: skip
    assert [row[1:3] for row in listing.checkpoint_rows(Path("checkpoints"))] == [
        ("base", "10"), ("base", "1,200"), ("?", "5"), ("sft of hot", "10"), ("sft", "10"),
    ]  # fmt: skip
    assert "0.1 GB" in rows[1] and "2.0 MB" in rows[0]


def test_a_checkpoint_without_a_folder_to_write_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        export.main(["checkpoints/aa/step-000010"])
    assert "name the folder to write" in capsys.readouterr().err
