"""Training steps of a Llama of 1B parameters under several settings: tokens/s, MFU, peak memory beside the estimate, waits for the GPU."""

from __future__ import annotations

import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, SLOW, WRONG, Line, slow_places
from crawl2llm.commands.gpu_check.place import Place, uuid_of
from crawl2llm.training import initial, measures, memory, model
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.prediction.checked_models import CONTEXT, VOCABULARY

COMPILED = {"compile_layers": True}
FUSED = {**COMPILED, "loss_chunk": 4096}
# name: (micro-batch, changes of the settings, least MFU of a sound H100). What was measured: docs/commands/gpu-check.md.
CASES: dict[str, tuple[int, dict[str, Any], float]] = {
    "eager, stage 0": (8, {}, 0.27),
    "compiled, stage 0": (8, COMPILED, 0.40),
    "compiled, loss in pieces, stage 0": (8, FUSED, 0.40),
    "compiled, loss in pieces, stage 1": (8, {**FUSED, "zero_stage": 1}, 0.42),
    "compiled, loss in pieces, stage 1, micro-batch 16": (16, {**FUSED, "zero_stage": 1}, 0.44),
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


def estimate_memory(config: Any, settings: EngineSettings, micro_batch: int, processes: int = 1) -> dict[str, int]:
    """What pretrain.plan says that a process takes on a GPU, in bytes by part, without CUDA's own."""
    empty = initial.empty_model(config)
    groups = [group["params"] for group in model.parameter_groups(empty, settings) if "momentum" in group]
    parameters = sum(value.numel() for value in empty.parameters())
    shape = memory.shape_of_config(config, parameters, config.max_position_embeddings)
    shape = replace(shape, matrices=sum(value.numel() for values in groups for value in values))
    placement = memory.Placement(
        processes=processes, largest=micro_batch * processes, micro_batch=micro_batch, activation_checkpointing=False
    )
    parts = memory.memory_parts(shape, settings, placement, cuda=True)
    return {name: size for name, size in parts.items() if name != "program"}


def check(place: Place) -> Iterator[Line]:
    """One line for each of CASES, and one of its waits; eight-bit training where torchao is installed."""
    size, vocabulary, context = ("tiny", 512, 64) if place.tiny else ("1B", VOCABULARY, CONTEXT)
    config = models.llama_config(size, vocabulary, context)
    for name, (micro_batch, changes, least) in CASES.items():
        if place.tiny and "compile_layers" in changes and not place.on_gpu:
            yield Line("steps", name, verdict=SKIPPED, note="layers are compiled for a GPU")
            continue
        settings = models.engine_settings(**changes)
        yield from _lines_of_case(place, name, config, settings, micro_batch, least)
        models.release(place)
    if importlib.util.find_spec("torchao") is None or not (place.sheet and place.sheet.fp8):
        yield Line("steps", "fp8", verdict=SKIPPED, note="torchao is not installed, or the chip has no fp8")
        return
    settings = models.engine_settings(**FUSED)
    yield from _lines_of_case(place, "fp8 (tensorwise)", config, settings, 8, None, partial(_eight_bit_model, config))
    models.release(place)


def _eight_bit_model(config: Any) -> Any:
    """The empty model, the products of its layers in eight bits."""
    from torchao.float8 import convert_to_float8_training

    empty = initial.empty_model(config)
    return convert_to_float8_training(empty, module_filter_fn=lambda module, name: "layers" in name)


def _lines_of_case(
    place: Place, name: str, config: Any, settings: EngineSettings, micro_batch: int, least: float | None,
    build_model: Any = None,
) -> Iterator[Line]:  # fmt: skip
    context = config.max_position_embeddings
    micro_batch = 2 if place.tiny else micro_batch
    began = time.perf_counter()
    trainer = models.build_engine(config, settings, place.device, micro_batch, build_model=build_model)
    tokens = torch.randint(0, config.vocab_size, (1, micro_batch, context + 1), device=place.device)

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
    rate = micro_batch * context / statistics.median(seconds)
    parameters = sum(value.numel() for value in initial.empty_model(config).parameters())
    flops = measures.flops_per_token(parameters, config.num_hidden_layers, config.hidden_size, context)
    used = measures.mfu(rate, flops, place.gpu.peak if place.gpu else None, 1)
    values: dict[str, Any] = {
        "tokens_per_second": rate, "mfu": used, "micro_batch": micro_batch, "first_step_seconds": first, "loss": loss,
        "first_loss": first_loss, "parameters": parameters,
    }  # fmt: skip
    measured = f"{rate:,.0f} tokens/s"
    if used is not None:
        measured += f", MFU {used:.1%}"
    if place.on_gpu:
        peak = torch.cuda.max_memory_allocated()
        measured += f", {peak / 2**30:.2f} GiB"
        values |= {"allocated_bytes": peak}
        if not build_model:  # the plan knows no other
            estimated = sum(estimate_memory(config, settings, micro_batch, place.processes).values())
            measured += f" (estimate {estimated / 2**30:.2f})"
            values |= {"estimated_bytes": estimated}
    known = place.gpu is not None and place.gpu.name == KIND_OF_FLOORS and least is not None
    verdict = SLOW if known and used is not None and used < (least or 0) else OK
    every = place.gather((rate, uuid_of(place.device) if place.on_gpu else "cpu"))
    note = f"first step {first:.1f} s"
    if not loss < first_loss:
        verdict, note = WRONG, f"the loss does not fall on one batch: {first_loss:.4f}, then {loss:.4f}"
    elif low := slow_places([value for value, _ in every], 0.9):
        verdict, note = SLOW, "; ".join(f"{every[number][1]} has {every[number][0]:,.0f} tokens/s" for number in low)
    yield Line("steps", name, measured, f"MFU ≥ {least:.0%}" if known else "", verdict, note, values)
    if place.on_gpu:
        waits = count_waits(lambda: trainer.step(tokens, models.RATE))
        verdict = OK if waits <= MOST_WAITS else WRONG
        yield Line("steps", f"waits, {name}", str(waits), f"≤ {MOST_WAITS}", verdict, values={"waits": waits})
