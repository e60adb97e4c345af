"""The memory that a training process needs, estimated before it is used, and the memory that the machine has.

The parts are counted, not fitted: weights, gradients and optimizer by precision and ZeRO stage (Rajbhandari et al. 2020,
https://arxiv.org/abs/1910.02054, section 3), with the copies that DeepSpeed 0.19.8 keeps beside them; activations of a layer with fused
attention (Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, section 4, without the attention matrix), and logits.
docs/pretrain.md compares them with what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.workflow.ended import CGROUPS, SELF, memory_groups
from scripts.workflow.errors import InputError

WHERE = "pretrain.train"
PROGRAM = 700_000_000  # bytes of a process before it holds a model: torch, transformers, DeepSpeed and their threads
TOLERANCE = 1.25  # a run is refused where it needs this many times what there is: the estimate is on the high side
HERE = "this machine (or its control group)"
CONTEXT = 1_000_000_000  # bytes of a GPU that CUDA and NCCL take
LIMITS = (  # (limit, used, before the names in memory.stat) of cgroup v2 and v1
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
CACHE = ("inactive_file", "active_file")  # the page cache that can be given back; active: files that were read twice


# Of pre-training, where the gradient takes the place of the logits (scripts/pretrain/entropy.py): in fp32, with both in bf16 beside.
LOGIT = 8


@dataclass(frozen=True)
class Shape:
    """What decides the size of a model: `parameters` are all, embeddings too."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    context: int


def needed(
    shape: Shape,
    micro_batch: int,
    precision: str,
    zero_stage: int,
    processes: int,
    recomputed: bool,
    cuda: bool = False,
    logit: int = 16,
) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it; `processes` are those of all nodes.

    recomputed: activations are computed again in the backward pass (activation_checkpointing). cuda: of a GPU.
    logit: bytes for each logit: itself, its logarithm and the gradients of both, in fp32.
    """
    n, low = shape.parameters, 4 if precision == "fp32" else 2
    share = processes if zero_stage else 1
    weights = low * n // (share if zero_stage == 3 else 1)
    # Accumulated in fp32, beside those of the backward pass, but without ZeRO in fp32; plus the bucket that is reduced.
    gradients = low * n // (share if zero_stage == 3 else 1)
    if zero_stage or precision == "bf16":
        gradients += 4 * n // (share if zero_stage >= 2 else 1)
    if zero_stage:
        gradients += low * min(n, 500_000_000)
    # Two moments, two temporary arrays of an update, and fp32 weights where the model itself does not hold them.
    optimizer = (8 + 8 + (4 if zero_stage or precision == "bf16" else 0)) * n // share
    tokens = micro_batch * shape.context
    layer = low * tokens * (16 * shape.hidden + 4 * shape.intermediate)
    kept = low * tokens * shape.hidden
    activations = layer + shape.layers * kept if recomputed else shape.layers * layer
    return {
        "program": CONTEXT if cuda else PROGRAM,
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activations,
        "logits": logit * tokens * shape.vocabulary,
    }


def available(root: Path = CGROUPS, own: Path = SELF, machine: Path = Path("/proc/meminfo")) -> int:
    """Bytes that processes of this machine can still take: what is free, or left below the limit of a control group.

    A limit of any group above this process counts, of version 1 and 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    """
    lines = machine.read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min([free, *_limits(root, own)])


def _limits(root: Path, own: Path) -> Iterator[int]:
    for folders in memory_groups(root, own):
        for folder in folders:
            for limit, used, prefix in LIMITS:
                try:
                    most = int((folder / limit).read_text(encoding="utf-8"))
                    held = int((folder / used).read_text(encoding="utf-8"))
                    facts = dict(
                        row.split() for row in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
                    )
                except (OSError, ValueError):  # no such file, or `max`
                    continue
                yield most - held + sum(int(facts.get(prefix + name, 0)) for name in CACHE)


def gigabytes(size: float) -> str:
    """`3.2 GB`."""
    return f"{size / 1e9:.1f} GB"


def check_host(parameters: int, has: int, here: int) -> None:
    """InputError where `here` processes with a GPU each cannot build the model in `has` bytes of the node's own memory."""
    total = here * (PROGRAM + CONTEXT + 4 * parameters)
    if total > has:
        raise InputError(
            f"each of the {here} processes of this node builds the model in fp32 before its GPU gets it: that takes "
            f"{gigabytes(total)}, and this node (or its control group) has {gigabytes(has)} free; ask for more memory, "
            f"or lower {WHERE}.processes and raise {WHERE}.nodes"
        )


def check(
    shape: Shape, settings: dict[str, Any], placement: dict[str, Any], has: int, here: int, cuda: bool = False
) -> dict[str, int]:
    """What a process needs (see `needed`); InputError, with what to change, where `here` of them clearly need more than `has`
    bytes.

    placement: micro_batch, processes (of all nodes) and activation_checkpointing. has: of the node, or of one GPU with `here` 1.
    """
    fixed = (settings["precision"], settings["zero_stage"], placement["processes"])
    micro, recomputed = placement["micro_batch"], placement["activation_checkpointing"]

    def total(batch: int, again: bool = recomputed) -> int:
        return here * sum(needed(shape, batch, *fixed, again, cuda, LOGIT).values())

    parts = needed(shape, micro, *fixed, recomputed, cuda, LOGIT)
    if total(micro) <= TOLERANCE * has:
        return parts
    smaller = [batch for batch in range(micro - 1, 0, -1) if micro % batch == 0]
    fitting = next((batch for batch in smaller if total(batch) <= has), None)
    again = None if recomputed else next((batch for batch in (micro, *smaller) if total(batch, True) <= has), None)
    advice = []
    if fitting:
        advice.append(f"set {WHERE}.micro_batch to {fitting} (sums change in their last digits)")
    if again:
        advice.append(f"set {WHERE}.activation_checkpointing to true with {WHERE}.micro_batch {again}")
    if here > 1 and not fitting:
        advice.append(f"lower {WHERE}.processes from {here} on a node")
    if not fitting:
        advice.append(f"make the model smaller ({WHERE}.model), or tokenize.train.vocabulary")
        advice.append(f"raise {WHERE}.zero_stage and {WHERE}.nodes" if cuda else "use a machine with more memory")
    raise refusal("training", parts, has, here, advice, "a GPU" if cuda else HERE)


def refusal(what: str, parts: dict[str, int], has: int, here: int, advice: list[str], where: str = HERE) -> InputError:
    """The error that says what `here` processes need by their parts (see `needed`), what there is, and what to change."""
    listed = ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items())
    return InputError(
        f"{what} needs about {gigabytes(here * sum(parts.values()))}, and {where} has {gigabytes(has)} free: "
        f"{f'{here} processes of ' if here > 1 else ''}{gigabytes(sum(parts.values()))} ({listed}); {', or '.join(advice)}"
    )


def check_loaded(
    what: str,
    model: Any,
    batch: tuple[int, int],
    has: int,
    advice: list[str],
    training: int = 0,
    recomputed: bool = False,
    precision: str = "fp32",
) -> None:
    """InputError where a model of transformers clearly needs more than `has` bytes of this machine.

    batch: sequences and their length in tokens. training: processes that train it with AdamW; 0 where it is only evaluated.
    """
    config, here = model.config, max(training, 1)
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    held = sum(p.numel() for p in model.parameters())
    shape = Shape(held, config.num_hidden_layers, config.hidden_size, wide, config.vocab_size, batch[1])
    parts = needed(shape, batch[0], precision, 0, here, recomputed)
    if not training:
        parts = {name: parts[name] for name in ("program", "weights", "logits")}
    if here * sum(parts.values()) > TOLERANCE * has:
        raise refusal(what, parts, has, here, advice)
