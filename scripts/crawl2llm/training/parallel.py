"""The places of the processes of a training: which of them hold the same weights, and which read the same data.

processes = data × tensor × pipeline × sequence. `data` is what the others leave; processes of the same place in it read the same windows.
Experts are shared out over the processes of data and sequence, so `expert` takes no process of its own. Ranks count tensor first, then
sequence, data and pipeline, as Megatron-LM orders them (https://arxiv.org/abs/2104.04473): those that exchange most are neighbours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.mixture import mixture_of

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import TrainSettings

SECTION = "pretrain.train.parallel"
KINDS = ("tensor", "pipeline", "sequence", "expert")
# Tried against a whole model by tests/unit/training/test_parallel.py. Others may hold more than attention over all that is before.
PIPELINE_TYPES = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "phi3")
EXPERT_TYPES = ("mixtral", "olmoe")
TENSOR_TYPES = (*PIPELINE_TYPES, *EXPERT_TYPES)
SEQUENCE_TYPES = (*TENSOR_TYPES, "gpt2")
# Keys of pretrain.train that some of these do not go with, where they are set, and why.
CONFLICTS = {
    "document_masking": (("sequence", "pipeline"), "attention is over whole windows there, whose positions begin once"),
    "batch_ramp": (("pipeline",), "the schedule 1F1B needs as many micro-batches as stages in every step"),
    "loss_chunk": (("tensor", "pipeline"), "it needs the head and its input whole in each process"),
    "compile_layers": (KINDS, "layers are compiled where each process has them whole"),
}


@dataclass(frozen=True)
class Degrees:
    """`pretrain.train.parallel`: over how many processes layers, depth, sequences and experts are cut; 1 leaves them whole."""

    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1
    expert: int = 1

    @staticmethod
    def of_settings(train: TrainSettings) -> Degrees:
        """By a section `pretrain.train` with its placement."""
        return Degrees(**dict(train.parallel))

    @property
    def replica_size(self) -> int:
        """Processes that work on the same windows."""
        return self.tensor * self.pipeline * self.sequence

    @property
    def loss_copies(self) -> int:
        """Processes that know the same loss: those of a sequence have its parts."""
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        return ", ".join(f"{kind} {size}" for kind, size in asdict(self).items() if size > 1)

    def __bool__(self) -> bool:
        return any(size > 1 for size in asdict(self).values())


@dataclass(frozen=True)
class Place:
    """That of one process."""

    rank: int
    processes: int
    degrees: Degrees

    @property
    def data_processes(self) -> int:
        """How many processes read different windows."""
        return self.processes // self.degrees.replica_size

    @property
    def data_rank(self) -> int:
        """Which of these parts of the data this process reads."""
        return self.rank // (self.degrees.tensor * self.degrees.sequence) % self.data_processes


def check_degrees(degrees: Degrees, processes: int, settings: TrainSettings) -> None:
    """InputError if `processes`, of all nodes, or the settings of pretrain.train do not allow these degrees."""
    if not degrees:
        return
    if settings.engine != "torch":
        raise InputError(
            f"{SECTION} is {degrees}, and pretrain.train.engine is deepspeed, which shares out by ZeRO alone here: set "
            "pretrain.train.engine to torch, or these keys to 1"
        )
    if processes % degrees.replica_size:
        raise InputError(
            f"{SECTION} is {degrees}: {degrees.replica_size} processes work on the same windows, and {processes} "
            f"(pretrain.train.processes × nodes) is not a multiple of {degrees.replica_size}"
        )
    shared = processes // degrees.loss_copies
    if shared % degrees.expert:
        raise InputError(
            f"{SECTION}.expert is {degrees.expert}: experts are shared out over the processes of data and sequence, which are {shared} "
            f"here; it must divide {shared}"
        )
    for key, (kinds, why) in CONFLICTS.items():
        value = getattr(settings, key)
        if value and (kind := next((kind for kind in kinds if getattr(degrees, kind) > 1), None)):
            raise InputError(
                f"{SECTION}.{kind} is {getattr(degrees, kind)}, and pretrain.train.{key} is {value}: {why}; set {SECTION}.{kind} "
                f"to 1, or pretrain.train.{key} to its default"
            )
    if settings.optimizer == "muon" and degrees.tensor > 1 and settings.zero_stage:
        raise InputError(
            f"{SECTION}.tensor is {degrees.tensor}, pretrain.train.zero_stage {settings.zero_stage}, and pretrain.train.optimizer muon, "
            f"which puts matrices together that are cut once, not twice: set {SECTION}.tensor to 1, pretrain.train.zero_stage to 0, or "
            "pretrain.train.optimizer to adamw"
        )
    if degrees.expert > 1 and settings.zero_stage:
        raise InputError(
            f"{SECTION}.expert is {degrees.expert}, and pretrain.train.zero_stage is {settings.zero_stage}: experts are shared out "
            "where nothing else is; set pretrain.train.zero_stage to 0"
        )


def check_model(degrees: Degrees, config: Any, context: int, accumulation: int) -> None:
    """InputError if a model of this configuration of transformers cannot be cut so.

    context: tokens of a training window; accumulation: micro-batches of a process in a step.
    """
    if not degrees:
        return
    kind, experts = config.model_type, mixture_of(config)

    def refusal(key: str, why: str) -> InputError:
        return InputError(f"{SECTION}.{key} is {getattr(degrees, key)}: {why}; set it to 1")

    heads = getattr(config, "num_attention_heads", 0)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    cut = degrees.tensor * degrees.sequence
    if degrees.tensor > 1 and kind not in TENSOR_TYPES:
        raise refusal(
            "tensor", f"matrices are cut by transformers' plans in types {', '.join(TENSOR_TYPES)}, and not in {kind!r}"
        )
    if degrees.sequence > 1 and kind not in SEQUENCE_TYPES:
        raise refusal(
            "sequence",
            f"heads are exchanged for parts of a sequence in types {', '.join(SEQUENCE_TYPES)}, and not in {kind!r}",
        )
    if degrees.sequence > 1 and (getattr(config, "sliding_window", None) or context) < context:
        raise refusal("sequence", f"attention over a sliding window of {config.sliding_window} tokens is not exchanged")
    if cut > 1 and (heads % cut or kv_heads % cut):
        which = " × ".join(f"{SECTION}.{key}" for key in ("tensor", "sequence") if getattr(degrees, key) > 1)
        raise InputError(
            f"{which} is {cut}, which must divide pretrain.train.model.heads = {heads} and kv_heads = {kv_heads}"
        )
    if context % degrees.sequence:
        raise refusal("sequence", f"it does not divide pretrain.train.model.context = {context}")
    if degrees.pipeline > 1:
        if experts and experts.weight is not None:
            raise refusal(
                "pipeline",
                f"the loss of the routers of type {kind!r} is made of all layers at once, which no stage has",
            )
        if kind not in PIPELINE_TYPES:
            raise refusal("pipeline", f"stages are cut from types {', '.join(PIPELINE_TYPES)}, and not from {kind!r}")
        if config.num_hidden_layers < degrees.pipeline:
            raise refusal("pipeline", f"there are only {config.num_hidden_layers} layers (pretrain.train.model.layers)")
        if accumulation < degrees.pipeline:
            raise InputError(
                f"{SECTION}.pipeline is {degrees.pipeline}, and a step has {accumulation} micro-batches for each process: the schedule "
                f"1F1B needs {degrees.pipeline} at least; lower pretrain.train.micro_batch, or raise pretrain.train.global_batch_tokens"
            )
    if degrees.expert > 1:
        if kind not in EXPERT_TYPES or experts is None:
            raise refusal("expert", f"experts are shared out in types {', '.join(EXPERT_TYPES)}, and not in {kind!r}")
        if experts.number % degrees.expert:
            raise refusal("expert", f"it does not divide the {experts.number} experts")
