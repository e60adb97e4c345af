"""The settings of the stage compress."""

from typing import Annotated, Literal

from crawl2llm.core.setting_types import (
    THREADS,
    BatchSize,
    Device,
    Precision,
    Seed,
    Share,
    Threads,
)
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, section, setting
from crawl2llm.training.shared_settings import TextTrainingSettings


class PruneSettings(TextTrainingSettings):
    """Takes weights, or whole heads, neurons and layers, out of a model, and trains it on by the engines of pretrain.train."""

    method: Literal["magnitude", "2:4", "structured"] = setting(
        "structured",
        "`magnitude`: the smallest weights of each linear layer become zero (arXiv:1506.02626). `2:4`: two of "
        "every four weights in a row do, which sparse tensor cores of GPUs multiply faster (arXiv:2104.08378). "
        "`structured`: whole layers, heads and neurons go, and the model is smaller.",
        source="arXiv:2407.14679, arXiv:2403.03853",
    )
    sparsity: Number = setting(
        0.5, "Of `magnitude`; the share of a linear layer's weights that becomes zero.", gt=0, lt=1
    )
    layers: Number = setting(
        1,
        "Of `structured`; the share of the decoder layers that stays, at least one: those whose output differs "
        "most from their input.",
        source="block influence, arXiv:2403.03853, equation 1",
        gt=0,
        le=1,
    )
    heads: Number = setting(
        1,
        "Of `structured`; the share of each layer's attention heads that stays, those with the longest outputs; "
        "heads with common keys and values together.",
        source="arXiv:2407.14679, section 2.2",
        gt=0,
        le=1,
    )
    neurons: Number = setting(
        0.5,
        "Of `structured`; the share of each MLP's neurons that stays, those with the largest activations.",
        source="arXiv:2407.14679, section 2.2",
        gt=0,
        le=1,
    )
    calibration_tokens: int = setting(
        65536,
        "Of `structured`; training tokens, as windows of the model's context, on which importance is measured.",
        source="Minitron takes 1,024 sequences",
        ge=1,
        le=1000000000,
    )
    retrain_tokens: int = setting(
        0,
        "Training tokens that the pruned model is trained on, in whole steps; 0 trains nothing.",
        ge=0,
        le=1000000000000000,
    )


class DistilSettings(TextTrainingSettings):
    """Trains a small model by the probabilities that a larger one gives each next token."""

    teacher: NonEmpty = setting("base", "A model of the same tokenizer.")
    divergence: Literal["forward", "reverse"] = setting(
        "forward",
        "Kullback-Leibler: `forward` covers all that the teacher holds likely, `reverse` leaves out what the student "
        "cannot follow.",
        source="arXiv:2407.14679; arXiv:2306.08543",
    )
    temperature: Number = setting(
        1,
        "Divides the logits of both; the divergence counts its square times.",
        source="arXiv:1503.02531",
        gt=0,
        le=100,
    )
    text_share: Share = setting(0, "Weight of the text's cross-entropy; the divergence has the rest.")
    top_k: int = setting(
        0, "0: the teacher runs beside. Else so many tokens of what compress.teach wrote.", ge=0, le=65536
    )
    tokens: int = setting(10000000, "Training tokens, in whole steps.", ge=1, le=1000000000000000)


class TeachSettings(Settings):
    """Writes a teacher's likeliest next tokens, for students with `top_k`."""

    top_k: int = setting(64, "Tokens at each position.", ge=1, le=65536)
    temperature: Number = setting(1, "That of the students.", gt=0, le=100)
    tokens: int = setting(0, "Training tokens, in the students' order; 0: all, once.", ge=0, le=1000000000000000)
    seed: Seed = setting(0, "That of the students, unless `tokens` is 0.")
    precision: Precision = setting("fp32", "Arithmetic.")
    batch_size: BatchSize = setting(8, "Windows at once.", placement=True)
    threads: Threads = THREADS
    device: Device = setting("auto", "auto takes CUDA if there is any.", placement=True)


class MergeSettings(Settings):
    """Averages the weights of models of one shape, or of the checkpoints of one training; nothing is trained."""

    method: Literal["average", "checkpoints", "slerp", "task_arithmetic", "ties"] = setting(
        "average",
        "`average`: the mean (model soups). `checkpoints`: that of the last checkpoints of the training of `from`, and `from`. "
        "`slerp`: a point on the arc between two models. `task_arithmetic`: the differences from `over` are added to it "
        "(arXiv:2212.04089). `ties`: the largest of these, by the sign that weighs more (arXiv:2306.01708). As mergekit computes them.",
        source="arXiv:2203.05482",
    )
    with_: list[NonEmpty] = setting(
        [],
        "The models beside `from`, one for `slerp`, none for `checkpoints`. The result has the tokenizer and the type of `from`.",
        unique=True,
        alias="with",
    )
    over: NonEmpty | None = setting(
        None, "Of `task_arithmetic` and `ties`: the model that `from` and `with` are all made from."
    )
    weights: list[Number] | None = setting(
        None,
        "Weights of `from` and of each of `with`; null: all are 1. `average` divides them by their sum.",
        min_length=2,
    )
    t: Number = setting(0.5, "Of `slerp`: how far from `from` to the other model.", ge=0, le=1)
    density: Number = setting(
        0.2,
        "Of `ties`: share of a tensor's differences that count, the largest.",
        source="arXiv:2306.01708, section 5",
        gt=0,
        le=1,
    )
    every: int = setting(
        100,
        "Of `checkpoints`: steps between them; `keep_every` of the training must be this or a divisor of it.",
        ge=1,
        le=1000000000,
    )
    last: int = setting(5, "Of `checkpoints`: how many, the last model among them.", ge=2, le=10000)
    weighting: Literal["uniform", "sqrt", "cosine", "ema"] = setting(
        "uniform",
        "Of `checkpoints`: `uniform`, `sqrt` and `cosine` as if the learning rate had fallen to 0 over them, linearly, as 1 − √ or as a "
        "cosine (WSM); `ema`: an exponential moving average.",
        source="arXiv:2507.17634",
    )
    ema_decay: Number = setting(0.8, "Of `ema`: what of the average remains at each checkpoint.", gt=0, lt=1)


class QuantizeSettings(Settings):
    """Stores the weights of a model's linear layers in eight or four bits; nothing is trained."""

    method: Literal["int8", "nf4", "int4", "gptq", "awq"] = setting(
        "int8",
        "`int8`: eight bits with a scale for each row, and activations in eight bits as they come (LLM.int8(), "
        "arXiv:2208.07339). `nf4`: four bits of which each value is as likely under a normal distribution, with "
        "a scale for each 64 weights (QLoRA, arXiv:2305.14314, section 3). Both by bitsandbytes. `int4`: four "
        "bits, each weight rounded to the nearest of 16 even steps; needs no library. `gptq`: four bits; "
        "columns are rounded one after another, and the columns that are left are changed to correct the error "
        "on training text (arXiv:2210.17323). `awq`: four bits; channels with large activations are scaled up "
        "first, so that rounding hurts them less (arXiv:2306.00978). gptq and awq need `make quantize-tools`, "
        "once.",
    )
    group_size: Literal[32, 64, 128] = setting(
        128,
        "Of `int4`, `gptq` and `awq`: weights of a row with a common scale. Layers whose inputs are no multiple "
        "of it are not quantized.",
        unless_default=True,
    )
    calibration_tokens: int = setting(
        65536,
        "Of `gptq` and `awq`: training tokens, as windows of the model's context, whose activations are measured.",
        source="GPTQ takes 128 windows of 2,048",
        ge=1,
        le=1000000000,
        unless_default=True,
    )
    seed: Seed = setting(0, "Of `gptq` and `awq`: seed of the choice of the calibration windows.", unless_default=True)
    threads: Threads = setting(
        2, "Of `gptq` and `awq`: CPU threads; they decide the last digits of sums.", unless_default=True
    )
    keep: list[NonEmpty] = setting(
        [],
        "Regular expressions; linear layers whose name one of them is found in are not quantized, as in "
        "`down_proj$`. The output layer, embeddings and norms never are.",
        unique=True,
    )
    outlier_threshold: Number = setting(
        0,
        "Of `int8`: columns with an activation of this size or more are computed without rounding. 0: none are. "
        "LLM.int8() takes 6, for models of 6.7 billion parameters or more, where single columns become that "
        "large.",
        source="arXiv:2208.07339, section 4",
        ge=0,
        le=1000,
    )
    double_quantization: bool = setting(
        False,
        "Of `nf4`: the scales are quantized too, which saves 0.37 bits a weight.",
        source="arXiv:2305.14314, section 3",
    )
    rest: Literal["same", "bf16"] = setting(
        "bf16", "Type in which the weights that are not quantized are stored: `bf16`, or `same` as in the model before."
    )


class ExportSettings(Settings):
    """Writes a model as files to give away, with a card that tells how it came about. Of each entry of `models` whose step it
    is.
    """

    types: list[Literal["safetensors", "f32", "f16", "q8_0", "q4_k_m"]] = setting(
        ["safetensors"],
        "`safetensors`: a folder as transformers loads it. The others are GGUF files for llama.cpp, of 32, 16, "
        "about 8.5 and about 5 bits a weight; they need `make gguf-tools`, once, and are compared with "
        "transformers on held-out text.",
        min_length=1,
        unique=True,
    )
    licence: str | None = setting(
        None,
        "The model's licence, as the Hugging Face Hub calls it; null is `unknown`. Licences of sources are in "
        "ingest.extract.sources.",
        pattern="^[a-z0-9][a-z0-9.-]*$",
        form="an identifier of the Hugging Face Hub, such as apache-2.0, cc-by-4.0 or other",
    )
    languages: list[Annotated[str, Allowed(pattern="^[a-z]{2,3}$", form="a code of ISO 639, such as en")]] | None = (
        setting(
            None,
            "The languages of the model on its card, as ISO 639 codes; null takes those that language.select keeps, "
            "and none without that filter.",
            unique=True,
        )
    )
    base_model: str | None = setting(
        None,
        "The name on the Hugging Face Hub of the model that pretrain.train.start_from is a copy of; null where "
        "there is none.",
        pattern="^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        form="owner/name, as the Hugging Face Hub calls it",
    )
    max_tokens: int = setting(
        20000,
        "Held-out tokens, whole documents chosen by hash as in evaluate.model, that bits per byte of each GGUF "
        "file is measured on.",
        ge=100,
        le=100000000,
    )
    compared_tokens: int = setting(
        1024, "Positions of these whose logits by llama.cpp are compared with those by transformers.", ge=1, le=1000000
    )
    max_difference: Number = setting(
        0.02,
        "Largest mean difference of a logit by llama.cpp from that by transformers in f32 and f16 files; more "
        "fails the task: the file is not the model. Quantized files differ by what they lose.",
        gt=0,
        le=100,
    )
    seed: Seed = setting(0, "Seed of the choice of held-out documents.")
    threads: Threads = THREADS


class CompressSettings(Settings):
    """Models that are smaller than the one that they are made from, or averages of several, and files to give away."""

    prune: PruneSettings = section()
    teach: TeachSettings = section()
    distil: DistilSettings = section()
    merge: MergeSettings = section()
    quantize: QuantizeSettings = section()
    export: ExportSettings = section()
