"""Training steps of a Llama of 1B parameters under several settings: tokens/s, MFU, peak memory beside the estimate, waits for the GPU."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.checks import PACKAGE
from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, SLOW, WRONG, Line, slow_places
from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.core.console import print_line
from crawl2llm.training import gpus, initial, measures, memory, model
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.prediction.checked_models import CONTEXT, VOCABULARY
from crawl2llm.training.processes import RANKS

COMPILED = {"compile_layers": True}
FUSED = {**COMPILED, "loss_chunk": gpus.LOSS_CHUNK}
COPIES = {**FUSED, "autocast": False}
EIGHT_BITS = {"precision": "fp8"}
# name: (micro-batch, changes of the settings, least MFU of a sound H100, None if it is not known). What was measured:
# docs/commands/gpu-check.md.
CASES: dict[str, tuple[int, dict[str, Any], float | None]] = {
    "eager, stage 0": (8, {}, 0.27),
    "compiled, stage 0": (8, COMPILED, 0.40),
    "compiled, loss in pieces, stage 0": (8, FUSED, 0.40),
    "compiled, loss in pieces, stage 1": (8, {**FUSED, "zero_stage": 1}, 0.42),
    "compiled, loss in pieces, stage 1, micro-batch 16": (16, {**FUSED, "zero_stage": 1}, 0.44),
    "compiled, loss in pieces, stage 0, without autocast": (8, COPIES, 0.42),
    "compiled, loss in pieces, stage 0, without autocast, micro-batch 16": (16, COPIES, 0.44),
    "fp8, compiled, loss in pieces": (8, {**FUSED, **EIGHT_BITS}, None),
    "fp8, compiled, loss in pieces, micro-batch 16": (16, {**FUSED, **EIGHT_BITS}, None),
}
KIND_OF_FLOORS = "h100"
MOST_WAITS = 1  # for the norm of the gradient
WARMUP, TIMES = 2, 6


def count_waits(step: Callable[[], Any]) -> int:
    """How often the host waits for the GPU in step()."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(each.message) for each in caught)


def model_shape(config: Any, settings: EngineSettings) -> memory.Shape:
    """What decides the memory of a model by its configuration of transformers."""
    empty = initial.empty_model(config)
    groups = [group["params"] for group in model.parameter_groups(empty, settings) if "momentum" in group]
    parameters = sum(value.numel() for value in empty.parameters())
    shape = memory.shape_of_config(config, parameters, config.max_position_embeddings)
    return replace(shape, matrices=sum(value.numel() for values in groups for value in values))


def estimate_memory(config: Any, settings: EngineSettings, micro_batch: int, processes: int = 1) -> dict[str, int]:
    """What pretrain.plan says that a process takes on a GPU, in bytes by part, without CUDA's own."""
    shape = model_shape(config, settings)
    placement = memory.Placement(
        processes=processes, largest=micro_batch * processes, micro_batch=micro_batch, activation_checkpointing=False
    )
    parts = memory.memory_parts(shape, settings, placement, cuda=True)
    return {name: size for name, size in parts.items() if name != "program"}


def why_skipped(place: Place, changes: dict[str, Any]) -> str:
    """Why a case is not measured here; "" if it is."""
    if place.tiny and "compile_layers" in changes and not place.on_gpu:
        return "layers are compiled for a GPU"
    return models.why_no_eight_bits(place) if changes.items() >= EIGHT_BITS.items() else ""


def predicted_rates(place: Place) -> dict[str, float]:
    """tokens/s of each GPU, by case, that pretrain.plan predicts here, by a process apart: counting has a process group of its own.

    {} if the GPU's data sheet is not known, or prediction lacks a package.
    """
    rates: dict[str, float] = {}
    if dist.get_rank() == 0 and place.sheet and place.gpu:
        words = [place.gpu.name, str(place.nodes), str(place.processes_here)]
        command = [sys.executable, "-m", f"{PACKAGE}.predicted", *words]
        environment = {name: value for name, value in os.environ.items() if name not in RANKS} | {
            "CUDA_VISIBLE_DEVICES": ""
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print_line(done.stderr, sys.stderr)
        rates = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    return place.gather(rates)[0]


def check(place: Place) -> Iterator[Line]:
    """One line for each of CASES, and one of its waits."""
    size, vocabulary, context = ("tiny", 512, 64) if place.tiny else ("1B", VOCABULARY, CONTEXT)
    config, predicted = models.llama_config(size, vocabulary, context), predicted_rates(place)
    for name, (micro_batch, changes, least) in CASES.items():
        if why := why_skipped(place, changes):
            yield Line("steps", name, verdict=SKIPPED, note=why)
            continue
        yield from _lines_of_case(place, name, config, micro_batch, changes, least, predicted.get(name))
        models.release(place)


def measure_steps(place: Place, config: Any, settings: EngineSettings, micro_batch: int) -> dict[str, Any]:
    """tokens/s of a GPU, seconds of the first step, losses of the first and the last, peak memory and waits, None on a CPU. Collective."""
    began = time.perf_counter()
    trainer = models.build_engine(config, settings, place.device, micro_batch)
    shape = (1, micro_batch, config.max_position_embeddings + 1)
    tokens = torch.randint(0, config.vocab_size, shape, device=place.device)

    def step() -> float:
        return float(trainer.step(tokens, models.RATE).loss)

    first_loss = step()
    first, seconds = time.perf_counter() - began, []
    for _ in range(WARMUP):
        step()
    if place.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(TIMES):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
    return {
        "tokens_per_second": micro_batch * config.max_position_embeddings / statistics.median(seconds),
        "micro_batch": micro_batch, "first_step_seconds": first, "loss": loss, "first_loss": first_loss,
        "allocated_bytes": torch.cuda.max_memory_allocated() if place.on_gpu else None,
        "waits": count_waits(lambda: trainer.step(tokens, models.RATE)) if place.on_gpu else None,
    }  # fmt: skip


def _lines_of_case(
    place: Place, name: str, config: Any, micro_batch: int, changes: dict[str, Any], least: float | None, predicted: float | None,
) -> Iterator[Line]:  # fmt: skip
    settings = models.engine_settings(**changes)
    values = measure_steps(place, config, settings, 2 if place.tiny else micro_batch)
    rate, waits, allocated = values["tokens_per_second"], values.pop("waits"), values["allocated_bytes"]
    parameters = sum(value.numel() for value in initial.empty_model(config).parameters())
    flops = measures.flops_per_token(
        parameters, config.num_hidden_layers, config.hidden_size, config.max_position_embeddings
    )
    used = measures.mfu(rate, flops, place.gpu.peak if place.gpu else None, 1)
    values |= {
        "mfu": used, "parameters": parameters, "predicted_tokens_per_second": predicted,
        "settings": {"zero_stage": 0, **changes}, "eight_bits": changes.items() >= EIGHT_BITS.items(),
    }  # fmt: skip
    measured = f"{rate:,.0f} tokens/s" + (" a GPU" if place.processes > 1 else "")
    measured += f" (predicted {predicted:,.0f})" if predicted else ""
    measured += f", MFU {used:.1%}" if used is not None else ""
    if allocated:
        estimated = sum(estimate_memory(config, settings, micro_batch, place.processes).values())
        measured += f", {allocated / 2**30:.2f} GiB (estimate {estimated / 2**30:.2f})"
        values |= {"estimated_bytes": estimated}
    known = place.gpu is not None and place.gpu.name == KIND_OF_FLOORS and least is not None
    verdict = SLOW if known and used is not None and used < (least or 0) else OK
    every = place.gather((rate, place.name))
    note = f"first step {values['first_step_seconds']:.1f} s"
    if not values["loss"] < values["first_loss"]:
        verdict, note = (
            WRONG,
            f"the loss does not fall on one batch: {values['first_loss']:.4f}, then {values['loss']:.4f}",
        )
    elif place.on_gpu and (low := slow_places([value for value, _ in every], 0.9)):
        verdict, note = SLOW, "; ".join(f"{every[number][1]} has {every[number][0]:,.0f} tokens/s" for number in low)
    yield Line("steps", name, measured, f"MFU ≥ {least:.0%}" if known else "", verdict, note, values)
    if waits is not None:
        verdict = OK if waits <= MOST_WAITS else WRONG
        yield Line("steps", f"waits, {name}", str(waits), f"≤ {MOST_WAITS}", verdict, values={"waits": waits})
