"""Trainings of crawl2llm.stages.align.train as copies of a process that has what they import."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from crawl2llm.core.root import ROOT
from crawl2llm.training import checkpoint
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.copies import finished

RESULTS = ("made.manifest.json", "made/losses.jsonl", "made/prompts.jsonl", "made/model/model.safetensors")


def arguments(base: Path, pairs: Path, out: Path, step: str = "align.train", **settings: object) -> list[str]:
    """The program's options with these settings of align.train, or of another step."""
    config = tiny.config(step, **settings)
    given = ["--model", str(base), "--pairs", str(pairs), "--manifest", str(out / "made.manifest.json")]
    return ["--config", config, *given, "--checkpoints", str(out / "checkpoints")]


def launched(options: list[str], processes: int = 1, **variables: str) -> copies.Launched:
    """The launcher with so many processes, in a process group of its own."""
    folder = Path(options[options.index("--checkpoints") + 1]).parent
    folder.mkdir(exist_ok=True)
    program = json.loads(options[options.index("--config") + 1])["step"].rpartition(".")[2]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PROGRAM": program, **variables}
    return copies.Launched(
        ["--processes", str(processes), "tests.unit.stages.align.cases", *options], folder, environment
    )


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def killed(options: list[str], processes: int) -> None:
    """Start a training and kill it, the launcher and all, when its first checkpoint is there."""
    process, folder = launched(options, processes), Path(options[options.index("--checkpoints") + 1])
    end = time.monotonic() + 900
    while not list(folder.glob(f"*/step-*/{checkpoint.FACTS}")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()[1]
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def resumed_is_straight(
    base: Path,
    pairs: Path,
    folder: Path,
    processes: int,
    results: tuple[str, ...] = RESULTS,
    more: tuple[str, ...] = (),
    **settings: object,
) -> None:
    """A training that is killed and started again leaves the bytes of one that was not."""
    straight, cut = (arguments(base, pairs, folder / name, **settings) for name in ("straight", "cut"))
    straight, cut = [*straight, *more], [*cut, *more]
    finished(launched(straight, processes))
    cut += ["--checkpoint-every", "2"]
    killed(cut, processes)
    assert not (folder / "cut/made.manifest.json").exists()
    said = finished(launched(cut, processes))
    assert "resuming after step" in said and " before: " not in said
    for name in results:
        assert (folder / "straight" / name).read_bytes() == (folder / "cut" / name).read_bytes(), name
    assert not list((folder / "cut/checkpoints").glob("[!.]*"))
