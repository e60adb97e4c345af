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
    if not how.zero_stage:  # and that of one matrix, under autocast in bf16 and fp32
        return inner + (low + 4 * cast) * max(table, shape.intermediate * shape.hidden)
    # FSDP's root reduces the head's gradient when all is done. A layer's gradients are whole until they are copied to a buffer in fp32,
    # which is kept until the next layer needs one (_fsdp_collectives.py, foreach_reduce; reduce_scatter_max_input_buffers = 1).
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


def pass_moments(shape: Shape, how: Training, base: dict[str, int]) -> list[dict[str, int]]:
    """The memory of the last forward and backward pass of a step on a GPU: the head's forward pass, its backward pass, a layer's.

    base: what is there when it begins. On a CPU the heap keeps the holes of what is gone, so that these moments count together there.
    Under autocast with recomputation a layer's copies are kept until the forward pass ends, and made again for the layer that is
    done again; without it the graph keeps them. What FSDP2 reduced last, the root's gradients in fp32, stays until the step's last
    backward pass ends (_fsdp_state.py, _root_post_backward_final_callback).
    """
    cast, table = how.casts, shape.vocabulary * shape.hidden
    activations, logits = model.forward_activations(shape, how, cast), model.logit_bytes(shape, how)
    reduced = 4 * shape.outside_parameters if how.zero_stage > 1 and how.accumulated and how.processes > 1 else 0
    copy_bytes = weight_copies(shape, how)
    of_head, of_layer = (
        (how.number_bytes * table, how.number_bytes * shape.layer_parameters)
        if cast and how.recomputed and not how.rounded
        else (copy_bytes, copy_bytes)
    )
    tokens = how.micro_batch * shape.context
    base = base | {"activations": activations, "buffers": reduced}
    weights = base["weights"]
    # With chunks the loss and its gradient are made in the forward pass.
    first_logits = logits if how.chunk else how.number_bytes * tokens * shape.vocabulary
    first = base | {"weights": weights + copy_bytes, "logits": first_logits}
    # The logits' gradient, and in bf16 its copy beside it, are the `logits`.
    head = base | {"weights": weights + of_head, "logits": logits}
    layer = base | {
        "weights": weights + of_layer,
        "activations": activations + model.recomputed_activations(shape, how, cast),
        "logits": how.number_bytes * table if how.chunk else 0,  # the head's gradient
        "buffers": reduced + max(0, backward_buffers(shape, how)),
    }
    return [first, head, layer]


def validation_moment(shape: Shape, how: Training) -> dict[str, int]:
    """The memory of a validation; gradients are there in DDP's buckets alone."""
    weights, optimizer = state_bytes(shape, how)
    _, ends = gradient_bytes(shape, how)
    parts = {
        "program": CONTEXT if how.cuda else PROGRAM,
        "weights": weights + weight_copies(shape, how),
        "gradients": ends if not how.zero_stage and how.processes > 1 else 0,
        "optimizer": optimizer,
        **model.validation_bytes(shape, how),
    }
    return parts if how.cuda else parts | {"heap": heap_bytes(shape, how, parts["activations"] + parts["logits"])}


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
        moments = [*pass_moments(shape, how, base | {"gradients": begins}), validation_moment(shape, how)]
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
            validation_moment(shape, how),
        ]
    moments.append(base | {"buffers": model.muon_bytes(shape, how)})
    if how.zero_stage:  # the last micro-batch frees what was gathered of the layers; the root's gradients, and what they are reduced from
        gathered = how.number_bytes * (
            shape.parameters if how.zero_stage < 3 and how.accumulated else shape.outside_parameters
        )
        moments.append(
            base | {"weights": weights + gathered, "buffers": (how.number_bytes + 4) * shape.outside_parameters}
        )
    if not how.cuda:
        saved = 0
        if how.async_checkpoints:  # the copy that is written while the state changes
            state_of = 4 * shape.updated_parameters * (3 + how.ema)
            saved = (state_of - 4 * (shape.matrices + how.ema * shape.value_parameters)) // how.processes
            moments = [moment | {"checkpoint": saved} for moment in moments]
        saved += 4 * shape.parameters  # weights that are gathered for a model's files
        buckets = ends if not how.zero_stage and how.processes > 1 else 0
        moments.append(base | {"gradients": buckets, "checkpoint": saved})
    return moments


def peak_memory(shape: Shape, how: Training) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it at that moment."""
    return max(step_moments(shape, how), key=lambda parts: sum(parts.values()))
