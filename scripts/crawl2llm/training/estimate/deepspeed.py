"""The memory of a process under DeepSpeed 0.19.8: ZeRO's parts, and the copies that it keeps beside them.

Weights, gradients and optimizer by precision and ZeRO stage are those of Rajbhandari et al. 2020 (https://arxiv.org/abs/1910.02054,
section 3). Only what glibc's heap adds on a CPU is fitted. docs/memory.md compares the sum with peaks that were measured.
"""

from __future__ import annotations

from crawl2llm.training import offload
from crawl2llm.training.estimate import shape as model
from crawl2llm.training.estimate.shape import CONTEXT, PROGRAM, Shape, Training

BUCKET = 500_000_000  # parameters that DeepSpeed reduces in one piece at most
UPDATE_GROUP = 1_000_000_000  # parameters that ZeRO 3 updates at once: DeepSpeed's sub_group_size
BUFFERS = 5  # of weights on their way to the disk, of offload.BUFFER elements at least: DeepSpeed's default
LIVE_PARAMETERS = 1_000_000_000  # parameters that ZeRO 3 holds gathered at most: DeepSpeed's stage3_max_live_parameters
# What glibc's heap adds to activations and logits on a CPU: freed blocks that are too small for what comes next, or held apart by blocks
# that stay. With the launcher's GLIBC_TUNABLES 0.46 of them where they are nearly all, and more where weights are. Memory that is mapped
# block by block (without the tunables) has none of it, and takes longer.
HEAP_SHARE = 0.6


def offloaded_bytes(shape: Shape, how: Training) -> dict[str, int]:
    """Bytes of one process that an offload takes from its GPU: `host`, of the node's memory, and `nvme`, of its disk.

    Of the optimizer fp32 weights, their gradients and both moments (Ren et al. 2021, https://arxiv.org/abs/2101.06840, section 4); of the
    parameters those of 16 or 32 bits that are computed with (Rajbhandari et al. 2021, https://arxiv.org/abs/2104.07857). What is on the
    disk is updated in memory by GROUP parameters at a time, and weights pass through BUFFERS buffers.
    """
    n, bytes_by_place = shape.parameters // how.shard_count, {"host": 0, "nvme": 0}
    # It lies beside the weights that it follows.
    ema = 4 * (shape.parameters - shape.value_parameters) // how.shard_count if how.ema else 0
    passing = BUFFERS * how.number_bytes * max(offload.BUFFER, shape.hidden * max(shape.vocabulary, shape.intermediate))
    for where, size, through in (
        (how.offload_optimizer, 16 * n + ema, 16 * UPDATE_GROUP),
        (how.offload_parameters, how.number_bytes * n, passing),
    ):
        if where == "cpu":
            bytes_by_place["host"] += size
        elif where == "nvme":
            bytes_by_place["nvme"] += size
            bytes_by_place["host"] += min(size, through)
    return bytes_by_place


def peak_memory(shape: Shape, how: Training) -> dict[str, int]:
    """The peak memory of one process in bytes, by what takes it.

    On a GPU without what is offloaded; on a CPU an offload changes nothing, for it is the same memory, but on a disk.
    """
    n, low, split, zero_stage = shape.parameters, how.number_bytes, how.shard_count, how.zero_stage
    tokens = how.micro_batch * shape.context
    share, third, mixed = n // split, zero_stage == 3, how.precision != "fp32"
    gathered = low * min(n, LIVE_PARAMETERS) if third and how.processes > 1 else 0
    weights = low * (share if third else n) + gathered
    # Those of the backward pass, and where they are accumulated in fp32 beside them.
    gradients = low * (share if third else n)
    if zero_stage and mixed:
        gradients += 4 * (share if zero_stage >= 2 else n)
    moments = 8 * n - 4 * shape.matrices
    optimizer = (moments + 4 * n * bool(zero_stage or mixed)) // split  # and fp32 weights beside those that train
    if how.ema:
        optimizer += 4 * (n - shape.value_parameters) // split
    # A validation has less of all else, and of a chunk's logits perhaps more.
    activations = model.backward_activations(shape, how)
    logits = max(model.logit_bytes(shape, how), model.validation_logits(shape, how))
    # The update runs on the node's processors, by gradients that were copied there.
    if how.cuda and how.offload_optimizer != "none":
        optimizer = 0
        gradients = low * (share if zero_stage >= 2 else n)
    if how.cuda and how.offload_parameters != "none":
        weights = gathered or low * (shape.outside_parameters + 2 * shape.layer_parameters)
    # Gradients of activations and of one matrix while they are made, and what is reduced in one piece.
    largest = shape.hidden * max(shape.vocabulary, shape.intermediate)
    working = low * (2 * tokens * shape.intermediate + largest)
    bucket = low * min(n, BUCKET) if third or (zero_stage and how.processes > 1) else 0
    if how.cuda and (zero_stage == 2 or (zero_stage == 1 and not mixed)):  # one is filled while another is reduced
        bucket *= 2
    # The system gives its pages as gradients fill it, when activations go.
    late = bucket if zero_stage in (1, 2) and not how.cuda else 0
    if how.cuda:  # torch's fused AdamW needs no arrays of its own; gradients are flattened, or made fp32
        update = 4 * share if how.offload_optimizer == "none" and (zero_stage in (1, 2) or mixed) else 0
    elif zero_stage:  # the flat gradient, in fp32 a copy of it that the second step brings, and two arrays of AdamW's
        update = (8 if mixed else 16) * share
    else:
        update = max(8 * largest, model.muon_bytes(shape, how))
    parts = {
        "program": CONTEXT if how.cuda else PROGRAM,
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activations,
        "logits": logits,
        # An update begins when activations are freed; on a CPU the heap rarely has room for its arrays in one piece.
        "buffers": bucket - late + max(working, update + late - activations - logits),
    }
    if not how.cuda:
        parts["heap"] = round(HEAP_SHARE * (activations + logits)) + min(update + late, activations + logits) + gathered
    return parts
