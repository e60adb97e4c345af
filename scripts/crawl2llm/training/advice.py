"""What to change so that a training fits: each change is tried with the estimate, not guessed."""

from __future__ import annotations

from math import prod
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, offload
from crawl2llm.training.estimate.parts import gigabytes, parts
from crawl2llm.training.estimate.shape import Shape

WHERE = "pretrain.train"
LEFT_OUT: dict[str, Any] = {
    "parallel": {},
    "selective_checkpointing": False,
    "async_checkpoints": False,
}  # of a placement: the defaults
CHUNK = 1024  # tokens; what is proposed as loss_chunk


def changes(
    shape: Shape,
    settings: dict[str, Any],
    placement: dict[str, Any],
    has: float,
    here: int,
    cuda: bool,
    where: str = WHERE,
) -> list[str]:
    """Each single change after which `here` processes fit into `has` bytes, in words with what they take then; tried, not guessed.

    placement: as in `parts`, and where they are known the `sequences` of a global batch, which have to divide. where: the section of the
    config, of which pre-training's alone has the model's shape. Where no single change is enough, the list says what all
    together leave. What the trainer would refuse is no change.
    """
    pretrains = where == WHERE

    def total(number: int = here, **changed: Any) -> int:
        return number * sum(parts(shape, {**settings, **changed}, {**placement, **changed}, cuda).values())

    def allowed(**changed: Any) -> bool:
        """Whether the trainer takes the settings after a change; those of a fine-tuning have nothing that does not go together."""
        made = {**LEFT_OUT, **settings, **placement, **changed}
        try:
            if pretrains:
                checks.check(made, made["processes"])
        except InputError:
            return False
        return True

    def divides(number: int) -> bool:
        """Whether `number` processes can share out a global batch, without which the trainer refuses."""
        if not pretrains:  # pairs, of which each process has one at least
            return number <= placement.get("largest", number)
        parallel = placement.get("parallel", {})
        together = prod(size for kind, size in parallel.items() if kind != "expert")
        if number % together or not allowed(processes=number):
            return False
        accumulation, left = divmod(placement.get("sequences", 0), placement["micro_batch"] * number // together)
        return not left and ("sequences" not in placement or accumulation >= parallel.get("pipeline", 1))

    def fits(**changed: Any) -> bool:
        return total(**changed) <= has and allowed(**changed)

    def said(words: str, size: int) -> str:
        return f"{words} ({gigabytes(size)})"

    micro, processes, found = placement["micro_batch"], placement["processes"], []
    smaller = [size for size in range(micro - 1, 0, -1) if micro % size == 0]
    if size := next((size for size in smaller if fits(micro_batch=size)), 0):
        found.append(said(f"set {where}.micro_batch to {size}", total(micro_batch=size)))
    again = {"activation_checkpointing": True}
    if not placement["activation_checkpointing"] and fits(**again):
        found.append(said(f"set {where}.activation_checkpointing to true", total(**again)))
    # What draws answers reads all logits.
    if not settings["loss_chunk"] and not shape.drawn and fits(loss_chunk=CHUNK):
        found.append(said(f"set {where}.loss_chunk to {CHUNK}, which trains again", total(loss_chunk=CHUNK)))
    waits = {"async_checkpoints": False}
    if placement.get("async_checkpoints") and fits(**waits):
        found.append(said(f"set {where}.async_checkpoints to false", total(**waits)))
    stages = range(settings["zero_stage"] + 1, 4) if processes > 1 else ()
    if stage := next((stage for stage in stages if fits(zero_stage=stage)), 0):
        found.append(said(f"set {where}.zero_stage to {stage}, which trains again", total(zero_stage=stage)))
    beside: dict[str, Any] = {offload.OPTIMIZER: offload.CPU}
    can = cuda and settings["engine"] == "deepspeed" and settings["zero_stage"] and not offload.is_used(settings)
    if can and fits(**beside):
        found.append(said(f"set {where}.{offload.OPTIMIZER} to {offload.CPU}, which trains again", total(**beside)))
    for more in (processes * 2**power for power in range(1, 8)) if cuda and settings["zero_stage"] else ():
        if divides(more) and total(processes=more) <= has:
            found.append(said(f"train on {more} GPUs, not {processes}", total(processes=more)))
            break
    for fewer in range(here - 1, 0, -1) if not cuda else ():
        left = processes // here * fewer  # of all nodes
        if divides(left) and total(fewer, processes=left) <= has:
            words = f"lower {where}.processes from {here} to {fewer}"
            found.append(said(words, total(fewer, processes=left)))
            break
    if found:
        return found
    most = next((stage for stage in reversed(stages) if allowed(**again, zero_stage=stage)), settings["zero_stage"])
    both = {**again, "zero_stage": most}
    if size := next((size for size in (micro, *smaller) if fits(micro_batch=size, **both)), 0):
        words = f"set {where}.activation_checkpointing to true, {where}.micro_batch to {size}"
        words += f", {where}.zero_stage to {most}" if most != settings["zero_stage"] else ""
        return [said(words, total(micro_batch=size, **both))]
    left = total(micro_batch=1, **both)
    return [
        f"make the model smaller ({WHERE}.model) or tokenize.train.vocabulary: with a micro_batch of 1, activation checkpointing and "
        f"ZeRO {most} it still takes {gigabytes(left)}"
    ]
