"""The folder of a training's checkpoints: who holds it, and whose they are, where two variants train the same model on the same text."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from crawl2llm.core import checkpoint_folders
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.kept_checkpoints import checkpoint_folder
from crawl2llm.training.listing import model_of

MAIN, OTHER = (Path(f"results/{name}/pretrain/train/manifest.json") for name in ("main", "without-quality"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folders, "POLL_SECONDS", 0.02)


def test_checkpoints_of_two_variants_belong_to_both(tmp_path: Path) -> None:
    """The second training found the first one's, and the curve of the first was said to have none."""
    place = tmp_path / "checkpoints/0123"
    for manifest, mark in ((MAIN, "a"), (OTHER, "b")):
        with checkpoint_folders.claim_folder(place, manifest, mark):
            pass
        result = tmp_path / manifest.parent
        result.mkdir(parents=True)
        for folder in (result, place):
            (folder / "losses.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
        Manifest("pretrain.train", mark).write(result / "manifest.json", [result / "losses.jsonl"])
    for manifest in (MAIN, OTHER):
        assert checkpoint_folder(Manifest.read(tmp_path / manifest), place.parent) == place
    assert [model_of(path) for _, path, _ in checkpoint_folders.trainings_below(place.parent)] == [
        "base of without-quality",
        "base",
    ]


def test_a_training_that_begins_again_is_there_once(tmp_path: Path) -> None:
    for manifest, mark in ((MAIN, "a"), (OTHER, "b"), (MAIN, "c")):
        with checkpoint_folders.claim_folder(tmp_path / "x", manifest, mark):
            pass
    assert [(path, mark) for _, path, mark in checkpoint_folders.trainings_below(tmp_path)] == [
        (MAIN, "c"),
        (OTHER, "b"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"manifest": "x"}', '{"others": [1]}'])
def test_what_cannot_be_read_belongs_to_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/training.json").write_text(text)
    assert list(checkpoint_folders.trainings_below(tmp_path)) == []
    with checkpoint_folders.claim_folder(tmp_path / "x", MAIN, "a"):
        assert json.loads((tmp_path / "x/training.json").read_text())["manifest"] == str(MAIN)


def test_one_waits_for_another_that_trains_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held, go, order = threading.Event(), threading.Event(), []

    def first() -> None:
        with checkpoint_folders.claim_folder(tmp_path / "x", MAIN, "a"):
            held.set()
            go.wait(10)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    held.wait(10)
    threading.Timer(0.3, go.set).start()
    with caplog.at_level("INFO"), checkpoint_folders.claim_folder(tmp_path / "x", OTHER, "b"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert caplog.text.count(f"{MAIN} trains the same model on the same text: waiting for it") == 1


def test_the_same_training_twice_is_refused(tmp_path: Path) -> None:
    with checkpoint_folders.claim_folder(tmp_path / "x", MAIN, "a"):
        began = time.monotonic()
        with (
            pytest.raises(checkpoint_folders.FolderInUseError, match="already being trained"),
            checkpoint_folders.claim_folder(tmp_path / "x", MAIN, "a"),
        ):
            pass
        assert time.monotonic() - began < 5
