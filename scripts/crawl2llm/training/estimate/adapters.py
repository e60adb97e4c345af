"""The memory of a process that trains an adapter, by the engine `torch`: frozen weights have no gradient, and a layer keeps less.

As torch.py follows a step, from moment to moment. docs/memory.md compares the sum with what torch's own tracker counts.
"""

from __future__ import annotations

from dataclasses import replace

from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate import shape as model
from crawl2llm.training.estimate import torch
from crawl2llm.training.estimate.shape import CONTEXT, PROGRAM, Adapter, Shape, Training

# Bytes of a parameter in NF4: half, a scale of a byte for 64 of them, and one of 4 bytes for 256 scales (arXiv:2305.14314, section 3).
FOUR_BITS = 1 / 2 + 1 / 64 + 4 / (64 * 256)


def linear_layers(shape: Shape) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of a Llama's linear layers by the last part of their names."""
    hidden, feed, width = shape.hidden, shape.intermediate, shape.width or shape.hidden
    kv = shape.kv or width
    return {
        "q_proj": (hidden, width), "k_proj": (hidden, kv), "v_proj": (hidden, kv), "o_proj": (width, hidden),
        "gate_proj": (hidden, feed), "up_proj": (hidden, feed), "down_proj": (feed, hidden),
    }  # fmt: skip


def with_adapter(shape: Shape, settings: EngineSettings) -> Shape:
    """The shape of a training of what `settings.adapter` says: a model with an adapter, or the model as it is.

    Of an architecture with other names of linear layers, or for targets that a Llama does not have, all of a Llama's are counted.
    """
    if settings.adapter == "none":
        return shape
    layers, targets = linear_layers(shape), settings.adapter_targets or ()
    sizes = [layers[name] for name in targets] if {*targets} <= layers.keys() and targets else [*layers.values()]
    adapter = Adapter(
        rank=settings.adapter_rank,
        matrices=len(sizes),
        inputs=sum(inputs for inputs, _ in sizes),
        frozen=sum(inputs * outputs for inputs, outputs in sizes),
        four_bits=settings.adapter == "qlora",
    )
    trained = shape.layers * settings.adapter_rank * sum(map(sum, sizes))
    is_counted = 0 < shape.trained < shape.parameters
    return replace(shape, adapter=adapter, trained=shape.trained if is_counted else trained)


def weight_bytes(shape: Shape, shard_count: int) -> int:
    """Bytes of a process's weights: fp32, those under a `qlora` in four bits."""
    if shape.adapter is None:
        return 4 * shape.parameters // shard_count
    low = shape.adapter.frozen * shape.layers if shape.adapter.four_bits else 0
    return (4 * (shape.parameters + shape.trained - low) + round(FOUR_BITS * low)) // shard_count


def layer_activations(shape: Shape, adapter: Adapter, tokens: int, low: int, cast: bool) -> int:
    """Bytes that a layer under an adapter keeps of `tokens` tokens for its backward pass. low, cast: as in `shape.layer_activations`.

    A product with weights that are not trained keeps no input, and a norm neither its output nor what it normalised; the adapter's first
    matrices keep theirs, each in a copy under autocast, and the second ones `rank` numbers. A layer in four bits gives what it was given,
    fp32 behind a norm, so that the feed-forward layer's is twice as large.
    """
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    inside = 2 * width + 2 * kv + 3 * shape.intermediate + adapter.matrices * adapter.rank
    if not cast:  # attention's output is an input, too
        return tokens * (2 * (4 + low) * shape.hidden + low * (inside + shape.intermediate))
    wider = (4 - low) * 3 * shape.intermediate if adapter.four_bits else 0
    return tokens * (8 * shape.hidden + low * (inside + adapter.inputs) + wider)


def weight_copies(shape: Shape, adapter: Adapter, how: Training) -> tuple[int, int, int]:
    """Bytes of copies of weights to compute with, of (a layer, the head, all that is trained).

    Under autocast in bf16: those of frozen layers are kept by the graph alone, the others until the forward pass ends
    (aten/src/ATen/autocast_mode.cpp, cached_cast). Under FSDP2 what is gathered.
    """
    low = how.number_bytes
    if not how.zero_stage:
        layer = 0 if adapter.four_bits else low * adapter.frozen
        return (layer, low * shape.vocabulary * shape.hidden, low * shape.trained) if low == 2 else (0, 0, 0)
    layer = low * (shape.layer_parameters + shape.trained // shape.layers)
    return layer * (2 if how.zero_stage == 3 and how.processes > 1 else 1), low * shape.outside_parameters, 0


def passing_layers(shape: Shape, how: Training) -> int:
    """Of how many layers there are copies of weights while the last layer's backward pass runs: their graph's, or gathered ones."""
    is_one = how.zero_stage == 3 or (how.recomputed and not how.zero_stage)
    return 1 if is_one else shape.layers


def passing_bytes(shape: Shape, adapter: Adapter, how: Training) -> int:
    """Bytes that pass while the last layer's backward pass runs, or the forward pass before it: what the adapter's first matrix of the
    feed-forward layer's end is given, in the product's precision, fp32 and again bf16; of a layer in four bits a matrix in fp32 and bf16.

    Of the hidden size by torch's own tracker (benchmarks/tracked_memory.py).
    """
    low, cast, tokens = how.number_bytes, how.casts, how.micro_batch * shape.context
    if adapter.four_bits:
        return (
            2 * low * tokens * shape.intermediate // (1 + cast) + (4 + low * cast) * shape.hidden * shape.intermediate
        )
    if not cast:
        return 2 * low * tokens * shape.intermediate
    return tokens * (6 * shape.intermediate + (10 if how.recomputed else 4) * shape.hidden)


def step_moments(shape: Shape, adapter: Adapter, how: Training) -> list[dict[str, int]]:
    """The memory of one process in bytes by what takes it: the head's forward pass, its backward pass, and the last layer's."""
    low, cast, tokens = how.number_bytes, how.casts, how.micro_batch * shape.context
    stream, number = (4 if cast else low) * tokens * shape.hidden, shape.layers
    layer, head, trained = weight_copies(shape, adapter, how)
    whole_layer = layer_activations(shape, adapter, tokens, low, cast)
    kept, copied_layers = number * (stream if how.recomputed else whole_layer), passing_layers(shape, how)
    before_head = copied_layers if not how.recomputed or how.zero_stage in (1, 2) else 0
    logits = model.logit_bytes(shape, how)
    gradients = 4 * shape.trained // how.shard_count
    base = {
        "program": CONTEXT if how.cuda else PROGRAM,
        "weights": weight_bytes(shape, how.shard_count),
        "gradients": gradients,
        "optimizer": (8 + 4 * how.ema) * shape.trained // how.shard_count,
        "activations": kept,
        "logits": 0,
        "buffers": 0,
    }
    first = base | {
        "weights": base["weights"] + before_head * layer + head + trained,
        "gradients": gradients if how.accumulated else 0,
        "activations": kept + model.last_norm_activations(shape, how, cast),
        "logits": logits if how.chunk else low * tokens * shape.vocabulary,
    }
    backward = first | {
        "weights": first["weights"] - trained,
        "activations": kept + 4 * tokens * shape.hidden,
        "logits": logits,
    }
    # No layer but the last has a gradient yet; the one that is computed again has its input among what is kept.
    of_layer = 1 if how.recomputed else number
    last = base | {
        "weights": base["weights"]
        + copied_layers * layer
        + trained * of_layer // number
        + (head if how.zero_stage else 0),
        "gradients": gradients if how.accumulated else gradients // number,
        "activations": kept + stream + (whole_layer - stream if how.recomputed else 0),
        "buffers": passing_bytes(shape, adapter, how),
    }
    return [first, backward, last]


def peak_memory(shape: Shape, adapter: Adapter, how: Training) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it at that moment; on a CPU the moments leave holes, and count together."""
    moments = step_moments(shape, adapter, how)
    if how.cuda:
        return max(moments, key=lambda parts: sum(parts.values()))
    parts = {name: max(moment[name] for moment in moments) for name in moments[0]}
    parts["heap"] = torch.heap_bytes(shape, how, parts["activations"] + parts["logits"])
    at_end = moments[0] | {"weights": weight_bytes(shape, how.shard_count), "activations": 0, "logits": 0, "buffers": 0}
    at_end["checkpoint"] = 4 * shape.parameters
    return max(parts, at_end, key=lambda each: sum(each.values()))
