"""The memory that a training process needs, estimated before it is used, and the memory that the machine has.

The parts are counted: weights, gradients and optimizer by precision and ZeRO stage (Rajbhandari et al. 2020,
https://arxiv.org/abs/1910.02054, section 3), with the copies that DeepSpeed 0.19.8 keeps beside them; activations of a layer with fused
attention, tensor by tensor as torch saves them for the backward pass of a Llama; and logits. Only what glibc's heap adds on a CPU is
fitted. docs/memory.md compares the sum with peaks that were measured, and so does tests/unit/training/test_peaks.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from scripts.workflow.ended import CGROUPS, SELF, memory_groups
from scripts.workflow.errors import InputError

WHERE = "pretrain.train"
PROGRAM = 560_000_000  # bytes of a process before it holds a model: torch, transformers, DeepSpeed and their threads
# A run is refused where it needs this many times what there is: so far may the estimate be from the peak.
TOLERANCE = 1.15
HERE = "this machine (or its control group)"
CONTEXT = 1_000_000_000  # bytes of a GPU that CUDA and NCCL take
LIMITS = (  # (limit, used, before the names in memory.stat) of cgroup v2 and v1
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
CACHE = ("inactive_file", "active_file")  # the page cache that can be given back; active: files that were read twice


BUCKET = 500_000_000  # parameters that DeepSpeed reduces in one piece at most
LIVE = 1_000_000_000  # parameters that ZeRO 3 holds gathered at most: DeepSpeed's stage3_max_live_parameters
# What glibc's heap adds to activations and logits on a CPU: freed blocks that are too small for what comes next, or held apart by blocks
# that stay. Measured on 6 shapes with the launcher's GLIBC_TUNABLES: 0.57 to 0.78 of them (1.08 with recomputation). Memory that is mapped
# block by block (without the tunables) has none of it, and takes longer.
HEAP = 0.7
LOGIT = 16  # bytes for each logit of a loss of torch: itself, its logarithm and the gradients of both, in fp32
CHUNK = 1024  # tokens; what is proposed as pretrain.train.loss_chunk


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What decides the size of a model: `parameters` are all, embeddings too. width, kv: of queries, of keys, where not the hidden size."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    context: int
    width: int = 0
    kv: int = 0
    matrices: int = 0  # parameters that Muon moves, of which it keeps one moment and not two
    experts: int = 0  # parameters of a mixture's experts, all of them


def activations(shape: Shape, tokens: int, low: int) -> int:
    """Bytes that one layer keeps of `tokens` tokens for its backward pass; low: bytes of a number in it.

    Two norms keep their input, the normalised input and their output, the input in fp32; attention its queries, keys, values and output;
    the feed-forward layer both projections, their activation and the product.
    """
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    norm = (4 + 2 * low) * shape.hidden
    return tokens * (2 * norm + low * (2 * width + 2 * kv + 4 * shape.intermediate))


def dear(shape: Shape, tokens: int, low: int) -> int:
    """Bytes that a layer keeps under selective checkpointing: its input, and the results of its matrix products and of attention."""
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    return tokens * low * (3 * shape.hidden + 2 * width + 2 * kv + 2 * shape.intermediate)


def needed(
    shape: Shape,
    micro_batch: int,
    precision: str,
    zero_stage: int,
    processes: int,
    recomputed: bool,
    cuda: bool = False,
    logit: int = 0,
    selective: bool = False,
    chunk: int = 0,
) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it; `processes` are those of all nodes.

    recomputed: activations are computed again in the backward pass (activation_checkpointing). cuda: of a GPU. logit: bytes for each;
    0: those of pre-training, in fp32 and where they are made in bf16 beside; their gradient takes their place (pretrain/entropy.py).
    selective: and of `recomputed`, those of matrix products are kept. chunk: tokens whose logits are there at once; 0: all.
    """
    n, low, split = shape.parameters, 4 if precision == "fp32" else 2, processes if zero_stage else 1
    tokens = micro_batch * shape.context
    share, third, mixed = n // split, zero_stage == 3, precision != "fp32"
    gathered = low * min(n, LIVE) if third and processes > 1 else 0
    weights = low * (share if third else n) + gathered
    # Those of the backward pass, and where they are accumulated in fp32 beside them.
    gradients = low * (share if third else n)
    if zero_stage and mixed:
        gradients += 4 * (share if zero_stage >= 2 else n)
    moments = 8 * n - 4 * shape.matrices
    optimizer = (moments + 4 * n * bool(zero_stage or mixed)) // split  # and fp32 weights beside those that train
    layer = activations(shape, tokens, low)
    kept = dear(shape, tokens, low) if selective else low * tokens * shape.hidden
    last = (4 + 2 * low) * tokens * shape.hidden  # the norm before the logits
    held = last + (layer + shape.layers * kept if recomputed else shape.layers * layer)
    logits = (logit or (4 if low == 4 else 6)) * min(tokens, chunk or tokens) * shape.vocabulary
    if chunk:  # the gradient of the head, in fp32 until it is whole
        logits += (4 + low) * shape.hidden * shape.vocabulary
    # Gradients of activations and of one matrix while they are made, and what is reduced in one piece.
    largest = shape.hidden * max(shape.vocabulary, shape.intermediate)
    working = low * (2 * tokens * shape.intermediate + largest)
    bucket = low * min(n, BUCKET) if third or (zero_stage and processes > 1) else 0
    # The system gives its pages as gradients fill it, when activations go.
    late = bucket if zero_stage in (1, 2) and not cuda else 0
    if cuda:  # torch's fused AdamW needs no arrays of its own; gradients are flattened, or made fp32
        update = 4 * share if zero_stage in (1, 2) or mixed else 0
    elif zero_stage:  # the flat gradient, in fp32 a copy of it that the second step brings, and two arrays of AdamW's
        update = (8 if mixed else 16) * share
    else:
        update = 8 * largest
    found = {
        "program": CONTEXT if cuda else PROGRAM,
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": held,
        "logits": logits,
        # An update begins when activations are freed; on a CPU the heap rarely has room for its arrays in one piece.
        "buffers": bucket - late + max(working, update + late - held - logits),
    }
    if not cuda:
        found["heap"] = round(HEAP * (held + logits)) + min(update + late, held + logits) + gathered
    return found


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


def listed(parts: dict[str, int]) -> str:
    """The parts of `needed` in words: `program 0.6 GB, weights 1.2 GB`."""
    return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items())


def check_host(parameters: int, has: int, here: int, where: str = WHERE) -> None:
    """InputError where `here` processes with a GPU each cannot build the model in `has` bytes of the node's own memory."""
    total = here * (PROGRAM + CONTEXT + 4 * parameters)
    if total > has:
        raise InputError(
            f"each of the {here} processes of this node builds the model in fp32 before its GPU gets it: that takes "
            f"{gigabytes(total)}, and this node (or its control group) has {gigabytes(has)} free; ask for more memory, "
            f"or lower {where}.processes and raise {where}.nodes"
        )


def parts(shape: Shape, settings: dict[str, Any], placement: dict[str, Any], cuda: bool) -> dict[str, int]:
    """`needed` of pretrain.train.

    settings: precision, zero_stage, loss_chunk, ema; placement: micro_batch, processes (all), activation_checkpointing,
    selective_checkpointing, parallel.
    """
    parallel = placement.get("parallel", {})
    processes = placement["processes"] // (parallel.get("tensor", 1) * parallel.get("pipeline", 1))
    fixed = (settings["precision"], settings["zero_stage"], max(1, processes))
    part = shared_out(shape, parallel)
    more = {"selective": placement.get("selective_checkpointing", False), "chunk": settings.get("loss_chunk", 0)}
    found = needed(part, placement["micro_batch"], *fixed, placement["activation_checkpointing"], cuda, **more)
    if settings.get("ema"):  # a mean of the weights, in fp32
        found["optimizer"] += 4 * part.parameters // (max(1, processes) if settings["zero_stage"] else 1)
    return found


def shared_out(shape: Shape, parallel: dict[str, int]) -> Shape:
    """What a process has of a model and of a window under pretrain.train.parallel; counted, not measured.

    Tensor parallelism gathers the logits and leaves experts whole. The first stage of a pipeline keeps the activations of as many
    micro-batches as there are stages, so together those of all layers; a stage at the end has a table of the vocabulary.
    """
    tensor, table = parallel.get("tensor", 1), shape.vocabulary * shape.hidden
    if not any(size > 1 for size in parallel.values()):
        return shape
    inside = (shape.parameters - table - shape.experts) // tensor + shape.experts // parallel.get("expert", 1)
    return replace(
        shape,
        parameters=table // tensor + inside // parallel.get("pipeline", 1),
        intermediate=shape.intermediate if shape.experts else -(-shape.intermediate // tensor),
        context=-(-shape.context // parallel.get("sequence", 1)),
        width=(shape.width or shape.hidden) // tensor,
        kv=(shape.kv or shape.width or shape.hidden) // tensor,
    )


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
    config, of which pre-training's alone has a loss_chunk and the model's shape. Where no single change is
    enough, the list says what all together leave.
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
    if where == WHERE and not settings.get("loss_chunk") and total(loss_chunk=CHUNK) <= has:
        found.append(said(f"set {where}.loss_chunk to {CHUNK}, which trains again", total(loss_chunk=CHUNK)))
    muon = settings.get("optimizer") == "muon"  # needs whole matrices
    stages = range(settings["zero_stage"] + 1, 4) if processes > 1 and not muon else ()
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
    both = {**again, "zero_stage": settings["zero_stage"] if muon or processes == 1 else 3}
    if size := next((size for size in (micro, *smaller) if total(micro_batch=size, **both) <= has), 0):
        words = f"set {where}.activation_checkpointing to true, {where}.micro_batch to {size}"
        words += f", {where}.zero_stage to 3" if both["zero_stage"] != settings["zero_stage"] else ""
        return [said(words, total(micro_batch=size, **both))]
    left = total(micro_batch=1, **both)
    return [
        f"make the model smaller ({WHERE}.model) or tokenize.train.vocabulary: with a micro_batch of 1, activation checkpointing and "
        f"ZeRO {both['zero_stage']} it still takes {gigabytes(left)}"
    ]


def check(
    shape: Shape,
    settings: dict[str, Any],
    placement: dict[str, Any],
    has: int,
    here: int,
    cuda: bool = False,
    where: str = WHERE,
) -> dict[str, int]:
    """What a process needs (see `parts`); InputError, with what to change, where `here` of them clearly need more than `has` bytes.

    has: of the node, or of one GPU with `here` 1. where: as for `changes`.
    """
    found = parts(shape, settings, placement, cuda)
    if here * sum(found.values()) <= TOLERANCE * has:
        return found
    advice = changes(shape, settings, placement, has, here, cuda, where)
    raise refusal("training" if where == WHERE else where, found, has, here, advice, "a GPU" if cuda else HERE)


def refusal(
    what: str, parts: dict[str, int], has: float, here: int, advice: list[str], where: str = HERE
) -> InputError:
    """The error that says what `here` processes need by their parts (see `needed`), what there is, and what to change."""
    return InputError(
        f"{what} needs about {gigabytes(here * sum(parts.values()))}, and {where} has {gigabytes(has)} free: "
        f"{f'{here} processes of ' if here > 1 else ''}{gigabytes(sum(parts.values()))} ({listed(parts)}); {', or '.join(advice)}"
    )


def shape_of(config: Any, parameters: int, length: int) -> Shape:
    """What decides the size of a model with this configuration of transformers, on sequences of `length` tokens.

    Of a mixture's experts a token's activations are those of its own.
    """
    heads = getattr(config, "num_attention_heads", 0)  # none without attention
    size = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    wide = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    return Shape(
        parameters=parameters,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=(wide or 4 * config.hidden_size) * (getattr(config, "num_experts_per_tok", None) or 1),
        vocabulary=config.vocab_size,
        context=length,
        width=heads * size,
        kv=(getattr(config, "num_key_value_heads", None) or heads) * size,
    )


def check_loaded(
    what: str, model: Any, batch: tuple[int, int], has: int, advice: list[str], precision: str = "fp32"
) -> None:
    """InputError where the evaluation of a model of transformers clearly needs more than `has` bytes of this machine.

    batch: sequences and their length in tokens.
    """
    held = sum(p.numel() for p in model.parameters())
    found = needed(shape_of(model.config, held, batch[1]), batch[0], precision, 0, 1, False, logit=LOGIT)
    found = {name: found[name] for name in ("program", "weights", "logits")}
    if sum(found.values()) > TOLERANCE * has:
        raise refusal(what, found, has, 1, advice)
