"""What `auto` stands for in `pretrain.train`: a shape, a batch and a budget that fit the corpus.

A function of the training tokens, the vocabulary and the keys that are set, never of the machine: it decides bytes.

Size and budget follow Hoffmann et al. 2022 (Chinchilla, https://arxiv.org/abs/2203.15556: about 20 tokens a parameter),
with up to 4 passes over the same tokens, which lose little compared with new ones (Muennighoff et al. 2023,
https://arxiv.org/abs/2305.16264). Below GPU tokens two more bounds hold, so that a run on two cores ends soon: COMPUTE and
COMPUTE_A_TOKEN. They hold for a model whose size is `auto`: who sets the size has chosen what it costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from crawl2llm.core.errors import InputError
from crawl2llm.core.settings import AUTO
from crawl2llm.training import sizes
from crawl2llm.training.measures import flops_per_token
from crawl2llm.training.parameters import count_model_parameters
from crawl2llm.training.pretraining_settings import ResolvedModel, ResolvedSettings, TrainModel, TrainSettings

R = TypeVar("R", ResolvedModel, ResolvedSettings)

TOKENS_A_PARAMETER = 20  # Chinchilla
PASSES = 4  # Muennighoff et al.: up to here repeated tokens are worth nearly as much as new ones
GPU_TOKENS = 250_000_000  # training tokens, 1 GB of text that passed every filter; from here on a GPU is expected
COMPUTE = 5e13  # floating-point operations: 10 to 20 minutes of two x86-64 cores at 40 to 80 GFLOP/s in fp32
COMPUTE_A_TOKEN = 1e7  # operations for each token of the corpus, so that a small corpus is done sooner still
SEQUENCES = 16  # least sequences of a global batch, so that two processes with a micro_batch of 8 share it
STEPS = 200  # a global batch grows only while there are this many steps
VALIDATIONS = 10  # over a run, or every VALIDATE_EVERY if that is more often
VALIDATE_EVERY = 500


class Row(NamedTuple):
    """What goes with a corpus of at least `tokens` training tokens; `batch` in tokens."""

    tokens: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    intermediate_size: int
    context: int
    batch: int
    learning_rate: float
    warmup: float
    validation_tokens: int


# Shapes: SmolLM-135M and -360M (their config.json) and TinyLlama (https://arxiv.org/abs/2401.02385) at the end; before
# them the same proportions, smaller. Learning rates from 125 million parameters on are GPT-3's for the nearest size
# (https://arxiv.org/abs/2005.14165, table 2.1); smaller models allow higher rates.
TABLE = (
    Row(0, 64, 2, 2, 2, 192, 256, 4096, 3e-3, 0.1, 20_000),
    Row(500_000, 96, 3, 3, 3, 256, 256, 4096, 3e-3, 0.1, 50_000),
    Row(3_000_000, 128, 4, 4, 4, 384, 256, 8192, 3e-3, 0.1, 50_000),
    Row(GPU_TOKENS, 256, 8, 4, 4, 704, 512, 65_536, 2e-3, 0.02, 500_000),
    Row(1_000_000_000, 512, 8, 8, 8, 1408, 1024, 131_072, 1e-3, 0.02, 1_000_000),
    Row(3_000_000_000, 576, 30, 9, 3, 1536, 2048, 524_288, 6e-4, 0.01, 2_000_000),
    Row(8_000_000_000, 960, 32, 15, 5, 2560, 2048, 524_288, 3e-4, 0.01, 2_000_000),
    Row(25_000_000_000, 2048, 22, 32, 4, 5632, 2048, 1_048_576, 2e-4, 0.01, 2_000_000),
)


def table_row(tokens: int) -> Row:
    """The row of a corpus of `tokens` training tokens."""
    return next(entry for entry in reversed(TABLE) if tokens >= entry.tokens)


def largest_power_of_two(value: float) -> int:
    """The largest power of two that is not above `value`; 1 at least."""
    return 1 << max(0, int(value).bit_length() - 1)


def parameter_totals(model: ResolvedModel, vocabulary: int) -> tuple[int, int]:
    """(all parameters, those inside the layers); of a type that training/parameters.py does not know about as many."""
    counts = count_model_parameters(model, vocabulary)
    return counts.total, counts.non_embedding


def training_flops_per_token(model: ResolvedModel, vocabulary: int) -> int:
    """Floating-point operations of training on one token; the output embedding is multiplied, tied or not."""
    counts = count_model_parameters(model, vocabulary)
    return flops_per_token(counts.multiplied, model.layers, counts.width, model.context)


def resolve_heads(model: TrainModel, row: Row) -> tuple[int, int]:
    """(hidden_size, heads) where one or both are `auto`: heads of an even size near the table's, as rotation needs.

    Raises InputError if no number of heads divides the hidden size that is set.
    """
    unit = model.kv_heads if isinstance(model.kv_heads, int) else 1
    hidden, number = model.hidden_size, model.heads
    size = row.hidden_size // row.heads
    if hidden == AUTO:
        heads = unit * max(1, round(row.heads / unit)) if number == AUTO else number
        even = row.hidden_size % (2 * heads) == 0
        return (row.hidden_size if even else 2 * heads * max(4, round(row.hidden_size / heads / 2))), heads
    if number == AUTO:
        fitting = [n for n in range(unit, hidden + 1, unit) if hidden % (2 * n) == 0]
        if not fitting:
            raise InputError(
                f"pretrain.train.model.heads is auto, and no number of heads divides hidden_size = {hidden} into heads of an "
                f"even size with kv_heads = {model.kv_heads}; make hidden_size a multiple of {2 * unit}, or set heads"
            )
        return hidden, min(fitting, key=lambda n: (abs(hidden / n - size), n))
    return hidden, number


def resolve_shape(model: TrainModel, tokens: int) -> ResolvedModel:
    """`pretrain.train.model` without `auto`, except `context`, which depends on the batch too."""
    row = table_row(tokens)
    hidden, heads = resolve_heads(model, row)
    layers, kv_heads, intermediate_size = model.layers, model.kv_heads, model.intermediate_size
    if layers == AUTO:
        layers = row.layers
    if kv_heads == AUTO:
        share = row.heads // row.kv_heads
        kv_heads = heads // share if heads % share == 0 else heads
    if intermediate_size == AUTO:
        intermediate_size = row.intermediate_size if hidden == row.hidden_size else sizes.feed_forward(hidden)
    return resolved_copy(
        ResolvedModel,
        model,
        hidden_size=hidden,
        heads=heads,
        layers=layers,
        kv_heads=kv_heads,
        intermediate_size=intermediate_size,
    )


def resolved_copy(kind: type[R], settings: TrainModel | TrainSettings, **values: Any) -> R:
    """The settings as an object of the class `kind`, with other values for some keys. A key without a value has none there."""
    copy = kind.model_construct(**{**settings.__dict__, **values})
    for name in copy.__dict__.keys() - settings.__dict__.keys():  # a placement key that is no option of the program
        del copy.__dict__[name]
    return copy


def resolve_context(tokens: int, batch: Any) -> int:
    """The context: the table's, no longer than the corpus, and where the batch is set, a divisor of it."""
    longest = min(table_row(tokens).context, largest_power_of_two(tokens - 1))
    if batch == AUTO:
        return max(8, longest)
    return next((n for n in range(min(longest, batch // 8), 7, -1) if batch % n == 0), 8)


def resolve(settings: TrainSettings, tokens: int, vocabulary: int) -> ResolvedSettings:
    """`settings` of pretrain.train with a number for every `auto`.

    tokens: of the training split; vocabulary: entries of the tokenizer. A key that is set stays as it is, and those
    that are `auto` are chosen to fit it; `model.count_parameters` fills the shape (training/sizes.py). Of `steps`, `tokens` and `epochs`,
    `epochs: auto` stands for `steps`, and for nothing if one of the others is set. Raises InputError if no heads divide the
    hidden size that is set, or no shape has about the size that is.
    """
    sized = settings.model.size is not None
    sized_model: TrainModel = sizes.fill_shape(settings.model, vocabulary) if sized else settings.model
    model = resolve_shape(sized_model, tokens)
    if sized_model.context == AUTO:
        model = model.model_copy(update={"context": resolve_context(tokens, settings.global_batch_tokens)})
    total, inside = parameter_totals(model, vocabulary)
    # A size that was set may be that of another row; its batch and learning rate then come from there.
    free = sized_model.hidden_size == AUTO and sized_model.layers == AUTO
    row = (
        table_row(tokens)
        if free
        else next((entry for entry in reversed(TABLE) if inside >= row_parameters(entry) / 2), TABLE[0])
    )

    budget = float(min(max(tokens, TOKENS_A_PARAMETER * total), PASSES * tokens))
    if free and tokens < GPU_TOKENS:
        budget = min(budget, min(COMPUTE, COMPUTE_A_TOKEN * tokens) / training_flops_per_token(model, vocabulary))
    batch, steps, epochs = settings.global_batch_tokens, settings.steps, settings.epochs
    if batch == AUTO:
        sequences = largest_power_of_two(min(row.batch, budget / STEPS) / model.context)
        batch = model.context * max(SEQUENCES, sequences)
    mean_share = mean_batch_share(settings.batch_ramp)
    if epochs == AUTO:
        epochs = None
        if steps is None and settings.tokens is None:
            steps = max(1, round(budget / batch / mean_share))
    chosen_by_row = {
        key: getattr(row, key)
        for key in ("learning_rate", "warmup", "validation_tokens")
        if getattr(settings, key) == AUTO
    }
    validate_every = settings.validate_every
    if validate_every == AUTO:
        trained = settings.tokens or (epochs or 0) * tokens
        validate_every = validation_interval(steps or trained / batch / mean_share)
    return resolved_copy(
        ResolvedSettings,
        settings,
        model=model,
        global_batch_tokens=batch,
        epochs=epochs,
        steps=steps,
        validate_every=validate_every,
        **chosen_by_row,
    )


def mean_batch_share(ramp: list[list[float]]) -> float:
    """The mean batch of all steps under a batch_ramp, as a share of the largest."""
    ends = [*(share for share, _ in ramp[1:]), 1.0]
    return sum((end - share) * part for (share, part), end in zip(ramp or [[0.0, 1.0]], ends, strict=True))


def validation_interval(steps: float) -> int:
    """Steps between two validations of a run of so many, where `validate_every` is `auto`."""
    return max(1, min(VALIDATE_EVERY, round(steps / VALIDATIONS)))


def row_parameters(row: Row) -> int:
    """The parameters inside the layers of a row's shape."""
    return parameter_totals(row_model(row), 0)[1]


def row_model(row: Row) -> ResolvedModel:
    """The shape of a row: of a Llama with one matrix for both embeddings."""
    return ResolvedModel.model_construct(**row._asdict(), tie_embeddings=True)


def resolved_values(settings: TrainSettings, resolved: ResolvedSettings) -> dict[str, Any]:
    """The keys of `settings` that were `auto`, dotted, with what `resolve` made of them. An engine's own `auto` (reduce_dtype) is none."""
    flat = {f"model.{key}": (value, getattr(resolved.model, key)) for key, value in settings.model}
    flat |= {key: (value, getattr(resolved, key)) for key, value in settings if key not in ("model", "epochs")}
    if settings.epochs == AUTO and settings.steps is None and settings.tokens is None:
        flat["steps"] = (AUTO, resolved.steps)
    return {key: value for key, (before, value) in flat.items() if before == AUTO != value}
