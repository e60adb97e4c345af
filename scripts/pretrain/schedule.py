"""The schedule of a run: how many steps, how a global batch is cut, the learning rate at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scripts.workflow.errors import InputError

WHERE = "pretrain.train"


@dataclass(frozen=True)
class Plan:
    """A run in numbers. A step is one optimizer update over `sequences` windows of `context` tokens."""

    steps: int
    sequences: int  # windows of a global batch
    context: int  # predictions a window
    windows: int  # windows of one epoch

    @property
    def tokens_per_step(self) -> int:
        """Predictions of one optimizer update, over all processes."""
        return self.sequences * self.context

    @property
    def epochs(self) -> float:
        """How often the run sees each window."""
        return self.steps * self.sequences / self.windows


def check_heads(model: dict[str, Any]) -> None:
    """InputError where heads do not divide, as far as numbers are set: a plan says so before any data are read."""
    where, (hidden, heads) = f"{WHERE}.model", (model["hidden_size"], model["heads"])
    kv_heads = model["kv_heads"] or heads
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads:
        raise InputError(f"{where}.heads is {heads}, not a multiple of {where}.kv_heads = {kv_heads}")
    if isinstance(heads, int) and isinstance(hidden, int) and hidden % heads and "head_dim" not in model["overrides"]:
        raise InputError(f"{where}.hidden_size is {hidden}, not a multiple of {where}.heads = {heads}")


def check_optimizer(settings: dict[str, Any]) -> None:
    """InputError for Muon with ZeRO: it needs whole matrices, which ZeRO cuts into pieces without shape."""
    if settings["optimizer"] == "muon" and settings["zero_stage"]:
        raise InputError(
            f"{WHERE}.optimizer is muon, and {WHERE}.zero_stage is {settings['zero_stage']}: ZeRO shards matrices, which Muon needs "
            f"whole; set {WHERE}.zero_stage to 0, or {WHERE}.optimizer to adamw"
        )


def check_width(settings: dict[str, Any]) -> None:
    """InputError where learning rates cannot carry over from `base_width` (scripts/pretrain/width.py)."""
    if (base := settings.get("base_width")) is None:
        return
    model, allowed = settings["model"], ("llama", "qwen3", "gpt2")
    if model["type"] not in allowed:
        raise InputError(
            f"{WHERE}.base_width is {base}, and {WHERE}.model.type {model['type']}: allowed are {', '.join(allowed)}"
        )
    if model["tie_embeddings"]:
        raise InputError(
            f"{WHERE}.base_width is {base}, and {WHERE}.model.tie_embeddings true: one matrix cannot move as an embedding and as a head "
            f"do, whose learning rates differ by width; set {WHERE}.model.tie_embeddings to false"
        )


def check_layers(settings: dict[str, Any], selective: bool) -> None:
    """InputError where layers that gather weights inside would be compiled, or selectively computed again: DeepSpeed's ZeRO 3."""
    if settings.get("engine", "deepspeed") != "deepspeed" or settings["zero_stage"] != 3:
        return
    for key, on in (("compile_layers", settings.get("compile_layers")), ("selective_checkpointing", selective)):
        if on:
            raise InputError(
                f"{WHERE}.{key} is true with {WHERE}.engine deepspeed and {WHERE}.zero_stage 3, which gathers weights inside of the "
                f"layers: set {WHERE}.engine to torch, {WHERE}.zero_stage to 2 or less, or {WHERE}.{key} to false"
            )


def plan(settings: dict[str, Any], tokens: int) -> Plan:
    """The plan for a training stream of `tokens` tokens.

    The budget is `steps`, `tokens` or `epochs`, rounded up to whole steps; one epoch where none is given.
    Raises InputError where more than one is given, where the global batch is no multiple of the context, or where the
    stream holds no window.
    """
    context, batch = settings["model"]["context"], settings["global_batch_tokens"]
    if batch % context:
        raise InputError(
            f"{WHERE}.global_batch_tokens is {batch}; it must be a multiple of {WHERE}.model.context = {context}; "
            f"the nearest are {nearest(batch, context)}"
        )
    windows = (tokens - 1) // context
    if windows < 1:
        raise InputError(
            f"the training shards hold {tokens:,} tokens, too few for one window of {WHERE}.model.context = {context} "
            "tokens and the one after it"
        )
    given = {key: settings[key] for key in ("steps", "tokens", "epochs") if settings[key] is not None}
    if len(given) > 1:
        shown = ", ".join(f"{WHERE}.{key} = {value}" for key, value in given.items())
        raise InputError(f"{shown}: give one of steps, tokens and epochs, and leave the others null")
    if "steps" in given:
        steps = given["steps"]
    elif "tokens" in given:
        steps = math.ceil(given["tokens"] / batch)
    else:
        steps = max(1, math.ceil(given.get("epochs", 1) * windows * context / batch))
    return Plan(steps, batch // context, context, windows)


def fitting(made: Plan, micro_batch: int, processes: int) -> int:
    """The largest micro-batch up to `micro_batch` that divides a global batch that is `auto`; itself where none does."""
    sizes = (size for size in range(micro_batch, 0, -1) if made.sequences % (size * processes) == 0)
    return next(sizes, micro_batch)


def accumulation(made: Plan, micro_batch: int, processes: int) -> int:
    """Micro-batches of each process in one step.

    Raises InputError, with the nearest global batches that would do, where they do not divide evenly.
    """
    unit = micro_batch * processes
    if made.sequences % unit:
        size = unit * made.context
        raise InputError(
            f"{WHERE}.global_batch_tokens is {made.tokens_per_step}; it must be a multiple of "
            f"{WHERE}.micro_batch × processes × {WHERE}.model.context = {micro_batch} × {processes} × {made.context} "
            f"= {size}; the nearest are {nearest(made.tokens_per_step, size)}"
        )
    return made.sequences // unit


def nearest(value: int, unit: int) -> str:
    """The multiples of `unit` around `value`, in words: `8192 and 12288`; only the first where `value` is below it."""
    below = value // unit * unit
    return f"{below} and {below + unit}" if below else f"{unit}"


def learning_rate(step: int, steps: int, settings: dict[str, Any]) -> float:
    """The learning rate of step 1 … `steps`.

    A linear warm-up over the share `warmup`, then `schedule`: `cosine` or `linear` down to `min_learning_rate_ratio`
    of the peak at the last step, `wsd` (constant, then linear down over the last share `decay`; Hu et al. 2024,
    https://arxiv.org/abs/2404.06395), or `constant`.
    """
    peak, floor = settings["learning_rate"], settings["min_learning_rate_ratio"]
    warmup = round(settings["warmup"] * steps)
    if step <= warmup:
        return peak * step / warmup
    if settings["schedule"] == "constant":
        return peak
    start = warmup
    if settings["schedule"] == "wsd":
        start = max(warmup, steps - round(settings["decay"] * steps))
        if step <= start:
            return peak
    done = (step - start) / max(steps - start, 1)
    share = (1 + math.cos(math.pi * done)) / 2 if settings["schedule"] == "cosine" else 1 - done
    return peak * (floor + (1 - floor) * share)
