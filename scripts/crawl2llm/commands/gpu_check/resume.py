"""Whether a training goes on as if nothing had been: an engine saves, its process is killed, and the next one loads and trains on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import Line, at_most
from crawl2llm.commands.gpu_check.place import Place

LOSSES, FOLDER = "losses.json", "checkpoint"  # in the scratch folder
BEFORE, AFTER = 2, 3  # steps
MOST = 1e-3  # nats: the backward pass of flash attention adds up in no fixed order; the first loss after the load is the same to the bit


@dataclass(frozen=True)
class SavedCheckpoint:
    """What an engine asks of a checkpoint that it loads (training/checkpoint.py has more)."""

    path: Path
    engine: str = "torch"


def _trainer(place: Place) -> tuple[Any, int, int, int]:
    size, vocabulary, context, micro_batch = ("tiny", 512, 64, 2) if place.tiny else ("4 wide layers", 32_768, 1024, 4)
    config = models.llama_config(size, vocabulary, context)
    settings = models.engine_settings(zero_stage=1)
    return models.build_engine(config, settings, place.device, micro_batch), vocabulary, context, micro_batch


def _losses(place: Place, trainer: Any, shape: tuple[int, int, int], steps: range) -> list[float]:
    vocabulary, context, micro_batch = shape
    losses = []
    for step in steps:
        chance = torch.Generator().manual_seed(1000 * step + torch.distributed.get_rank())
        tokens = torch.randint(0, vocabulary, (1, micro_batch, context + 1), generator=chance).to(place.device)
        losses.append(float(trainer.step(tokens, models.RATE).loss))
    return losses


def save_and_die(place: Place) -> Iterator[Line]:
    """Train, save, train on, and be killed as by a node that fails."""
    trainer, *shape = _trainer(place)
    _losses(place, trainer, tuple(shape), range(BEFORE))  # type: ignore[arg-type]
    folder = place.scratch / FOLDER
    if torch.distributed.get_rank() == 0:
        folder.mkdir()
    place.gather(None)
    place.wait()
    start = time.perf_counter()
    trainer.save(folder)
    place.gather(None)
    seconds = time.perf_counter() - start
    losses = _losses(place, trainer, tuple(shape), range(BEFORE, BEFORE + AFTER))  # type: ignore[arg-type]
    (place.scratch / f"{torch.distributed.get_rank()}-{LOSSES}").write_text(json.dumps(losses))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    measured, values = f"{size / 1e9:.2f} GB, {size / seconds / 1e9:.2f} GB/s", {"bytes": size, "seconds": seconds}
    yield Line("save", "a checkpoint", measured, note="then killed", values=values)
    place.gather(None)
    os.kill(os.getpid(), signal.SIGKILL)


def load_and_go_on(place: Place) -> Iterator[Line]:
    """Load what `save_and_die` saved, and compare the losses."""
    trainer, *shape = _trainer(place)
    start = time.perf_counter()
    trainer.load(SavedCheckpoint(place.scratch / FOLDER), place.scratch)
    place.wait()
    seconds = time.perf_counter() - start
    losses = _losses(place, trainer, tuple(shape), range(BEFORE, BEFORE + AFTER))  # type: ignore[arg-type]
    expected = json.loads((place.scratch / f"{torch.distributed.get_rank()}-{LOSSES}").read_text())
    every = place.gather([abs(here - there) for here, there in zip(losses, expected, strict=True)])
    first, most = max(each[0] for each in every), max(max(each) for each in every)
    values = {"differences": every, "load_seconds": seconds}
    yield Line(
        "load",
        "first loss after the load",
        f"±{first:.1e} nats, loaded in {seconds:.1f} s",
        "0",
        at_most(first, 0),
        values=values,
    )
    yield Line("load", f"losses of {AFTER} steps", f"±{most:.1e} nats", f"≤ {MOST:g}", at_most(most, MOST))
