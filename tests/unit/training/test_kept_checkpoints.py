"""Which checkpoints are those of a training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.kept_checkpoints import checkpoint_folder


def test_of_two_trainings_with_one_fingerprint_the_one_with_the_same_losses(tmp_path: Path) -> None:
    """What source files hold is in no fingerprint: a training on the files of before announced the same one."""
    result = tmp_path / "train"
    result.mkdir()
    (result / "losses.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
    Manifest("pretrain.train", "mark").write(result / "manifest.json", [result / "losses.jsonl"])
    for name, loss in (("0old", 4.0), ("1new", 3.0)):
        place = tmp_path / "checkpoints" / name
        place.mkdir(parents=True)
        (place / "losses.jsonl").write_text(f'{{"step": 1, "loss": {loss}}}\n')
        (place / "training.json").write_text(json.dumps({"manifest": "x", "fingerprint": "mark"}))
    trained = Manifest.read(result / "manifest.json")
    assert checkpoint_folder(trained, tmp_path / "checkpoints").name == "1new"
    (tmp_path / "checkpoints/1new/losses.jsonl").unlink()
    with pytest.raises(InputError, match="no checkpoints of this training"):
        checkpoint_folder(trained, tmp_path / "checkpoints")
