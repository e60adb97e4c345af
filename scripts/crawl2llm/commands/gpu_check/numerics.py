"""Whether a GPU computes what a CPU does: steps of four layers under every stage, optimiser and precision, against fp32 on the CPU."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import SKIPPED, Line, at_most
from crawl2llm.commands.gpu_check.place import Place

STAGES, OPTIMISERS = (0, 1, 2, 3), ("adamw", "muon")
# By precision: how far the loss may be from that of fp32 on the CPU in four steps, in nats; and the norm of the gradient, as a share.
TOLERANCES = {"fp32": (1e-4, 1e-3), "bf16": (2e-2, 3e-2), "fp16": (5e-3, 1e-2)}
STEPS, MICRO_BATCH, CONTEXT, VOCABULARY = 4, 2, 128, 1024
Course = list[tuple[float, float]]  # loss and norm of each step


def course_of(place: Place, device: torch.device, changes: dict[str, Any]) -> Course:
    """Loss and norm of the first steps under these settings, with the same weights and tokens on every device."""
    config = models.llama_config("tiny" if place.tiny else "4 layers", VOCABULARY, CONTEXT)
    trainer = models.build_engine(config, models.engine_settings(**changes), device, MICRO_BATCH, draw_on="cpu")
    rank = torch.distributed.get_rank()
    course = []
    for step in range(STEPS):
        chance = torch.Generator().manual_seed(1000 * step + rank)
        tokens = torch.randint(0, VOCABULARY, (1, MICRO_BATCH, CONTEXT + 1), generator=chance)
        update = trainer.step(tokens.to(device), 1e-3)
        losses = place.gather(float(update.loss))
        course.append((sum(losses) / len(losses), math.nan if update.norm is None else update.norm))
    return course


def differences(course: Course, reference: Course) -> tuple[float, float]:
    """(largest difference of the loss in nats, of the norm as a share), nan where one is not a number."""
    loss = [abs(here[0] - there[0]) for here, there in zip(course, reference, strict=True)]
    norm = [abs(here[1] / there[1] - 1) for here, there in zip(course, reference, strict=True)]
    return tuple(math.nan if any(map(math.isnan, each)) else max(each) for each in (loss, norm))  # type: ignore[return-value]


def check(place: Place) -> Iterator[Line]:
    """One line for each stage, optimiser and precision; and of DeepSpeed where it is installed."""
    host = torch.device("cpu")
    reference = {kind: course_of(place, host, {"precision": "fp32", "optimizer": kind}) for kind in OPTIMISERS}
    cases: list[dict[str, Any]] = [
        {"zero_stage": stage, "optimizer": kind, "precision": precision}
        for stage, kind, precision in itertools.product(STAGES, OPTIMISERS, TOLERANCES)
        if place.on_gpu or precision != "fp16"  # which a CPU computes a hundred times slower
    ]
    compiled = {"compile_layers": True, "loss_chunk": 64}
    if place.on_gpu:
        cases += [{"zero_stage": stage, "optimizer": "adamw", "precision": "bf16", **compiled} for stage in (0, 1)]
    if importlib.util.find_spec("deepspeed"):
        cases += [
            {"engine": "deepspeed", "zero_stage": stage, "optimizer": "adamw", "precision": "bf16"} for stage in STAGES
        ]
    else:
        yield Line("numerics", "DeepSpeed", verdict=SKIPPED, note="not installed")
    for changes in cases:
        loss, norm = differences(course_of(place, place.device, changes), reference[changes["optimizer"]])
        most_loss, most_norm = TOLERANCES[changes["precision"]]
        verdict = at_most(max(loss / most_loss, norm / most_norm) if loss == loss else math.nan, 1)
        name = f"stage {changes['zero_stage']}, {changes['optimizer']}, {changes['precision']}"
        name += ", compiled" if "compile_layers" in changes else ""
        name += ", DeepSpeed" if "engine" in changes else ""
        yield Line(
            "numerics", name, f"loss ±{loss:.1e} nats, norm ±{norm:.1e}", f"≤ {most_loss:g}, ≤ {most_norm:g}", verdict,
            values={"loss_difference": loss, "norm_difference": norm},
        )  # fmt: skip
        models.release(place)
