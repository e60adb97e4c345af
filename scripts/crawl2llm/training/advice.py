"""What to change so that a training fits: each change is tried with the estimate, not guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
CHECKPOINTING = {"activation_checkpointing": True}
Change = tuple[str, dict[str, Any]]  # in words, and the keys with their values


@dataclass(frozen=True)
class Trial:
    """Tries changes of a training's settings and placement: `processes_here` processes are to fit into `available` bytes."""

    shape: Shape
    settings: EngineSettings
    placement: Placement
    available: float
    processes_here: int
    cuda: bool

    def total_bytes(self, processes_here: int | None = None, **changed: Any) -> int:
        """What all processes here take after a change, that of their number included."""
        moved = {key: value for key, value in changed.items() if hasattr(self.placement, key)}
        other = {key: value for key, value in changed.items() if key not in moved}
        parts = memory_parts(self.shape, replace(self.settings, **other), replace(self.placement, **moved), self.cuda)
        return (processes_here or self.processes_here) * sum(parts.values())

    def is_allowed(self, **changed: Any) -> bool:
        """Whether the trainer takes the settings after a change; those of a fine-tuning have nothing that does not go together."""
        placed = {key: value for key, value in vars(self.placement).items() if key in PLACEMENT_KEYS}
        try:
            if train := self.settings.pretraining:
                changed_settings = train.model_copy(update={**placed, **changed})
                checks.check_settings(changed_settings, changed.get("processes", self.placement.processes))
        except InputError:
            return False
        return True

    def shares_out_batch(self, number: int) -> bool:
        """Whether `number` processes can share out a global batch, without which the trainer refuses."""
        placement = self.placement
        if not self.settings.pretraining:  # pairs, of which each process has one at least
            return placement.largest is None or number <= placement.largest
        together = placement.parallel.replica_size
        if number % together or not self.is_allowed(processes=number):
            return False
        accumulation, left = divmod(placement.sequences or 0, placement.micro_batch * number // together)
        return not left and (placement.sequences is None or accumulation >= placement.parallel.pipeline)

    def fits(self, processes_here: int | None = None, **changed: Any) -> bool:
        """Whether the training fits after a change, and the trainer takes it."""
        return self.total_bytes(processes_here, **changed) <= self.available and self.is_allowed(**changed)

    def smaller_batches(self) -> list[int]:
        """Micro-batches that divide the present one, the largest first."""
        micro = self.placement.micro_batch
        return [size for size in range(micro - 1, 0, -1) if micro % size == 0]

    def higher_stages(self) -> range:
        """The stages of ZeRO above the present one that shard anything."""
        return range(self.settings.zero_stage + 1, 4 if self.placement.processes > 1 else 0)


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
    trial = Trial(shape, settings, placement, available, processes_here, cuda)
    first_fitting = (
        next(((words, changed) for words, changed in candidates if trial.fits(**changed)), None)
        for candidates in (*setting_changes(trial, where), *process_changes(trial, where))
    )
    suggestions = [
        f"{words} ({format_bytes(trial.total_bytes(**changed))})" for words, changed in filter(None, first_fitting)
    ]
    return suggestions or [all_changes(trial, where)]


def setting_changes(trial: Trial, where: str) -> Iterator[Iterable[Change]]:
    """Changes of one setting to try, of each the dearest last."""
    settings, placement = trial.settings, trial.placement
    yield ((f"set {where}.micro_batch to {size}", {"micro_batch": size}) for size in trial.smaller_batches())
    if not placement.activation_checkpointing:
        yield [(f"set {where}.activation_checkpointing to true", CHECKPOINTING)]
    if not settings.loss_chunk and not trial.shape.cached_layers:  # what draws answers reads all logits
        yield [(f"set {where}.loss_chunk to {LOSS_CHUNK}, which trains again", {"loss_chunk": LOSS_CHUNK})]
    if where in ADAPTED:
        yield (
            (
                f"set {where}.adapter to {adapter} (engine torch, zero_stage 0), which trains again",
                {"adapter": adapter, "engine": "torch", "zero_stage": 0},
            )
            for adapter in {"none": ("lora", "qlora"), "lora": ("qlora",)}.get(settings.adapter, ())
        )
    if placement.async_checkpoints:
        yield [(f"set {where}.async_checkpoints to false", {"async_checkpoints": False})]
    yield (
        (f"set {where}.zero_stage to {stage}, which trains again", {"zero_stage": stage})
        for stage in trial.higher_stages()
    )
    if trial.cuda and settings.engine == "deepspeed" and settings.zero_stage and not offload.is_used(settings):
        optimizer_on_cpu = {offload.OPTIMIZER: offload.CPU}
        yield [(f"set {where}.{offload.OPTIMIZER} to {offload.CPU}, which trains again", optimizer_on_cpu)]


def process_changes(trial: Trial, where: str) -> Iterator[Iterable[Change]]:
    """More GPUs, or fewer processes of a CPU, that share out the batch."""
    processes, here = trial.placement.processes, trial.processes_here
    if trial.cuda and trial.settings.zero_stage:
        yield (
            (f"train on {more} GPUs, not {processes}", {"processes": more})
            for more in (processes * 2**power for power in range(1, 8))
            if trial.shares_out_batch(more)
        )
    if not trial.cuda:
        yield (
            (f"lower {where}.processes from {here} to {fewer}", {"processes_here": fewer, "processes": of_all_nodes})
            for fewer in range(here - 1, 0, -1)
            if trial.shares_out_batch(of_all_nodes := processes // here * fewer)
        )


def all_changes(trial: Trial, where: str) -> str:
    """What is enough where no single change is, or what the model takes after all of them."""
    present_stage = trial.settings.zero_stage
    allowed_stages = (
        stage for stage in reversed(trial.higher_stages()) if trial.is_allowed(**CHECKPOINTING, zero_stage=stage)
    )
    highest_stage = next(allowed_stages, present_stage)
    combined = {**CHECKPOINTING, "zero_stage": highest_stage}
    for size in (trial.placement.micro_batch, *trial.smaller_batches()):
        if trial.fits(micro_batch=size, **combined):
            words = f"set {where}.activation_checkpointing to true, {where}.micro_batch to {size}"
            words += f", {where}.zero_stage to {highest_stage}" if highest_stage != present_stage else ""
            return f"{words} ({format_bytes(trial.total_bytes(micro_batch=size, **combined))})"
    left = trial.total_bytes(micro_batch=1, **combined)
    return (
        f"make the model smaller ({SECTION}.model) or tokenize.train.vocabulary: with a micro_batch of 1, activation checkpointing and "
        f"ZeRO {highest_stage} it still takes {format_bytes(left)}"
    )
