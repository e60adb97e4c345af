"""The memory of a process under the engine `torch`: DDP where nothing is shared out, FSDP2 elsewhere, torch 2.13.

A step is followed from moment to moment, and the largest counts: the backward pass begins, it ends, the update, a checkpoint. Files that
are named are those of torch/distributed. What is fitted is what glibc's heap adds on a CPU, and nothing else. docs/memory.md compares the
sum with peaks that were measured.
"""

from __future__ import annotations

from crawl2llm.training.estimate import shape as model
from crawl2llm.training.estimate.shape import CONTEXT, PROGRAM, Shape, Training
from crawl2llm.training.malloc_tuning import MAPPED_BYTES

# What glibc's heap adds on a CPU, measured on 3 shapes with the launcher's GLIBC_TUNABLES. Of activations and logits, where all blocks come
# from it: 0.66 to 0.82 of them, 1.1 with recomputation; one process of FSDP2 leaves holes of the size of its weights beside.
HEAP_SHARE, HEAP_RECOMPUTED = 0.78, 1.1
# And where large blocks are mapped (training/malloc_tuning.py), by how many of the activations are large: all 0.11 to 0.34, those of the
# hidden size 0.26 to 0.56, none 0.74 to 0.95.
HEAP_ALL_LARGE, HEAP_SOME_LARGE, HEAP_NONE_LARGE = 0.15, 0.4, 0.8
KERNEL_BYTES = 16_000_000  # bytes of oneDNN's kernels and buffers for bf16 on a CPU


def state_bytes(shape: Shape, how: Training) -> tuple[int, int]:
    """Bytes of (weights, optimizer with the EMA of the weights) that a process has at all times.

    DDP: all, and without autocast a copy in low precision beside. FSDP2: rows over processes (fsdp/_fully_shard/_fsdp_param.py,
    _init_sharded_param); what fills a matrix up to the same number of rows everywhere is not counted. AdamW has two moments, Muon one of
    its matrices. A model of values has no EMA.
    """
    share = shape.updated_parameters // how.shard_count
    less = 4 * (shape.matrices + how.ema * shape.value_parameters) // how.shard_count
    copies = how.number_bytes * shape.parameters * keeps_copies(how)
    return copies + 4 * shape.parameters // how.shard_count, (8 + 4 * how.ema) * share - less


def keeps_copies(how: Training) -> bool:
    """Whether there are copies of the weights in low precision at all times (training/engines/weight_copies.py)."""
    return how.number_bytes == 2 and not how.zero_stage and not how.autocast


def weight_copies(shape: Shape, how: Training) -> int:
    """Bytes of weights that a process computes with, beside its own, when a backward pass begins.

    Stage 0: under autocast every matrix as bf16 (aten/src/ATen/autocast_mode.cpp, cached_cast). 1 and 2: all, since they are not freed
    after the forward pass (reshard_after_forward=False). 3: what is around the layers, and the layer that is under way, with the next
    one if there are processes to gather it from (_fsdp_param_group.py, _backward_prefetch). One process copies, too (wait_for_unshard).

    Under quantize_aware (stage 0) each layer's matrices are rounded in the forward pass, and what they were rounded to is kept for the
    backward pass, that needs it for the gradient of the layer's input: in fp32 4 bytes for each parameter of the layers, with
    recomputation those of the layer that is done again; under autocast its bf16 copy, in the place of the weights' own.
    """
    if not how.zero_stage and how.number_bytes == 4:
        inside = shape.layer_parameters if how.recomputed else shape.parameters - shape.outside_parameters
        return 4 * inside * how.rounded
    if keeps_copies(how):  # among the weights
        return 0
    if how.fuses_casts:  # as what is made of them in eight bits, a layer's copies are made again
        return how.number_bytes * shape.outside_parameters
    if how.zero_stage < 3:
        return how.number_bytes * shape.parameters
    return how.number_bytes * (shape.outside_parameters + shape.layer_parameters * (2 if how.processes > 1 else 1))


def gradient_bytes(shape: Shape, how: Training) -> tuple[int, int]:
    """Bytes of gradients in fp32 when the last backward pass of a step (begins, ends).

    DDP's buckets are there at all times, and the gradients lie in them (gradient_as_bucket_view). Elsewhere there are none before the
    first backward pass. Stage 1 adds up whole ones in all but the last micro-batch (to_accumulated_grad_if_needed).
    """
    whole, share = 4 * shape.updated_parameters, 4 * shape.updated_parameters // how.shard_count
    if not how.zero_stage:
        return (whole if how.accumulated or how.processes > 1 else 0), whole
    if not how.accumulated:
        return 0, share
    return (whole if how.zero_stage == 1 else share), share


def backward_buffers(shape: Shape, how: Training) -> int:
    """Bytes that the layers' backward passes need beside what is there when the first begins."""
    tokens, low, cast = how.micro_batch * shape.context, how.number_bytes, how.casts
    table = shape.vocabulary * shape.hidden
    inner = 2 * low * tokens * shape.intermediate  # gradients of activations
    matrix = shape.intermediate * shape.hidden
    # The second layer's turn begins, whose activations take the place of the first one's.
    again = how.recomputed and how.cuda
    if not how.zero_stage:  # and that of one matrix, under autocast in bf16 and fp32
        if not again:
            return inner + (low + 4 * cast) * max(table, matrix)
        first_layer = 0 if how.accumulated or how.processes > 1 else 4 * shape.layer_parameters
        return inner + (low + 4 * cast) * matrix + first_layer
    # FSDP's root reduces the head's gradient when all is done. A layer's gradients are whole until they are copied to a buffer in fp32,
    # which is kept until the next layer needs one (_fsdp_collectives.py, foreach_reduce; reduce_scatter_max_input_buffers = 1).
    if again:
        reduced = 4 * shape.layer_parameters + 4 * shape.layer_parameters // how.processes
        return (0 if how.chunk else low * table) + inner + reduced + low * matrix
    layer = model.layer_activations(shape, tokens, low)
    output = 4 * shape.layer_parameters // how.processes
    reducing = max((low + 4) * shape.layer_parameters, 4 * shape.layer_parameters + output) - layer
    next_one = 4 * shape.layer_parameters + low * shape.layer_parameters + inner - layer
    return (0 if how.chunk else low * table) + max(low * shape.layer_parameters + inner, reducing, next_one)


def maps_large_blocks(how: Training) -> bool:
    """Whether large blocks are mapped, so that none of them leaves a hole."""
    return how.zero_stage > 0 and how.processes > 1


def heap_bytes(shape: Shape, how: Training, passing: int) -> int:
    """Bytes that a CPU takes beside those that are counted; passing: those of activations and logits.

    gloo reduces and gathers in copies (csrc/distributed/c10d/ProcessGroupGloo.cpp): of a layer's gradients. Muon's arrays find no room in
    one piece where activations were.
    """
    kernels = KERNEL_BYTES if how.number_bytes == 2 else 0
    if maps_large_blocks(how):
        bytes_per_width = how.number_bytes * how.micro_batch * shape.context
        smallest = bytes_per_width * (shape.kv or shape.width or shape.hidden)
        if smallest >= MAPPED_BYTES:
            factor = HEAP_ALL_LARGE
        else:
            factor = HEAP_SOME_LARGE if bytes_per_width * shape.hidden >= MAPPED_BYTES else HEAP_NONE_LARGE
        return round(factor * passing) + 4 * shape.layer_parameters + kernels
    factor = HEAP_RECOMPUTED if how.recomputed and not how.selective else HEAP_SHARE
    holes = 4 * shape.parameters if how.zero_stage else 0
    return round(factor * passing) + holes + kernels + model.muon_bytes(shape, how)


def turn_copies(shape: Shape, how: Training) -> tuple[int, int, int]:
    """Bytes of copies of weights in the head's forward pass, in its backward pass and in a layer's backward pass, on a GPU.

    Under autocast with recomputation a layer's copies are kept until the forward pass ends, and made again for the layer that is done
    again; without it the graph keeps them. At stage 3 the head's turns have no layer's weights.
    """
    low, copies = how.number_bytes, weight_copies(shape, how)
    if how.zero_stage == 3:
        root = low * shape.outside_parameters
        return root, root, copies
    if how.casts and how.recomputed and not how.rounded:
        return copies, low * shape.vocabulary * shape.hidden, low * shape.layer_parameters
    return copies, copies, copies


def gathered_buffer(shape: Shape, how: Training) -> int:
    """Bytes of the buffer into which FSDP2 gathered the last layer, which it keeps until the forward pass ends (AllGatherState)."""
    return how.number_bytes * shape.layer_parameters if how.zero_stage and how.processes > 1 else 0


def pass_moments(shape: Shape, how: Training, base: dict[str, int]) -> list[dict[str, int]]:
    """The memory of the last forward and backward pass of a step on a GPU: the head's forward pass, its backward pass, a layer's.

    base: what is there when it begins. On a CPU the heap keeps the holes of what is gone, so that these moments count together there.
    What FSDP2 reduced last, the root's gradients in fp32, stays until it reduces a layer's (_fsdp_state.py,
    _root_post_backward_final_callback). A layer's turn has the gradient of the stream in the place of what the last norm kept.
    """
    cast, low, weights = how.casts, how.number_bytes, base["weights"]
    table, tokens = shape.vocabulary * shape.hidden, how.micro_batch * shape.context
    stream = (4 if cast else low) * tokens * shape.hidden
    activations, logits = model.forward_activations(shape, how, cast), model.logit_bytes(shape, how)
    reduced = 4 * shape.outside_parameters if how.zero_stage > 1 and how.accumulated else 0
    first_copies, head_copies, layer_copies = turn_copies(shape, how)
    base = base | {"activations": activations, "buffers": reduced}
    # With chunks the loss and its gradient, of what the head reads too, are made in the forward pass.
    first = base | {
        "weights": weights + first_copies,
        "activations": activations + (stream if how.chunk else 0),
        "logits": logits if how.chunk else low * tokens * shape.vocabulary,
        "buffers": reduced + gathered_buffer(shape, how),
    }
    # The logits' gradient, and in bf16 its copy beside it, are the `logits`.
    head = base | {"weights": weights + head_copies, "logits": logits}
    of_layers = activations - model.last_norm_activations(shape, how, cast)
    head_gradient = low * table if how.chunk else 0
    if not how.recomputed:
        of_layers += stream
    else:
        reduced = 0
        of_layers += model.recomputed_activations(shape, how, cast)
        if low == 4:  # the stream is what a norm keeps, and the layer that is done again has its input from there
            of_layers -= stream
        if not how.zero_stage:  # until the table's other use has one, too
            head_gradient = (4 if cast else low) * table
    layer = base | {
        "weights": weights + layer_copies,
        "activations": of_layers,
        "logits": head_gradient,
        "buffers": reduced + max(0, backward_buffers(shape, how)),
    }
    return [first, head, layer]


def validation_moments(shape: Shape, how: Training) -> list[dict[str, int]]:
    """The memory of a validation: in a layer, in the head, and while the losses are made of the logits.

    Gradients are there in DDP's buckets alone. On a CPU the heap keeps the holes of what is gone, so that all counts together there.
    Autocast's copies go with the forward pass, in which `loss_chunk` has the losses made.
    """
    weights, optimizer = state_bytes(shape, how)
    _, ends = gradient_bytes(shape, how)
    cast, low, copies = how.casts, how.number_bytes, weight_copies(shape, how)
    activations, logits = model.validation_activations(shape, how, cast), model.validation_logits(shape, how)
    base = {
        "program": CONTEXT if how.cuda else PROGRAM,
        "weights": weights + copies,
        "gradients": ends if not how.zero_stage and how.processes > 1 else 0,
        "optimizer": optimizer,
        "activations": activations,
        "logits": 0,
    }
    if not how.cuda:
        return [base | {"logits": logits, "heap": heap_bytes(shape, how, activations + logits)}]
    tokens, stream = how.micro_batch * shape.context, 4 if cast else low
    buffer = gathered_buffer(shape, how)
    layer = base | {"buffers": buffer if how.zero_stage < 3 else 0}  # at stage 3 it is among the copies
    if how.zero_stage == 3:
        copies = low * shape.outside_parameters
    head = base | {"weights": weights + copies, "activations": stream * tokens * shape.hidden, "buffers": buffer}
    if how.chunk:
        return [layer, head | {"logits": logits}]
    head["activations"] += cast * low * tokens * shape.hidden
    losses = base | {"weights": weights + (0 if cast else copies), "activations": 0, "logits": logits}
    return [layer, head | {"logits": low * tokens * shape.vocabulary}, losses]


def step_moments(shape: Shape, how: Training) -> list[dict[str, int]]:
    """The memory of one process in bytes by what takes it: a backward pass begins, the last one ends, the update, a checkpoint.

    With `async_checkpoints` one is written while all else goes on.
    """
    weights, optimizer = state_bytes(shape, how)
    begins, ends = gradient_bytes(shape, how)
    cast, table = how.casts, how.number_bytes * shape.vocabulary * shape.hidden
    activations, logits = model.backward_activations(shape, how, cast), model.logit_bytes(shape, how)
    base = {
        "program": CONTEXT if how.cuda else PROGRAM,
        "weights": weights,
        "gradients": ends,
        "optimizer": optimizer,
        "activations": 0,
        "logits": 0,
    }
    if how.cuda:
        moments = [*pass_moments(shape, how, base | {"gradients": begins}), *validation_moments(shape, how)]
    else:
        # A chunk's logits are gone when the layers' turn comes; the head's gradient stays.
        room = logits - table if how.chunk else 0
        moments = [
            base
            | {
                "weights": weights + weight_copies(shape, how),
                "gradients": begins,
                "activations": activations,
                "logits": logits,
                "buffers": max(0, backward_buffers(shape, how) - room),
                "heap": heap_bytes(shape, how, activations + logits),
            },
            *validation_moments(shape, how),
        ]
    moments.append(base | {"buffers": model.muon_bytes(shape, how)})
    if how.zero_stage:  # the last micro-batch frees what was gathered of the layers; the root's gradients, and what they are reduced from
        gathered = how.number_bytes * (
            shape.parameters if how.zero_stage < 3 and how.accumulated else shape.outside_parameters
        )
        moments.append(
            base | {"weights": weights + gathered, "buffers": (how.number_bytes + 4) * shape.outside_parameters}
        )
    buckets = ends if not how.zero_stage and how.processes > 1 else 0
    if how.cuda:  # a model's files have whole weights, which are gathered one after another
        largest = 4 * shape.vocabulary * shape.hidden if how.zero_stage and how.processes > 1 else 0
        moments.append(base | {"gradients": buckets, "checkpoint": largest})
    else:
        saved = 0
        if how.async_checkpoints:  # the copy that is written while the state changes
            state_of = 4 * shape.updated_parameters * (3 + how.ema)
            saved = (state_of - 4 * (shape.matrices + how.ema * shape.value_parameters)) // how.processes
            moments = [moment | {"checkpoint": saved} for moment in moments]
        saved += 4 * shape.parameters  # weights that are gathered for a model's files
        moments.append(base | {"gradients": buckets, "checkpoint": saved})
    return moments


def peak_memory(shape: Shape, how: Training) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it at that moment."""
    return max(step_moments(shape, how), key=lambda parts: sum(parts.values()))
