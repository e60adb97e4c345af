"""The memory that a training process needs, by its parts, whichever engine trains."""

from __future__ import annotations

from typing import Any

from crawl2llm.training.estimate import deepspeed, torch
from crawl2llm.training.estimate.shape import Shape, Training, keys_and_values, sampling_bytes, shape_per_process

ENGINES = {"deepspeed": deepspeed.peak_memory, "torch": torch.peak_memory}
TRANSIENT_PARTS = (
    "activations",
    "logits",
    "buffers",
    "heap",
    "checkpoint",
)  # what is not there while answers are drawn


def training_setup(settings: dict[str, Any], placement: dict[str, Any], cuda: bool) -> Training:
    """How a model is trained, by settings and placement as `memory_parts` has them."""
    parallel, micro_batch = placement.get("parallel", {}), placement["micro_batch"]
    processes = max(1, placement["processes"] // (parallel.get("tensor", 1) * parallel.get("pipeline", 1)))
    at_once = micro_batch * processes // parallel.get("sequence", 1)
    return Training(
        micro_batch=micro_batch,
        precision=settings["precision"],
        zero_stage=settings["zero_stage"],
        processes=processes,
        recomputed=placement["activation_checkpointing"],
        selective=placement.get("selective_checkpointing", False),
        chunk=settings["loss_chunk"],
        ema=bool(settings["ema"]),
        accumulated=placement.get("largest", at_once + 1) > at_once,
        cuda=cuda,
        async_checkpoints=bool(placement.get("async_checkpoints")),
        compiled=cuda and bool(settings.get("compile_layers")),
        rounded=settings.get("quantize_aware", "none") != "none",
        offload_optimizer=settings.get("offload_optimizer", "none"),
        offload_parameters=settings.get("offload_parameters", "none"),
    )


def offloaded_bytes(shape: Shape, settings: dict[str, Any], placement: dict[str, Any]) -> dict[str, int]:
    """Bytes of one process that DeepSpeed's offload keeps beside a GPU: `host` and `nvme`, as `deepspeed.offloaded_bytes`."""
    return deepspeed.offloaded_bytes(shape, training_setup(settings, placement, True))


def memory_parts(shape: Shape, settings: dict[str, Any], placement: dict[str, Any], cuda: bool) -> dict[str, int]:
    """The peak memory of one process of pretrain.train, or of what trains by its engines, in bytes, by what takes it.

    Where the model draws answers while it trains (`shape.cached_layers`) the moment in which it does so may need most: it has keys and
    values in the place of activations. Reward models are there at all times. settings: precision, zero_stage, loss_chunk, compile_layers,
    ema, engine, and of finetune.train quantize_aware; placement: micro_batch, processes (all), activation_checkpointing,
    selective_checkpointing, async_checkpoints, parallel, and where it is known `largest`, the sequences of a step. cuda: of a GPU.
    """
    how = training_setup(settings, placement, cuda)
    parallel = placement.get("parallel", {})
    needed = ENGINES[settings["engine"]](shape_per_process(shape, parallel), how)
    if shape.reward_parameters:
        needed["reward models"] = 4 * shape.reward_parameters
    if not shape.cached_layers:
        return needed
    stays = {name: size for name, size in needed.items() if name not in TRANSIENT_PARTS}
    draws = stays | {"keys and values": keys_and_values(shape, how), "logits": sampling_bytes(shape, how)}
    return max(needed, draws, key=lambda parts: sum(parts.values()))


def format_bytes(size: float) -> str:
    """`3.2 GB`; `48.0 MB` and `159 kB` of what would be 0.0."""
    if size >= 1e8:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"


def parts_text(parts: dict[str, int]) -> str:
    """Parts in words: `program 0.6 GB, weights 1.2 GB`."""
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
