"""The memory that a training process needs, by its parts, whichever engine trains."""

from __future__ import annotations

from dataclasses import dataclass, field

from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate import adapters, deepspeed, torch
from crawl2llm.training.estimate.shape import (
    Shape,
    Training,
    keys_and_values,
    sampling_bytes,
    shape_per_process,
    validation_activations,
)
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.quantize_aware import is_quantize_aware

ENGINES = {"deepspeed": deepspeed.peak_memory, "torch": torch.peak_memory}
PIECE, GPU_PIECE = 1 << 22, 1 << 28  # bytes of a teacher's fp32 logits at once, on a CPU and on a GPU (compress.distil)
TRANSIENT_PARTS = (
    "activations",
    "logits",
    "buffers",
    "heap",
    "checkpoint",
)  # what is not there while answers are drawn


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a training runs. processes: of all nodes; nodes: how many they are on, which counts with shard_over node.

    sequences: of a global batch, what every step has a multiple of, which processes have to share out; largest: those of the largest step;
    None: not known.
    """

    micro_batch: int
    processes: int
    activation_checkpointing: bool
    nodes: int = 1
    selective_checkpointing: bool = False
    async_checkpoints: bool = False
    parallel: Degrees = field(default_factory=Degrees)
    sequences: int | None = None
    largest: int | None = None


def training_setup(settings: EngineSettings, placement: Placement, cuda: bool) -> Training:
    """How a model is trained, by settings and placement as `memory_parts` has them."""
    degrees, micro_batch = placement.parallel, placement.micro_batch
    processes = max(1, placement.processes // (degrees.tensor * degrees.pipeline))
    at_once = micro_batch * processes // degrees.sequence
    nodes = placement.nodes if settings.shard_over == "node" else 1
    return Training(
        micro_batch=micro_batch,
        precision=settings.precision,
        zero_stage=settings.zero_stage,
        processes=max(1, processes // nodes),
        recomputed=placement.activation_checkpointing,
        selective=placement.selective_checkpointing,
        chunk=settings.loss_chunk,
        ema=bool(settings.ema),
        accumulated=placement.largest is None or placement.largest > at_once,
        cuda=cuda,
        async_checkpoints=placement.async_checkpoints,
        compiled=cuda and settings.compile_layers,
        autocast=settings.autocast,
        rounded=is_quantize_aware(settings),
        offload_optimizer=settings.offload_optimizer,
        offload_parameters=settings.offload_parameters,
    )


def offloaded_bytes(shape: Shape, settings: EngineSettings, placement: Placement) -> dict[str, int]:
    """Bytes of one process that DeepSpeed's offload keeps beside a GPU: `host` and `nvme`, as `deepspeed.offloaded_bytes`."""
    return deepspeed.offloaded_bytes(shape, training_setup(settings, placement, True))


def memory_parts(shape: Shape, settings: EngineSettings, placement: Placement, cuda: bool) -> dict[str, int]:
    """The peak memory of one process of pretrain.train, or of what trains by its engines, in bytes, by what takes it.

    Where the model draws answers while it trains (`shape.cached_layers`) the moment in which it does so may need most: it has keys and
    values in the place of activations. Reward models are there at all times. cuda: of a GPU.
    """
    how = training_setup(settings, placement, cuda)
    shape = adapters.with_adapter(shape, settings)
    if shape.adapter:
        needed = adapters.peak_memory(shape, shape.adapter, how)
    else:
        needed = ENGINES[settings.engine](shape_per_process(shape, placement.parallel), how)
    if shape.reward_parameters:
        needed["reward models"] = 4 * shape.reward_parameters
    if shape.teacher:  # of whose logits a piece is there, beside those of the student
        teacher_logits = 2 * (GPU_PIECE if cuda else PIECE)
        needed["teacher"] = how.number_bytes * shape.teacher.parameters + teacher_logits
        needed["teacher"] += validation_activations(shape.teacher, how)
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
