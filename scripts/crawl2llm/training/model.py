"""The model: a causal language model of transformers, built from the config with random weights, and its export."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as progress

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import checks, initial, mixture, mup, routers
from crawl2llm.training.config_names import OTHER_NAMES, SHAPE
from crawl2llm.training.engine_settings import EngineSettings

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import ResolvedModel

FOLDER = "model"  # of a result, and of a checkpoint
# Files beside the weights that a model made from another has from it; generation_config.json says where an answer may end.
COMPANIONS = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json",
)  # fmt: skip
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def build_config(
    settings: ResolvedModel, vocabulary: int, eos: int, auto_keys: Container[str] = ()
) -> PreTrainedConfig:
    """The transformers configuration of `pretrain.train.model`, with every dropout off.

    auto_keys: keys that were `auto`, which are left out where the architecture has no such thing; so is `context`, which is always the
    length of the training windows. Raises InputError for an architecture that is no causal language model, a key that it does not have, a
    dropout, or heads that do not divide.
    """
    kind, where = settings.type, "pretrain.train.model"
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        near = checks.did_you_mean(kind, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        raise InputError(f"{where}.type is {kind!r}, no causal language model of transformers{near}")
    defaults, fields = AutoConfig.for_model(kind), {}
    for key, name in (SHAPE | OTHER_NAMES.get(kind, {})).items():
        value = getattr(settings, key)
        if value is None:
            continue
        if hasattr(defaults, name):
            fields[name] = value
        elif key != "context" and key not in auto_keys:
            raise InputError(f"{where}.{key}: an architecture of type {kind!r} has no {name!r}; set it to auto")
    for name in settings.overrides:
        if not hasattr(defaults, name):
            hint = checks.did_you_mean(name, defaults.to_dict())
            raise InputError(f"{where}.overrides.{name}: the configuration of type {kind!r} has no such key{hint}")
        if is_dropout(name) and settings.overrides[name]:
            raise InputError(
                f"{where}.overrides.{name} is {settings.overrides[name]}, and training here is without dropout, so that a run which was "
                "killed goes on as if it had not been; leave it out"
            )
    checks.check_heads(settings)
    if kind == "mamba2" and "head_dim" not in settings.overrides:  # its heads share out the inner width
        expand = settings.overrides.get("expand", defaults.expand)
        fields["head_dim"] = expand * settings.hidden_size // settings.heads
        fields["n_groups"] = math.gcd(defaults.n_groups, settings.heads)
    elif (
        "head_dim" in defaults.to_dict()
        and not hasattr(defaults, "qk_rope_head_dim")
        and settings.hidden_size
        and settings.heads
    ):
        # Else it is 128 in a Qwen3 and 256 in a Gemma, whatever the shape.
        fields["head_dim"] = settings.hidden_size // settings.heads
    ids = {"vocab_size": vocabulary, "bos_token_id": eos, "eos_token_id": eos, "pad_token_id": None}
    config = AutoConfig.for_model(kind, **{**fields, **ids, **settings.overrides})
    for name, value in config.to_dict().items():
        if is_dropout(name) and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def is_dropout(name: str) -> bool:
    """Whether a key of a configuration of transformers makes training random: a share of what is dropped, or the width of a noise."""
    return "dropout" in name or name.endswith(("pdrop", "layerdrop", "jitter_noise"))


def count_parameters(config: PreTrainedConfig) -> int:
    """How many parameters a model of this configuration has; it allocates no memory for them."""
    return sum(parameter.numel() for parameter in initial.empty_model(config).parameters())


def tokenizer_file(manifest: Path) -> Path:
    """tokenizer.json of tokenize.train."""
    return Manifest.read(manifest).verify_files("tokenizer.json").file("tokenizer.json")


def vocabulary_of(manifest: Path) -> tuple[int, int]:
    """The vocabulary's size and the id of the end-of-text token of tokenize.train's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(
        Manifest.read(manifest).verify_files("").subfolder(""), local_files_only=True, trust_remote_code=False
    )
    if tokenizer.eos_token_id is None:
        raise InputError(f"{manifest}: the tokenizer beside it names no eos_token")
    return len(tokenizer), tokenizer.eos_token_id


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Parameters: all, without token and position embeddings, and those that a token is multiplied with (see flops_per_token).

    Of a mixture's experts a token is multiplied with those that are chosen for it.
    """
    tables = {id(m.weight): m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding)}
    total = sum(p.numel() for p in model.parameters())
    head = model.get_output_embeddings()  # type: ignore[operator]
    head_size = head.weight.numel() if head is not None else 0
    tied = head is not None and id(head.weight) in tables
    inside = total - sum(tables.values()) - (0 if tied else head_size)
    experts, idle = mixture.mixture_of(model.config), 0
    if experts:
        expert_parameters = sum(
            p.numel() for name, p in model.named_parameters() if mixture.is_of_experts(name, tuple(p.shape), experts)
        )
        idle = expert_parameters * (experts.number - experts.per_token) // experts.number
    return {"total": total, "non_embedding": inside, "multiplied": inside + head_size - idle}


def parameter_groups(model: nn.Module, settings: EngineSettings) -> list[dict[str, Any]]:
    """The optimizer's parameter groups, by `weight_decay`, `optimizer`, `muon_momentum` and `base_width` of a
    training.

    Matrices decay; biases, norms and embeddings do not (a tied head is an embedding). Under Muon the matrices inside the layers have
    `momentum`, `transposed` if they are [inputs, outputs], and `scale`: their learning rate as a multiple of the others'. A mixture's
    routers are such matrices. Its experts, which transformers holds in one array a layer, are AdamW's.
    """
    kind, wide, muon = mup.kind_by_parameter(model), mup.width_factor(settings), settings.optimizer == "muon"
    other_way, experts = mup.transposed_ids(model), mixture.mixture_of(model.config)

    def group_name(name: str, parameter: nn.Parameter) -> str:
        parameter_kind = kind(parameter)
        if parameter_kind in (mup.VECTOR, mup.EMBEDDING):
            return "kept"
        if not muon or parameter.ndim != 2 or parameter_kind != mup.INSIDE:
            return "decayed"
        if experts and mixture.is_of_experts(name, tuple(parameter.shape), experts):
            return "decayed"
        return "transposed" if id(parameter) in other_way else "turned"

    decay = settings.weight_decay
    group_by_name: dict[str, dict[str, Any]] = {
        "decayed": {"weight_decay": decay * wide, "scale": 1 / wide},
        "kept": {"weight_decay": 0.0, "scale": 1.0},
    }
    if muon:  # an orthogonal update is as long as its matrix's shape asks for, at any width
        scale = settings.muon_learning_rate / settings.learning_rate
        group_by_name["turned"] = {"weight_decay": decay, "scale": scale, "momentum": settings.muon_momentum}
        group_by_name["transposed"] = {**group_by_name["turned"], "transposed": True}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            group_by_name[group_name(name, parameter)].setdefault("params", []).append(parameter)
    return [group for group in group_by_name.values() if "params" in group]


def companion_files(tokenizer: Path) -> list[Path]:
    """The files beside a model's weights that AutoTokenizer reads. tokenizer: the manifest of tokenize.train."""
    listed = Manifest.read(tokenizer).verify_files("")
    names = set(listed.files)
    return [listed.file(name) for name in COMPANIONS if name in names]


def write_config(config: PreTrainedConfig, dtype: str, folder: Path) -> None:
    """Write config.json of a model whose weights are saved as `dtype`, without any weights, into a new folder."""
    saved_config = copy.deepcopy(config)
    saved_config.dtype = DTYPES[dtype]
    saved_config.save_pretrained(folder)


def export(
    weights: Mapping[str, torch.Tensor], config: PreTrainedConfig, dtype: str, extra_files: Iterable[Path], folder: Path
) -> list[Path]:
    """Write `folder` so that AutoModelForCausalLM and AutoTokenizer load it; returns its files.

    weights: name → fp32 tensor, each parameter once, and the routers' selection biases, which stay fp32. extra_files: more files for it.
    The folder is there whole or not at all.
    """
    model = initial.empty_model(config)
    biases = routers.selection_biases(model)
    values = {k: v if k in biases else v.to(DTYPES[dtype]) for k, v in weights.items()}
    model.load_state_dict(values, strict=False, assign=True)
    model.tie_weights()
    left = [name for name, value in routers.trained_values(model).items() if value.is_meta]
    if left:
        raise RuntimeError(f"no weights were gathered for {', '.join(left)}")
    model.config.use_cache = True
    if getattr(model, "generation_config", None) is not None:  # a reward model has none
        model.generation_config.use_cache = True
    model.config.dtype = DTYPES[dtype]
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    progress.disable_progress_bar()
    model.save_pretrained(partial)
    for path in partial.glob("*.safetensors"):  # written for the owner alone
        path.chmod((partial / "config.json").stat().st_mode)
    for path in extra_files:
        shutil.copyfile(path, partial / path.name)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())
