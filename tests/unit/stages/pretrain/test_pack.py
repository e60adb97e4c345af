"""pretrain.pack, and a training that reads the windows that it packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain import pack
from crawl2llm.training import auto, data
from crawl2llm.training.packed_windows import PACKING, Packing, read_totals
from tests.unit.stages.pretrain.runs import finish, kill_after, same


def packed(folder: Path, tokens: list[Path], **model: Any) -> Path:
    """The manifest of the windows of `tokens` that pretrain.pack makes. model: keys of pretrain.train.model."""
    file, out = folder / "config.yaml", folder / "pack/manifest.json"
    file.write_text(json.dumps({"pretrain": {"train": {"packing": "best_fit", "model": model}}}))
    assert pack.main(["--config", str(file), "--manifest", str(out), "--tokens", *map(str, tokens)]) == 0
    return out


def test_the_windows_of_a_stream(shards: list[Path], tmp_path: Path) -> None:
    out = packed(tmp_path, shards, context=32)
    stream, totals = data.open_split(shards, "train"), read_totals([out], 32, verify=True)
    assert totals["documents"] == 480 and totals["tokens"] == len(stream)
    assert totals["windows"] * 32 == totals["tokens"] + totals["tokens_repeated"]
    windows = Packing(Manifest.read(out), stream, 32)
    places = {
        place
        for window in range(len(windows))
        for start, n in windows.window_pieces(window)
        for place in range(start, start + n)
    }
    assert places == set(range(len(stream)))
    first = {file.name: file.read_bytes() for file in out.parent.iterdir() if "run" not in file.name}
    out.unlink()
    packed(tmp_path, shards, context=32)
    assert first == {file.name: file.read_bytes() for file in out.parent.iterdir() if "run" not in file.name}


def test_a_context_that_is_auto_is_that_of_the_training(shards: list[Path], tmp_path: Path) -> None:
    tokens = len(data.open_split(shards, "train"))
    assert list(Manifest.read(packed(tmp_path, shards)).summary[PACKING]) == [str(auto.resolve_context(tokens, "auto"))]


@pytest.mark.slow
def test_a_training_reads_whole_documents_and_resumes_in_them(start: Any, shards: list[Path], tmp_path: Path) -> None:
    """Two processes; killed and resumed: the same bytes."""
    changes, option = (
        {"engine": "torch", "packing": "best_fit", "steps": 8},
        ("--packs", str(packed(tmp_path, shards, context=32))),
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole, 2, changes, *option))
    kill_after(start, killed, 5, 2, changes, *option)
    finish(start(killed, 2, changes, *option))
    same(whole, killed)
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["packing"]["documents"] == 480 and any("Best-fit packing" in note for note in summary["notes"])
