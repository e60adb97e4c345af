"""Whether a GPU computes what a CPU does: steps of four layers under every stage, optimiser and precision, against fp32 on the CPU."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import SKIPPED, Line, at_most
from crawl2llm.commands.gpu_check.place import Place

STAGES, OPTIMISERS = (0, 1, 2, 3), ("adamw", "muon")
# By precision: how far the loss may be from that of fp32 on the CPU in four steps, in nats; and the norm of the gradient, as a share.
TOLERANCES = {"fp32": (1e-4, 1e-3), "bf16": (2e-2, 3e-2), "fp16": (5e-3, 1e-2), "fp8": (2e-2, 1e-1)}
PRECISIONS = ("fp32", "bf16", "fp16")  # under every stage and optimiser
# What a case sets beside them, and the words for it.
WORDS = {
    ("compile_layers", True): "compiled", ("autocast", False): "without autocast", ("shard_over", "node"): "sharded over a node",
    ("engine", "deepspeed"): "DeepSpeed",
}  # fmt: skip
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


def cases(place: Place) -> list[dict[str, Any]]:
    """The settings that are tried on this place."""
    every: list[dict[str, Any]] = [
        {"zero_stage": stage, "optimizer": kind, "precision": precision}
        for stage, kind, precision in itertools.product(STAGES, OPTIMISERS, PRECISIONS)
        if place.on_gpu or precision != "fp16"  # which a CPU computes a hundred times slower
    ]
    adam = {"optimizer": "adamw", "precision": "bf16"}
    every += [{"zero_stage": 0, "precision": "bf16", "optimizer": kind, "autocast": False} for kind in OPTIMISERS]
    if place.processes > 1:
        every += [{"zero_stage": stage, **adam, "shard_over": "node"} for stage in STAGES if stage]
    if place.on_gpu:
        compiled = {"compile_layers": True, "loss_chunk": 64}
        every += [{"zero_stage": stage, **adam, **compiled} for stage in (0, 1)]
        every += [{"zero_stage": 0, **adam, **compiled, "autocast": False}]
        if not models.why_no_eight_bits(place):
            every += [{"zero_stage": stage, "optimizer": "adamw", "precision": "fp8"} for stage in (0, 1, 3)]
    if importlib.util.find_spec("deepspeed"):
        every += [{"zero_stage": stage, **adam, "engine": "deepspeed"} for stage in STAGES]
    return every


def case_name(changes: dict[str, Any]) -> str:
    """`stage 0, adamw, bf16, without autocast`."""
    words = [WORDS[item] for item in changes.items() if item in WORDS]
    return ", ".join([f"stage {changes['zero_stage']}", changes["optimizer"], changes["precision"], *words])


@contextlib.contextmanager
def nodes_for(changes: dict[str, Any], place: Place) -> Iterator[None]:
    """If weights are shared out over a node and there is one node: its two halves count as nodes for the engine."""
    halves = "shard_over" in changes and place.nodes == 1 and place.processes % 2 == 0
    here = os.environ["LOCAL_WORLD_SIZE"]
    if halves:
        os.environ["LOCAL_WORLD_SIZE"] = str(place.processes // 2)
    try:
        yield
    finally:
        os.environ["LOCAL_WORLD_SIZE"] = here


@contextlib.contextmanager
def unchanged_products() -> Iterator[None]:
    """DeepSpeed's stage 3 replaces torch's `linear` for good, and other engines of this process would take up to 4 GiB less than usual."""
    linear = nn.functional.linear
    try:
        yield
    finally:
        nn.functional.linear = linear


def check(place: Place) -> Iterator[Line]:
    """One line for each of `cases`, and one for each thing that is not there."""
    host = torch.device("cpu")
    reference = {kind: course_of(place, host, {"precision": "fp32", "optimizer": kind}) for kind in OPTIMISERS}
    if not importlib.util.find_spec("deepspeed"):
        yield Line("numerics", "DeepSpeed", verdict=SKIPPED, note="not installed")
    if why := models.why_no_eight_bits(place):
        yield Line("numerics", "fp8", verdict=SKIPPED, note=why)
    if place.processes == 1:
        yield Line("numerics", "sharded over a node", verdict=SKIPPED, note="one process")
    for changes in cases(place):
        with nodes_for(changes, place), unchanged_products():
            course = course_of(place, place.device, changes)
        loss, norm = differences(course, reference[changes["optimizer"]])
        most_loss, most_norm = TOLERANCES[changes["precision"]]
        verdict = at_most(max(loss / most_loss, norm / most_norm) if loss == loss else math.nan, 1)
        yield Line(
            "numerics", case_name(changes), f"loss ±{loss:.1e} nats, norm ±{norm:.1e}", f"≤ {most_loss:g}, ≤ {most_norm:g}",
            verdict, values={"loss_difference": loss, "norm_difference": norm},
        )  # fmt: skip
        models.release(place)
