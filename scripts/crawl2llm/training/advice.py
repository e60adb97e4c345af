"""What to change so that a training fits: each change is tried with the estimate, not guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, offload
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate.parts import Placement, format_bytes, memory_parts
from crawl2llm.training.estimate.shape import Shape

SECTION = "pretrain.train"
# Keys of pretrain.train that a placement says, too.
PLACEMENT_KEYS = ("micro_batch", "activation_checkpointing", "selective_checkpointing", "async_checkpoints")
ADAPTED = ("finetune.train", "align.train")  # sections with a key `adapter`
LOSS_CHUNK = 1024  # tokens; what is proposed as loss_chunk


def changes_that_fit(
    shape: Shape,
    settings: EngineSettings,
    placement: Placement,
    available: float,
    processes_here: int,
    cuda: bool,
    where: str = SECTION,
) -> list[str]:
    """Each single change after which `processes_here` processes fit into `available` bytes, in words with what they take then; tried, not
    guessed.

    where: the section of the config, of which pre-training's alone has the model's shape. Where no single change is enough, the list says
    what all together leave. What the trainer would refuse is no change.
    """
    train = settings.pretraining

    def total_bytes(number: int = processes_here, **changed: Any) -> int:
        moved = {key: value for key, value in changed.items() if hasattr(placement, key)}
        other = {key: value for key, value in changed.items() if key not in moved}
        return number * sum(memory_parts(shape, replace(settings, **other), replace(placement, **moved), cuda).values())

    def is_allowed(**changed: Any) -> bool:
        """Whether the trainer takes the settings after a change; those of a fine-tuning have nothing that does not go together."""
        placed = {key: value for key, value in vars(placement).items() if key in PLACEMENT_KEYS}
        try:
            if train:
                changed_settings = train.model_copy(update={**placed, **changed})
                checks.check_settings(changed_settings, changed.get("processes", placement.processes))
        except InputError:
            return False
        return True

    def shares_out_batch(number: int) -> bool:
        """Whether `number` processes can share out a global batch, without which the trainer refuses."""
        if not train:  # pairs, of which each process has one at least
            return placement.largest is None or number <= placement.largest
        together = placement.parallel.replica_size
        if number % together or not is_allowed(processes=number):
            return False
        accumulation, left = divmod(placement.sequences or 0, placement.micro_batch * number // together)
        return not left and (placement.sequences is None or accumulation >= placement.parallel.pipeline)

    def fits(**changed: Any) -> bool:
        return total_bytes(**changed) <= available and is_allowed(**changed)

    def change_text(words: str, size: int) -> str:
        return f"{words} ({format_bytes(size)})"

    micro, processes, suggestions = placement.micro_batch, placement.processes, []
    smaller = [size for size in range(micro - 1, 0, -1) if micro % size == 0]
    if size := next((size for size in smaller if fits(micro_batch=size)), 0):
        suggestions.append(change_text(f"set {where}.micro_batch to {size}", total_bytes(micro_batch=size)))
    checkpointing = {"activation_checkpointing": True}
    if not placement.activation_checkpointing and fits(**checkpointing):
        suggestions.append(change_text(f"set {where}.activation_checkpointing to true", total_bytes(**checkpointing)))
    # What draws answers reads all logits.
    if not settings.loss_chunk and not shape.cached_layers and fits(loss_chunk=LOSS_CHUNK):
        suggestions.append(
            change_text(
                f"set {where}.loss_chunk to {LOSS_CHUNK}, which trains again", total_bytes(loss_chunk=LOSS_CHUNK)
            )
        )
    smaller_adapters = (
        {"none": ("lora", "qlora"), "lora": ("qlora",)}.get(settings.adapter, ()) if where in ADAPTED else ()
    )
    for adapter in smaller_adapters:
        changed: dict[str, Any] = {"adapter": adapter, "engine": "torch", "zero_stage": 0}
        if fits(**changed):
            words = f"set {where}.adapter to {adapter} (engine torch, zero_stage 0), which trains again"
            suggestions.append(change_text(words, total_bytes(**changed)))
            break
    waits = {"async_checkpoints": False}
    if placement.async_checkpoints and fits(**waits):
        suggestions.append(change_text(f"set {where}.async_checkpoints to false", total_bytes(**waits)))
    stages = range(settings.zero_stage + 1, 4) if processes > 1 else ()
    if stage := next((stage for stage in stages if fits(zero_stage=stage)), 0):
        suggestions.append(
            change_text(f"set {where}.zero_stage to {stage}, which trains again", total_bytes(zero_stage=stage))
        )
    optimizer_on_cpu: dict[str, Any] = {offload.OPTIMIZER: offload.CPU}
    is_sharded = cuda and settings.engine == "deepspeed" and settings.zero_stage
    if is_sharded and not offload.is_used(settings) and fits(**optimizer_on_cpu):
        suggestions.append(
            change_text(
                f"set {where}.{offload.OPTIMIZER} to {offload.CPU}, which trains again", total_bytes(**optimizer_on_cpu)
            )
        )
    for more in (processes * 2**power for power in range(1, 8)) if cuda and settings.zero_stage else ():
        if shares_out_batch(more) and total_bytes(processes=more) <= available:
            suggestions.append(change_text(f"train on {more} GPUs, not {processes}", total_bytes(processes=more)))
            break
    for fewer in range(processes_here - 1, 0, -1) if not cuda else ():
        left = processes // processes_here * fewer  # of all nodes
        if shares_out_batch(left) and total_bytes(fewer, processes=left) <= available:
            words = f"lower {where}.processes from {processes_here} to {fewer}"
            suggestions.append(change_text(words, total_bytes(fewer, processes=left)))
            break
    if suggestions:
        return suggestions
    highest_stage = next(
        (stage for stage in reversed(stages) if is_allowed(**checkpointing, zero_stage=stage)), settings.zero_stage
    )
    combined = {**checkpointing, "zero_stage": highest_stage}
    if size := next((size for size in (micro, *smaller) if fits(micro_batch=size, **combined)), 0):
        words = f"set {where}.activation_checkpointing to true, {where}.micro_batch to {size}"
        words += f", {where}.zero_stage to {highest_stage}" if highest_stage != settings.zero_stage else ""
        return [change_text(words, total_bytes(micro_batch=size, **combined))]
    left = total_bytes(micro_batch=1, **combined)
    return [
        f"make the model smaller ({SECTION}.model) or tokenize.train.vocabulary: with a micro_batch of 1, activation checkpointing and "
        f"ZeRO {highest_stage} it still takes {format_bytes(left)}"
    ]
