"""Whether a training fits the memory that the machine has, before it is used.

What a process needs is estimated in training/estimate, by engine; what helps where it does not fit is found in advice.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain.exit_signals import CGROUPS, SELF, memory_groups
from crawl2llm.core.errors import InputError
from crawl2llm.training.advice import changes
from crawl2llm.training.estimate import deepspeed
from crawl2llm.training.estimate.parts import gigabytes, listed, offloaded, parts
from crawl2llm.training.estimate.shape import CONTEXT, PROGRAM, Shape, Training
from crawl2llm.training.mixture import mixture

WHERE = "pretrain.train"
# A run is refused where it needs this many times what there is: so far may the estimate be from the peak.
TOLERANCE = 1.15
HERE = "this machine (or its control group)"
LIMITS = (  # (limit, used, before the names in memory.stat) of cgroup v2 and v1
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
LOGIT = 16  # bytes for each logit of a loss of torch: itself, its logarithm and the gradients of both, in fp32
CACHE = ("inactive_file", "active_file")  # the page cache that can be given back; active: files that were read twice


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


def check_host(parameters: int, has: int, here: int, where: str = WHERE) -> None:
    """InputError where `here` processes with a GPU each cannot build the model in `has` bytes of the node's own memory."""
    total = here * (PROGRAM + CONTEXT + 4 * parameters)
    if total > has:
        raise InputError(
            f"each of the {here} processes of this node builds the model in fp32 before its GPU gets it: that takes "
            f"{gigabytes(total)}, and this node (or its control group) has {gigabytes(has)} free; ask for more memory, "
            f"or lower {where}.processes and raise {where}.nodes"
        )


def check_offload(
    shape: Shape, settings: dict[str, Any], placement: dict[str, Any], has: int, here: int, where: str = WHERE
) -> None:
    """InputError if what `here` processes offload to the node's memory takes more than its `has` bytes."""
    total = here * offloaded(shape, settings, placement)["host"]
    if total > has:
        raise InputError(
            f"{where}.offload_optimizer is {settings['offload_optimizer']}, and {where}.offload_parameters "
            f"{settings['offload_parameters']}: the {here} processes of this node keep {gigabytes(total)} in its memory, and it (or its "
            f"control group) has {gigabytes(has)} free; ask for more memory, train on more nodes, or set {where}.offload_optimizer to nvme"
        )


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
    what, on = "training" if where == WHERE else where, "a GPU" if cuda else HERE
    raise refusal(what, found, has, here, advice, on, is_upper_bound(settings, placement, cuda))


def is_upper_bound(settings: dict[str, Any], placement: dict[str, Any], cuda: bool) -> bool:
    """Whether `parts` are clearly too many: DeepSpeed's add the logits and the layer that is computed again, which a GPU never has at once.

    10 to 34 % (docs/memory.md).
    """
    return cuda and settings["engine"] == "deepspeed" and placement["activation_checkpointing"]


def refusal(
    what: str, found: dict[str, int], has: float, here: int, advice: list[str], where: str = HERE, bound: bool = False
) -> InputError:
    """The error that says what `here` processes need by their parts, what there is, and what to change. bound: see `is_upper_bound`."""
    most = " at most" if bound else ""
    return InputError(
        f"{what} needs about {gigabytes(here * sum(found.values()))}{most}, and {where} has {gigabytes(has)} free: "
        f"{f'{here} processes of ' if here > 1 else ''}{gigabytes(sum(found.values()))} ({listed(found)}); {', or '.join(advice)}"
    )


def attention_widths(config: Any) -> tuple[int, int]:
    """(width of queries, of keys) by a configuration of transformers: their heads × the size of a head; 0 without attention.

    A type may have a head size of its own, whatever the hidden size, as qwen3.
    """
    if not (heads := getattr(config, "num_attention_heads", 0)):
        return 0, 0
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads * size, (getattr(config, "num_key_value_heads", None) or heads) * size


def shape_of_config(config: Any, parameters: int, length: int) -> Shape:
    """What decides the size of a model with this configuration of transformers, on sequences of `length` tokens.

    Of a mixture's experts a token's activations are those of its own.
    """
    experts = mixture(config)
    width, kv = attention_widths(config)
    wide = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    return Shape(
        parameters=parameters,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=(wide or 4 * config.hidden_size) * (experts.chosen if experts else 1),
        vocabulary=config.vocab_size,
        context=length,
        width=width,
        kv=kv,
        tables=config.vocab_size * config.hidden_size * (1 if getattr(config, "tie_word_embeddings", False) else 2),
    )


def check_loaded(
    what: str, model: Any, batch: tuple[int, int], has: int, advice: list[str], precision: str = "fp32"
) -> None:
    """InputError where the evaluation of a model of transformers clearly needs more than `has` bytes of this machine.

    batch: sequences and their length in tokens.
    """
    held = model.num_parameters()
    how = Training(micro_batch=batch[0], precision=precision, zero_stage=0, processes=1, logit=LOGIT)
    found = deepspeed.needed(shape_of_config(model.config, held, batch[1]), how)
    found = {name: found[name] for name in ("program", "weights", "logits")}
    if getattr(model, "is_quantized", False):
        found["weights"] = model.get_memory_footprint()
    if sum(found.values()) > TOLERANCE * has:
        raise refusal(what, found, has, 1, advice)
