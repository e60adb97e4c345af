"""What decides the memory of a training process, and what every engine keeps of a forward pass: activations and logits.

Activations are those of a Llama's layer with fused attention, tensor by tensor as torch saves them for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crawl2llm.training.parallel import Degrees

PROGRAM = 560_000_000  # bytes of a process before it holds a model: torch, transformers, DeepSpeed and their threads
CONTEXT = 1_000_000_000  # bytes of a GPU that CUDA and NCCL take
PIECE = 1 << 26  # bytes of logits that are measured at once on a GPU: training/fused_cross_entropy.py
AT_ONCE = 1 << 23  # training/muon.py, AT_ONCE: no import, which would take torch's seconds


def bytes_of_precision(precision: str) -> int:
    """Bytes of a number that a training with this `precision` computes with; fp8 is kept as bf16."""
    return 4 if precision == "fp32" else 2


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What is trained beside a layer's frozen weights: pairs of matrices (estimate/adapters.py makes it of the settings).

    matrices: linear layers that have a pair; inputs: the sum of their inputs; frozen: their parameters; four_bits: whether those are so.
    """

    rank: int
    matrices: int
    inputs: int
    frozen: int
    four_bits: bool


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
    tables: int = 0  # parameters outside of the layers: embeddings and the head; 0: one table of the vocabulary
    stages: int = 1  # of a pipeline, of which `parameters` are one
    trained: int = 0  # parameters that are updated, where it is not all of them: an adapter's
    value_parameters: int = 0  # of a model of values, which are among the others, and of which no EMA is kept
    cached_layers: int = 0  # layers that keep keys and values of the answers that the model gives while it trains
    drawn_rows: int = 0  # of these answers, those that are drawn at once; 0: those of a micro-batch
    reward_parameters: int = 0  # of the reward models that score these, which each process has whole, in fp32
    adapter: Adapter | None = None  # None: the model itself is trained
    teacher: Shape | None = None  # of the model beside it that says what it is to learn; its context is the student's

    @property
    def updated_parameters(self) -> int:
        """Parameters that have a gradient and an optimizer's state."""
        return self.trained or self.parameters

    @property
    def outside_parameters(self) -> int:
        """Parameters around the layers."""
        return self.tables or self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        return max(0, self.parameters - self.outside_parameters) * self.stages // self.layers


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained; `processes` are those that share it out by ZeRO, of all nodes.

    recomputed: activations are computed again in the backward pass (activation_checkpointing); selective: except those of matrix products.
    bytes_per_logit: bytes for each; 0: those of pre-training, in fp32 and where they are made in bf16 beside; their gradient takes their
    place (fused_cross_entropy.py). chunk: tokens whose logits are there at once; 0: all. accumulated: a step has several micro-batches.
    """

    micro_batch: int
    precision: str
    zero_stage: int
    processes: int
    recomputed: bool = False
    selective: bool = False
    bytes_per_logit: int = 0
    chunk: int = 0
    ema: bool = False  # an EMA of the weights, in fp32
    accumulated: bool = True
    cuda: bool = False
    async_checkpoints: bool = False  # a checkpoint is written while the training goes on
    offload_optimizer: str = "none"  # where master weights and optimizer are, if not on the GPU (offload_optimizer)
    offload_parameters: str = "none"  # where weights are that no layer needs (offload_parameters)
    compiled: bool = False  # layers are compiled (compile_layers) for a GPU
    autocast: bool = True  # of engine torch at stage 0
    rounded: bool = False  # the layers multiply with a rounded copy of their weights (quantize_aware)

    @property
    def number_bytes(self) -> int:
        """Bytes of a number that is computed with."""
        return bytes_of_precision(self.precision)

    @property
    def fuses_casts(self) -> bool:
        """Whether compiled layers make what they multiply in eight bits again in the backward pass. With autocast it was measured."""
        return self.compiled and self.precision == "fp8" and self.casts and not self.recomputed

    @property
    def casts(self) -> bool:
        """Whether engine torch computes by autocast, with fp32 between the layers."""
        return self.autocast and not self.zero_stage and self.number_bytes == 2

    @property
    def shard_count(self) -> int:
        """Over how many processes weights or what belongs to them are shared out."""
        return self.processes if self.zero_stage else 1


def layer_activations(shape: Shape, tokens: int, low: int, cast: bool = False) -> int:
    """Bytes that one layer keeps of `tokens` tokens for its backward pass; low: bytes of a number in it.

    Two norms keep their input, the normalised input and their output, the input in fp32; attention its queries, keys, values and output;
    the feed-forward layer both projections, their activation and the product. cast: under autocast norms are in fp32, and each of the five
    matrices that follow one keeps a copy of its output as `low` (torch/aten/src/ATen/autocast_mode.cpp, cached_cast: weights alone are
    cast once for all).
    """
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    norms = (16 + 5 * low if cast else 2 * (4 + 2 * low)) * shape.hidden
    return tokens * (norms + low * (2 * width + 2 * kv + 4 * shape.intermediate))


def compiled_activations(shape: Shape, tokens: int, low: int, cast: bool = False, eight_bits: bool = False) -> int:
    """As `layer_activations`, of a layer that is compiled for a GPU: the stream before it, what attention's product adds to it, and what
    matrix products and attention read.

    All that is between them is fused and computed again in the backward pass (torch/_functorch/partitioners.py,
    min_cut_rematerialization_partition): norms in fp32, the feed-forward layer's activation. Measured on an H100: docs/memory.md.
    eight_bits: what products read after a norm or that activation is made again too, and not kept. Measured on an H200.
    """
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    stream = 4 if cast else low
    products = 3 * shape.hidden + 2 * width + 2 * kv + 3 * shape.intermediate
    if eight_bits:
        products -= 2 * shape.hidden + shape.intermediate
    return tokens * (stream * shape.hidden + low * products)


def selective_activations(shape: Shape, tokens: int, low: int, cast: bool = False, compiled: bool = False) -> int:
    """Bytes that a layer keeps under selective checkpointing: its input, and the results of its matrix products and of attention.

    compiled: without the last product's, which the backward pass does not read (torch/_functorch/partitioners.py).
    """
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    products = (1 if compiled else 2) * shape.hidden + 2 * width + 2 * kv + 2 * shape.intermediate
    return tokens * ((4 if cast else low) * shape.hidden + low * products)


def backward_activations(shape: Shape, how: Training, cast: bool = False) -> int:
    """Bytes of the activations of a micro-batch while a layer's backward pass runs; with recomputation those of the layer that is done
    again too.
    """
    return forward_activations(shape, how, cast) + recomputed_activations(shape, how, cast)


def last_norm_activations(shape: Shape, how: Training, cast: bool = False) -> int:
    """Bytes that the norm before the logits keeps."""
    low = how.number_bytes
    return (4 + (4 if cast else low) + low) * how.micro_batch * shape.context * shape.hidden


def forward_activations(shape: Shape, how: Training, cast: bool = False) -> int:
    """Bytes of the activations of a micro-batch when its forward pass is done."""
    tokens, low = how.micro_batch * shape.context, how.number_bytes
    stream = 4 if cast else low  # bytes of a number between the layers
    if not how.recomputed:
        if how.compiled:
            per_layer = compiled_activations(shape, tokens, low, cast, how.fuses_casts)
        else:
            per_layer = layer_activations(shape, tokens, low, cast)
    else:
        per_layer = stream * tokens * shape.hidden
        if how.selective:
            per_layer = selective_activations(shape, tokens, low, cast, how.compiled)
    return last_norm_activations(shape, how, cast) + shape.layers * per_layer


def recomputed_activations(shape: Shape, how: Training, cast: bool = False) -> int:
    """Bytes of the activations of the layer that is computed again when the logits are gone; 0 without recomputation.

    Under selective checkpointing on a GPU without those that were kept. A CPU's heap keeps their holes.
    """
    if not how.recomputed:
        return 0
    of_layer = compiled_activations if how.compiled else layer_activations
    tokens, low = how.micro_batch * shape.context, how.number_bytes
    whole = of_layer(shape, tokens, low, cast)
    if not (how.selective and how.cuda):
        return whole
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    return whole - tokens * low * (2 * width + 2 * kv + 2 * shape.intermediate)


def validation_logits(shape: Shape, how: Training) -> int:
    """Bytes of the logits while a micro-batch's loss is measured without a gradient (fused_cross_entropy.loss_by_row).

    As the model gives them, and of a piece of them a copy in fp32 and its softmax's logarithm.
    """
    tokens, low = how.micro_batch * shape.context, how.number_bytes
    rows = min(tokens, how.chunk or tokens)
    times = 1 if low == 4 else 2  # the softmax's logarithm, and of bf16 a copy in fp32
    derived_logits = 4 * times * rows * shape.vocabulary
    if not how.chunk:  # what a CPU takes at once is too small to count
        derived_logits = min(derived_logits, times * PIECE) if how.cuda else 0
    return low * rows * shape.vocabulary + derived_logits


def validation_activations(shape: Shape, how: Training, cast: bool = False) -> int:
    """Bytes of what is there at once of a layer without a gradient, at most: the first layer's input, its own, the stream between its
    two parts and what a norm made; and inside of it both projections of the feed-forward layer and their product, or queries, keys and
    values while queries are rotated, under autocast in fp32.
    """
    tokens, low = how.micro_batch * shape.context, how.number_bytes
    stream = 4 if cast else low
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    feed = 4 * stream * shape.hidden + 3 * low * shape.intermediate
    attention = 3 * stream * shape.hidden + low * (width + 2 * kv) + 3 * stream * width
    return tokens * max(feed, attention)


def logit_bytes(shape: Shape, how: Training) -> int:
    """Bytes of a micro-batch's logits, or of a chunk's, with what is made of them at once."""
    tokens = how.micro_batch * shape.context
    per_logit = how.bytes_per_logit or (4 if how.number_bytes == 4 else 6)
    if how.cuda and how.chunk and not how.bytes_per_logit:  # beside the gradient of the chunk before
        per_logit = 8
    total = per_logit * min(tokens, how.chunk or tokens) * shape.vocabulary
    if how.chunk:  # the gradient of the head, in fp32 until it is whole
        total += (4 + how.number_bytes) * shape.hidden * shape.vocabulary
    return total


def with_value_model(shape: Shape) -> Shape:
    """A language model with a model of values beside it (stages/align/value_model.py): its body once more, with a head of one number."""
    table = shape.vocabulary * shape.hidden
    # A head of its own that the language model has is left out.
    extra_parameters = shape.parameters - (shape.outside_parameters - table) + shape.hidden
    return replace(
        shape,
        parameters=shape.parameters + extra_parameters,
        layers=2 * shape.layers,
        tables=shape.outside_parameters + table,
        value_parameters=extra_parameters,
    )


def keys_and_values(shape: Shape, how: Training) -> int:
    """Bytes of keys and values of the answers that are drawn at once, when the last tokens are.

    2 · tokens · width of keys of each layer that keeps them, prompts among the tokens, and of one layer once more: torch.cat makes them
    one token longer (transformers, cache_utils.py, DynamicLayer.update). They are there without activations.
    """
    tokens = (shape.drawn_rows or how.micro_batch) * shape.context
    return 2 * how.number_bytes * tokens * (shape.kv or shape.width or shape.hidden) * (shape.cached_layers + 1)


def sampling_bytes(shape: Shape, how: Training) -> int:
    """Bytes of the logits of each answer's last token while the next is drawn: in fp32, and their distribution and its sums as float64

    (training/sampling.py, chosen).
    """
    return (4 + 2 * 8) * (shape.drawn_rows or how.micro_batch) * shape.vocabulary


def muon_bytes(shape: Shape, how: Training) -> int:
    """Bytes that an update of Muon's takes: matrices are made orthogonal a piece at a time, in five arrays of its size."""
    return 5 * 4 * min(AT_ONCE, shape.matrices // how.processes)


def shape_per_process(shape: Shape, degrees: Degrees) -> Shape:
    """What a process has of a model and of a window under pretrain.train.parallel; counted, not measured.

    Tensor parallelism gathers the logits and leaves experts whole. The first stage of a pipeline keeps the activations of as many
    micro-batches as there are stages, so together those of all layers; a stage at the end has a table of the vocabulary.
    """
    tensor, table = degrees.tensor, shape.vocabulary * shape.hidden
    stages = degrees.pipeline
    if not degrees:
        return shape
    inside = (shape.parameters - table - shape.experts) // tensor + shape.experts // degrees.expert
    return replace(
        shape,
        parameters=table // tensor + inside // stages,
        intermediate=shape.intermediate if shape.experts else -(-shape.intermediate // tensor),
        context=-(-shape.context // degrees.sequence),
        width=(shape.width or shape.hidden) // tensor,
        kv=(shape.kv or shape.width or shape.hidden) // tensor,
        tables=(table if stages > 1 else shape.outside_parameters) // tensor,
        stages=stages,
        matrices=shape.matrices // tensor // stages,
    )
