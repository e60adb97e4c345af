"""What to change so that a training fits: each change is tried with the estimate, not guessed."""

from __future__ import annotations

from math import prod
from typing import Any

from scripts.training.estimate.parts import gigabytes, parts
from scripts.training.estimate.shape import Shape

WHERE = "pretrain.train"
CHUNK = 1024  # tokens; what is proposed as pretrain.train.loss_chunk


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
    config, of which pre-training's alone has a loss_chunk and the model's shape. Where no single change is enough, the list says what all
    together leave.
    """

    def total(number: int = here, **changed: Any) -> int:
        return number * sum(parts(shape, {**settings, **changed}, {**placement, **changed}, cuda).values())

    def divides(number: int) -> bool:
        """Whether micro-batches of `number` processes make up a global batch, without which the trainer refuses."""
        together = prod(size for kind, size in placement.get("parallel", {}).items() if kind != "expert")
        return (
            number % together == 0
            and placement.get("sequences", 0) % (placement["micro_batch"] * number // together) == 0
        )

    def said(words: str, size: int) -> str:
        return f"{words} ({gigabytes(size)})"

    micro, processes, found = placement["micro_batch"], placement["processes"], []
    smaller = [size for size in range(micro - 1, 0, -1) if micro % size == 0]
    if size := next((size for size in smaller if total(micro_batch=size) <= has), 0):
        found.append(said(f"set {where}.micro_batch to {size}", total(micro_batch=size)))
    again = {"activation_checkpointing": True}
    if not placement["activation_checkpointing"] and total(**again) <= has:
        found.append(said(f"set {where}.activation_checkpointing to true", total(**again)))
    if where == WHERE and not settings["loss_chunk"] and total(loss_chunk=CHUNK) <= has:
        found.append(said(f"set {where}.loss_chunk to {CHUNK}, which trains again", total(loss_chunk=CHUNK)))
    waits = {"async_checkpoints": False}
    if placement.get("async_checkpoints") and total(**waits) <= has:
        found.append(said(f"set {where}.async_checkpoints to false", total(**waits)))
    # DeepSpeed cuts matrices into pieces without shape, of which Muon can make nothing.
    whole = settings["optimizer"] == "muon" and settings["engine"] == "deepspeed"
    stages = range(settings["zero_stage"] + 1, 4) if processes > 1 and not whole else ()
    if stage := next((stage for stage in stages if total(zero_stage=stage) <= has), 0):
        found.append(said(f"set {where}.zero_stage to {stage}, which trains again", total(zero_stage=stage)))
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
    both = {**again, "zero_stage": settings["zero_stage"] if whole or processes == 1 else 3}
    if size := next((size for size in (micro, *smaller) if total(micro_batch=size, **both) <= has), 0):
        words = f"set {where}.activation_checkpointing to true, {where}.micro_batch to {size}"
        words += f", {where}.zero_stage to 3" if both["zero_stage"] != settings["zero_stage"] else ""
        return [said(words, total(micro_batch=size, **both))]
    left = total(micro_batch=1, **both)
    return [
        f"make the model smaller ({WHERE}.model) or tokenize.train.vocabulary: with a micro_batch of 1, activation checkpointing and "
        f"ZeRO {both['zero_stage']} it still takes {gigabytes(left)}"
    ]
