"""What pretrain.train.start_from names, by the small files there: what is refused before a run starts, and again by the training.

Nothing here needs torch. What a plan cannot know (keys that are `auto`, a tokenizer that is not trained yet, what the architecture's class
has by default, the tensors' shapes) is left to the training: start_from.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from crawl2llm.core import atomic_folder
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.settings import AUTO
from crawl2llm.training import schedule, sizes
from crawl2llm.training.config_names import OTHER_NAMES, SHAPE
from crawl2llm.training.pretraining_settings import ResolvedSettings, TrainModel, TrainSettings
from crawl2llm.training.quantized_weights import SECTION

KEY = "pretrain.train.start_from"
MODEL = "model"  # of a checkpoint: its configuration and tokenizer
# Keys of config.json that may differ: none changes what the weights compute for a token at a position that they know.
IGNORED_KEYS = {
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "initializer_range", "max_position_embeddings",
    "output_router_logits", "pad_token_id", "router_aux_loss_coef", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
# Names in a config.json, of types that have others there than transformers' classes share.
STORED_NAMES = {"gpt2": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}}


def check_start_from(train: TrainSettings, vocabulary: Any) -> None:
    """Raise InputError if a training cannot start from what its `start_from` names, as far as that is known before the run.

    train: pretrain.train, complete. vocabulary: tokenize.train.vocabulary, the most entries that a tokenizer gets, or `auto`.
    """
    if train.start_from is None:
        return
    path = Path(train.start_from)
    facts = facts_of(path)
    if facts is None and not any(path.glob("*.safetensors")):
        raise InputError(wrong_folder_text(path))
    if facts is not None:
        if (last := last_step(train)) is not None:
            check_steps_left(path, facts["step"], last)
        optimizer = facts.get("optimizer")  # checkpoints of earlier versions do not say
        if optimizer and optimizer != train.optimizer:
            raise InputError(
                f"{KEY} is {str(path)!r}, which has the state of the optimizer {optimizer}, and pretrain.train.optimizer is "
                f"{train.optimizer!r}: set it to {optimizer!r}, or start from that run's model"
            )
    if facts is None or (path / MODEL).is_dir():
        check_shape(train.model, vocabulary, path if facts is None else path / MODEL)


def facts_of(path: Path) -> dict[str, Any] | None:
    """What a checkpoint says of itself; None if `path` is a model's folder. InputError for no folder, and an incomplete checkpoint."""
    if not path.is_dir():
        raise InputError(f"{KEY} is {str(path)!r}: no folder of a model or of a checkpoint")
    if not (path / atomic_folder.CHECKPOINT).exists():
        return None
    try:
        facts = atomic_folder.read_sealed_facts(path, atomic_folder.CHECKPOINT)
        return {**facts, "step": int(facts["step"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{KEY} is {str(path)!r}: the checkpoint is not complete ({error})") from error


def wrong_folder_text(path: Path) -> str:
    """What to say of a folder that is neither a model's nor a checkpoint, with those in it that are."""
    inside = [path / MODEL] if any(path.glob(f"{MODEL}/*.safetensors")) else []
    inside += sorted(
        (facts_file.parent for facts_file in path.glob(f"step-*/{atomic_folder.CHECKPOINT}")), reverse=True
    )[:3]
    hint = f"; did you mean {' or '.join(map(str, inside))}?" if inside else ""
    return f"{KEY} is {str(path)!r}: a folder with neither *.safetensors nor {atomic_folder.CHECKPOINT}{hint}"


def start_step(train: TrainSettings) -> int:
    """The step of the checkpoint that pretrain.train.start_from names; 0 for a model, for none, and for what is refused."""
    try:
        facts = None if train.start_from is None else facts_of(Path(train.start_from))
    except InputError:
        return 0
    return int(facts["step"]) if facts else 0


def last_step(train: TrainSettings) -> int | None:
    """The number of a training's last step; None if the corpus decides it."""
    if train.steps is not None:
        return int(train.steps)
    if train.tokens is None or train.global_batch_tokens == AUTO or train.model.context == AUTO:
        return None
    known = cast(ResolvedSettings, train.model_copy(update={"epochs": None}))
    return schedule.make_plan(known, 2 + known.model.context).steps


def check_steps_left(path: Path | str, before: int, steps: int) -> None:
    """InputError if a run of `steps` steps would start from a checkpoint after its last."""
    if before >= steps:
        raise InputError(
            f"{KEY} is {str(path)!r}, after step {before:,}, and this run ends at step {steps:,}: set more pretrain.train.steps "
            "(or tokens, or epochs)"
        )


def check_shape(model: TrainModel, vocabulary: Any, folder: Path) -> None:
    """Raise InputError if config.json in `folder` is of another model than `pretrain.train.model` describes, as far as it has numbers."""
    config, kind = read_config(folder, KEY), model.type
    if config.get("model_type", kind) != kind:
        raise InputError(
            f"{setting_text(folder, KEY)}: model_type is {config['model_type']!r} in its config.json, and pretrain.train.model.type is "
            f"{kind!r}"
        )
    if isinstance(vocabulary, int):
        if model.size is not None:
            model = sizes.fill_shape(model, vocabulary)
        if (entries := config.get("vocab_size", 0)) > vocabulary:
            raise InputError(
                f"{setting_text(folder, KEY)}: its vocabulary has {entries:,} entries, and tokenize.train.vocabulary is {vocabulary:,}"
            )
    values = {name: getattr(model, key) for key, name in (SHAPE | OTHER_NAMES.get(kind, {})).items()}
    hidden, heads = model.hidden_size, model.heads
    if isinstance(hidden, int) and isinstance(heads, int) and kind != "mamba2" and "qk_rope_head_dim" not in config:
        values["head_dim"] = hidden // heads  # as model.build_config sets it, unless overrides do
    values |= {name: value for name, value in model.overrides.items() if isinstance(value, int | float | str)}
    expected = {
        STORED_NAMES.get(kind, {}).get(name, name): value for name, value in values.items() if value not in (None, AUTO)
    }
    check_config(expected, folder, KEY)


def setting_text(path: Path, key: str) -> str:
    """`key is 'path'`, of a model's folder; of the one in a checkpoint, the checkpoint."""
    inside = path.name == MODEL and (path.parent / atomic_folder.CHECKPOINT).exists()
    return f"{key} is {str(path.parent if inside else path)!r}"


def read_config(path: Path, key: str) -> dict[str, Any]:
    """config.json of a model's folder. InputError, with the config's `key` that names it, if there is none."""
    try:
        config = dict(json.loads((path / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{setting_text(path, key)}: no readable config.json there ({error})") from error
    if config.get(SECTION):
        raise InputError(
            f"{setting_text(path, key)}: its weights are quantized and cannot be trained; name the model it was made from"
        )
    return config


def check_config(expected: dict[str, Any], path: Path, key: str) -> None:
    """Raise InputError if config.json in `path` describes another function of the weights than `expected` does."""
    stored = read_config(path, key)
    for name, value in differing_keys(json.loads(json.dumps(expected)), stored):
        raise InputError(
            f"{setting_text(path, key)}: {name} is {stored[name]!r} in its config.json, and {value!r} in this run"
        )


def differing_keys(expected: dict[str, Any], stored: dict[str, Any]) -> list[tuple[str, Any]]:
    """The keys of `expected`, with their values, that a config.json `stored` has otherwise, except those that may differ."""
    return [
        (name, value)
        for name, value in expected.items()
        if name not in IGNORED_KEYS and "dropout" not in name and name in stored and stored[name] != value
    ]


def tokenizer_beside(start_from: str) -> Path:
    """Where the tokenizer of what `pretrain.train.start_from` names would be."""
    path = Path(start_from)
    return (path / MODEL if (path / atomic_folder.CHECKPOINT).exists() else path) / "tokenizer.json"


def check_tokenizer(own_file: Path, other_file: Path, key: str) -> None:
    """Raise InputError if a tokenizer lies beside the model that gives its tokens other numbers than this run's does."""
    if not other_file.exists():
        log.warning(
            "%s has no %s: that its tokens have the numbers of this run's cannot be checked",
            other_file.parent,
            other_file.name,
        )
        return
    try:
        own_tokenizer, other_tokenizer = (
            json.loads(file.read_text(encoding="utf-8")) for file in (own_file, other_file)
        )
        own_vocabulary, other_vocabulary = (
            tokenizer["model"].get("vocab") for tokenizer in (own_tokenizer, other_tokenizer)
        )
        own_added, other_added = added_tokens(own_tokenizer), added_tokens(other_tokenizer)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{key} is {str(other_file.parent)!r}: {other_file} cannot be read ({error})") from error
    if own_vocabulary != other_vocabulary:
        raise InputError(
            f"{setting_text(other_file.parent, key)}: its tokenizer has another vocabulary than this run's {own_file}, so its weights "
            "would read other tokens"
        )
    shared = own_added.keys() & other_added.keys()
    if different := sorted(number for number in shared if own_added[number] != other_added[number]):
        number = different[0]
        raise InputError(
            f"{setting_text(other_file.parent, key)}: token {number} is {other_added[number]!r} in its tokenizer, and "
            f"{own_added[number]!r} in this run's {own_file}"
        )


def added_tokens(tokenizer: dict[str, Any]) -> dict[int, str]:
    """Number → text of the tokens that a tokenizer.json has beside its vocabulary."""
    return {token["id"]: token["content"] for token in tokenizer.get("added_tokens") or []}
