"""Whether a training fits the memory that the machine has, before it is used.

What a process needs is estimated in training/estimate, by engine; what helps where it does not fit is found in advice.py.
"""

from __future__ import annotations

from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.advice import changes_that_fit
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate.parts import Placement, format_bytes, memory_parts, offloaded_bytes, parts_text
from crawl2llm.training.estimate.shape import CONTEXT, PROGRAM, Shape, Training, validation_activations
from crawl2llm.training.mixture import mixture_of

SECTION = "pretrain.train"
# A run is refused where it needs this many times what there is: so far may the estimate be from the peak.
TOLERANCE = 1.15
MACHINE = "this machine (or its control group)"
LOGITS_AT_ONCE = 2**29  # bytes of the logits, in fp32, that an evaluation makes at once
# Bytes for each logit of a loss without a gradient: itself, a copy of those that count, and its logarithm.
LOGIT_BYTES = 12


def check_host(parameters: int, available: int, processes_here: int, where: str = SECTION) -> None:
    """InputError if `processes_here` processes with a GPU each cannot build the model in `available` bytes of the node's own memory."""
    total = processes_here * (PROGRAM + CONTEXT + 4 * parameters)
    if total > available:
        raise InputError(
            f"each of the {processes_here} processes of this node builds the model in fp32 before its GPU gets it: that takes "
            f"{format_bytes(total)}, and this node (or its control group) has {format_bytes(available)} free; ask for more memory, "
            f"or lower {where}.processes and raise {where}.nodes"
        )


def check_offload(
    shape: Shape,
    settings: EngineSettings,
    placement: Placement,
    available: int,
    processes_here: int,
    where: str = SECTION,
) -> None:
    """InputError if what `processes_here` processes offload to the node's memory takes more than its `available` bytes."""
    total = processes_here * offloaded_bytes(shape, settings, placement)["host"]
    if total > available:
        raise InputError(
            f"{where}.offload_optimizer is {settings.offload_optimizer}, and {where}.offload_parameters "
            f"{settings.offload_parameters}: the {processes_here} processes of this node keep {format_bytes(total)} in its memory, and "
            f"it (or its control group) has {format_bytes(available)} free; ask for more memory, train on more nodes, or set "
            f"{where}.offload_optimizer to nvme"
        )


def fitting_memory_parts(
    shape: Shape,
    settings: EngineSettings,
    placement: Placement,
    available: int,
    processes_here: int,
    cuda: bool = False,
    where: str = SECTION,
) -> dict[str, int]:
    """What a process needs (see `memory_parts`); InputError, with what to change, where `processes_here` of them clearly need more than
    `available` bytes.

    available: of the node, or of one GPU with `processes_here` 1. where: as for `changes_that_fit`.
    """
    needed = memory_parts(shape, settings, placement, cuda)
    if processes_here * sum(needed.values()) <= TOLERANCE * available:
        return needed
    advice = changes_that_fit(shape, settings, placement, available, processes_here, cuda, where)
    task, place = "training" if where == SECTION else where, "a GPU" if cuda else MACHINE
    raise refusal_error(
        task, needed, available, processes_here, advice, place, is_upper_bound(settings, placement, cuda)
    )


def is_upper_bound(settings: EngineSettings, placement: Placement, cuda: bool) -> bool:
    """Whether `memory_parts` are clearly too many: DeepSpeed's add the logits and the layer that is computed again, which a GPU never has
    at once.

    10 to 34 % (docs/memory.md).
    """
    return cuda and settings.engine == "deepspeed" and placement.activation_checkpointing


def refusal_error(
    task: str,
    needed: dict[str, int],
    available: float,
    processes_here: int,
    advice: list[str],
    where: str = MACHINE,
    is_bound: bool = False,
) -> InputError:
    """The error that says what `processes_here` processes need by their parts, what there is, and what to change. is_bound: see
    `is_upper_bound`.
    """
    at_most = " at most" if is_bound else ""
    return InputError(
        f"{task} needs about {format_bytes(processes_here * sum(needed.values()))}{at_most}, and {where} has {format_bytes(available)} "
        f"free: {f'{processes_here} processes of ' if processes_here > 1 else ''}{format_bytes(sum(needed.values()))} "
        f"({parts_text(needed)}); {', or '.join(advice)}"
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
    experts = mixture_of(config)
    width, kv = attention_widths(config)
    wide = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    return Shape(
        parameters=parameters,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=(wide or 4 * config.hidden_size) * (experts.per_token if experts else 1),
        vocabulary=config.vocab_size,
        context=length,
        width=width,
        kv=kv,
        tables=config.vocab_size * config.hidden_size * (1 if getattr(config, "tie_word_embeddings", False) else 2),
    )


def check_loaded(
    task: str, model: Any, batch: tuple[int, int], available: int, advice: list[str], precision: str = "fp32"
) -> None:
    """InputError if the evaluation of a model of transformers clearly needs more than `available` bytes of this machine.

    batch: sequences and their length in tokens. Those whose logits would take more than LOGITS_AT_ONCE pass one after another.
    """
    parameters, (sequences, length) = model.num_parameters(), batch
    shape = shape_of_config(model.config, parameters, length)
    at_once = LOGITS_AT_ONCE // (4 * shape.vocabulary)  # tokens
    rows = max(1, min(sequences, at_once // length))
    how = Training(micro_batch=rows, precision=precision, zero_stage=0, processes=1)
    needed = {
        "program": PROGRAM,
        "weights": how.number_bytes * parameters,
        "activations": validation_activations(shape, how),
        "logits": LOGIT_BYTES * min(rows * length, at_once) * shape.vocabulary,
    }
    if getattr(model, "is_quantized", False):
        needed["weights"] = model.get_memory_footprint()
    if sum(needed.values()) > TOLERANCE * available:
        raise refusal_error(task, needed, available, 1, advice)
