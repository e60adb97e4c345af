"""What is refused of the settings of pretrain.train before anything runs: what cannot work together, whatever the corpus and the machine.

What depends on the corpus is refused in schedule.py and auto.py, what depends on a built model in model.py and parallel.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from crawl2llm.core.errors import InputError
from crawl2llm.training import offload, parallel, schedule
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.parameters import FAMILIES

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import TrainModel, TrainSettings

SECTION = "pretrain.train"
FP16, FP8 = "fp16", "fp8"

ASYNC_ENGINES = ("torch",)  # engines that copy their state, so that a checkpoint is written while training goes on

ADAPTER_ENGINES = ("torch",)  # engines that leave parameters as they are which want no gradient

# Types whose layers multiply by torch.nn.Linear, as a test found: those that are converted. GPT-2's are another class.
FP8_TYPES = ("gemma2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen3")

# Types whose logits a test found to be those of each document alone. Others may ignore positions, or carry state over borders (Mamba).
MASKED_TYPES = ("gemma2", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen3")


def check_settings(train: TrainSettings, processes: int) -> None:
    """Raises InputError for settings of pretrain.train, complete and with their placement, that no training can have.

    processes: of all nodes.
    """
    check_architecture(train.model.type)
    check_heads(train.model)
    check_optimizer(train)
    check_base_width(train)
    check_layer_settings(train)
    check_reduce_dtype(train)
    key, engine_settings = f"{SECTION}.{{}}".format, EngineSettings.of_pretraining(train)
    check_fp16(engine_settings, train.device, key)
    offload.check_offload(engine_settings, key)
    check_document_masking(train)
    check_early_stop(train)
    check_shard_over(train)
    check_async_checkpoints(train.async_checkpoints, train.engine)
    degrees = parallel.Degrees.of_settings(train)
    check_fp8(train, degrees)
    parallel.check_degrees(degrees, processes, train)
    check_autocast(train, degrees)
    schedule.check_schedule(train, processes // degrees.replica_size)


def check_autocast(train: TrainSettings, degrees: parallel.Degrees) -> None:
    """InputError for copies of weights (training/engines/weight_copies.py) that processes would have parts of."""
    if degrees and not train.zero_stage and not train.autocast and train.precision != "fp32":
        raise InputError(
            f"{SECTION}.autocast is false, and {SECTION}.parallel is set with {SECTION}.zero_stage 0: "
            "set autocast to true, or zero_stage to 1, 2 or 3"
        )


def check_architecture(kind: str) -> None:
    """InputError for a type that transformers does not know. One of FAMILIES it does: the list takes a second to import."""
    if kind in FAMILIES:
        return
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES as known
    except ImportError:  # the environment of data steps; the trainer looks again
        return
    if kind not in known:
        raise InputError(
            f"{SECTION}.model.type is {kind!r}, no architecture of transformers{did_you_mean(kind, known)}"
        )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The names that a person may have meant, as words for an error; "" where none is near."""
    close = difflib.get_close_matches(name, list(names), n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def check_shard_over(train: TrainSettings) -> None:
    """InputError if shard_over is node without engine torch, zero_stage 1 to 3, or with parallel."""
    if train.shard_over == "all":
        return
    degrees = parallel.Degrees.of_settings(train)
    for key, value, allowed in (
        ("engine", train.engine, train.engine == "torch"),
        ("zero_stage", train.zero_stage, train.zero_stage > 0),
        ("parallel", degrees, not degrees),
    ):
        if not allowed:
            raise InputError(
                f"{SECTION}.shard_over is node, and {SECTION}.{key} is {value}: with engine torch, zero_stage 1 to 3 and nothing under "
                f"parallel, processes of a node share out the weights; change {SECTION}.{key}, or set {SECTION}.shard_over to all"
            )


def check_heads(model: TrainModel) -> None:
    """InputError if heads do not divide, as far as numbers are set: a plan says so before any data are read."""
    where, (hidden, heads) = f"{SECTION}.model", (model.hidden_size, model.heads)
    kv_heads = model.kv_heads or heads
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads:
        raise InputError(f"{where}.heads is {heads}, not a multiple of {where}.kv_heads = {kv_heads}")
    if isinstance(heads, int) and isinstance(hidden, int) and hidden % heads and "head_dim" not in model.overrides:
        raise InputError(f"{where}.hidden_size is {hidden}, not a multiple of {where}.heads = {heads}")


def check_optimizer(settings: TrainSettings) -> None:
    """InputError for Muon under DeepSpeed's ZeRO, which hands the optimizer pieces of matrices without shape.

    DeepSpeed's own Muon puts orthogonal updates in the place of gradients, whose norm and clipping are then those of the updates.
    """
    if settings.optimizer == "muon" and settings.zero_stage and settings.engine == "deepspeed":
        raise InputError(
            f"{SECTION}.optimizer is muon, {SECTION}.engine deepspeed, and {SECTION}.zero_stage {settings.zero_stage}: DeepSpeed's ZeRO "
            f"cuts matrices into pieces without shape, and Muon needs whole ones; set {SECTION}.engine to torch, {SECTION}.zero_stage to "
            f"0, or {SECTION}.optimizer to adamw"
        )


def check_base_width(settings: TrainSettings) -> None:
    """InputError if learning rates cannot carry over from `base_width` (training/mup.py)."""
    if (base := settings.base_width) is None:
        return
    model, allowed = settings.model, ("llama", "qwen3", "gpt2")
    if model.type not in allowed:
        raise InputError(
            f"{SECTION}.base_width is {base}, and {SECTION}.model.type {model.type}: allowed are {', '.join(allowed)}"
        )
    if model.tie_embeddings:
        raise InputError(
            f"{SECTION}.base_width is {base}, and {SECTION}.model.tie_embeddings true: one matrix cannot move as an embedding and as a "
            f"head do, whose learning rates differ by width; set {SECTION}.model.tie_embeddings to false"
        )


def check_layer_settings(settings: TrainSettings) -> None:
    """InputError if layers that gather weights inside would be compiled, or selectively computed again: DeepSpeed's ZeRO 3."""
    if settings.selective_checkpointing and not settings.activation_checkpointing:
        raise InputError(
            f"{SECTION}.selective_checkpointing is true, and {SECTION}.activation_checkpointing false: it says which activations are kept "
            f"where others are computed again; set {SECTION}.activation_checkpointing to true"
        )
    if settings.engine != "deepspeed" or settings.zero_stage != 3:
        return
    for key in ("compile_layers", "selective_checkpointing"):
        if getattr(settings, key):
            raise InputError(
                f"{SECTION}.{key} is true with {SECTION}.engine deepspeed and {SECTION}.zero_stage 3, which gathers weights inside of the "
                f"layers: set {SECTION}.engine to torch, {SECTION}.zero_stage to 2 or less, or {SECTION}.{key} to false"
            )


def check_reduce_dtype(settings: TrainSettings) -> None:
    """InputError for a precision of sums that the engine or fp32 has anyway: the key would retrain for nothing."""
    if settings.reduce_dtype == "auto":
        return
    for key, needed in (("engine", ("deepspeed",)), ("precision", ("bf16", "fp16"))):
        if (value := getattr(settings, key)) not in needed:
            raise InputError(
                f"{SECTION}.reduce_dtype is {settings.reduce_dtype}, which {SECTION}.{key} {value} has anyway: set "
                f"{SECTION}.reduce_dtype to auto"
            )


def check_fp16(settings: EngineSettings, device: str, key: Callable[[str], str]) -> None:
    """InputError for fp16 with what its loss scaling does not reach, or was not tried with.

    device: of the settings. key: of the section, as the config names it.
    """
    if settings.precision != FP16:
        return
    setting_text = f"{key('precision')} is {FP16}"
    if settings.loss_chunk:
        raise InputError(
            f"{setting_text}, and {key('loss_chunk')} {settings.loss_chunk}, which makes the head's gradients before the loss is "
            f"scaled, so that small ones are lost: set {key('loss_chunk')} to 0, or {key('precision')} to bf16"
        )
    train = settings.pretraining
    if train and (shared_kinds := [kind for kind, size in train.parallel if size > 1]):
        raise InputError(
            f"{setting_text}, and {key('parallel')}.{shared_kinds[0]} {getattr(train.parallel, shared_kinds[0])}: loss scaling "
            f"is done if the data alone are shared out; set {key('parallel')}.{shared_kinds[0]} to 1, or {key('precision')} to bf16"
        )
    for name, none in (("adapter", ("none", "lora")), ("quantize_aware", ("none",))):
        if (value := getattr(settings, name)) not in none:
            raise InputError(
                f"{setting_text}, and {key(name)} {value}, which was not tried together: set {key('precision')} to bf16 or fp32"
            )
    if settings.engine != "deepspeed":
        return
    if device == "cpu":
        raise InputError(
            f"{setting_text}, {key('engine')} deepspeed, and {key('device')} cpu, on which DeepSpeed has no fp16: set {key('engine')} to "
            f"torch, or {key('precision')} to fp32"
        )
    if not settings.zero_stage:
        raise InputError(
            f"{setting_text}, {key('engine')} deepspeed, and {key('zero_stage')} 0, which adds gradients up in fp16: set "
            f"{key('zero_stage')} to 1, or {key('engine')} to torch"
        )
    if train and train.spike_sigma:
        raise InputError(
            f"{setting_text}, {key('engine')} deepspeed, and {key('spike_sigma')} {train.spike_sigma}: DeepSpeed would take a spike "
            f"that is left out for an overflow, and halve the loss scale; set {key('engine')} to torch, or {key('spike_sigma')} to null"
        )


def check_fp8(train: TrainSettings, degrees: parallel.Degrees) -> None:
    """InputError for products of eight bits with an engine or a type that has none, on a CPU, or with matrices that are shared out."""
    if train.precision != FP8:
        return
    for key, value, allowed in (
        ("engine", train.engine, ("torch",)),
        ("model.type", train.model.type, FP8_TYPES),
        ("device", train.device, ("auto", "cuda")),
    ):
        if value not in allowed:
            raise InputError(
                f"{SECTION}.precision is {FP8}, and {SECTION}.{key} {value}: set {SECTION}.{key} to {' or '.join(allowed)}, or "
                f"{SECTION}.precision to bf16"
            )
    if degrees:
        raise InputError(
            f"{SECTION}.precision is {FP8}, and {SECTION}.parallel is set, which was not tried together: set {SECTION}.precision to bf16, "
            f"or leave {SECTION}.parallel out"
        )


def check_document_masking(settings: TrainSettings) -> None:
    """InputError if pretrain.train asks for masks that the architecture is not known to keep."""
    kind = settings.model.type
    if settings.document_masking and kind not in MASKED_TYPES:
        raise InputError(
            f"{SECTION}.document_masking is true, and {SECTION}.model.type is {kind!r}: it was tried with {', '.join(MASKED_TYPES)}; "
            "take one of these, or set document_masking to false"
        )


def check_early_stop(settings: TrainSettings) -> None:
    """InputError if a run is to stop early and validates at its end alone."""
    if settings.early_stop and settings.validate_every == 0:
        raise InputError(
            f"{SECTION}.early_stop is {settings.early_stop}, and {SECTION}.validate_every is 0, at the end only: set "
            "validate_every to steps between validations, or to auto, or early_stop to null"
        )


def check_packing(packing: bool, kind: str, where: str) -> None:
    """InputError for a fine-tuning that packs pairs of an architecture, `kind`, that is not known to keep them apart."""
    if packing and kind not in MASKED_TYPES:
        raise InputError(
            f"{where}.packing is true, and the model's type is {kind!r}: it was tried with {', '.join(MASKED_TYPES)}; set {where}.packing "
            "to false"
        )


def check_adapter(settings: EngineSettings, where: str) -> None:
    """InputError for a fine-tuning of an adapter by an engine that takes all parameters for trained ones."""
    if settings.adapter != "none" and settings.engine not in ADAPTER_ENGINES:
        raise InputError(
            f"{where}.adapter is {settings.adapter}, and {where}.engine {settings.engine}, which trains whole models here: set "
            f"{where}.engine to {' or '.join(ADAPTER_ENGINES)}"
        )
    if settings.adapter == "qlora" and settings.zero_stage:
        raise InputError(
            f"{where}.adapter is qlora, and {where}.zero_stage {settings.zero_stage}: weights of four bits are not shared out; set "
            f"{where}.zero_stage to 0, or {where}.adapter to lora"
        )


def check_async_checkpoints(is_async: bool, engine: str, where: str = SECTION) -> None:
    """InputError if checkpoints are to be written beside the training by an engine that holds the step until they are.

    where: the section of the config, pre-training's or a fine-tuning's.
    """
    if is_async and engine not in ASYNC_ENGINES:
        raise InputError(
            f"{where}.async_checkpoints is true, and {where}.engine {engine}, whose checkpoints are written while training waits: set "
            f"{where}.async_checkpoints to false, or {where}.engine to {' or '.join(ASYNC_ENGINES)}"
        )
