"""Whether the config.json beside some weights describes the same function of them as a run's model, and what of it may differ.

Rotary position embeddings (RoPE) have no weights. So a branch may turn by other angles, as a longer context needs (position interpolation,
arXiv:2306.15595; YaRN, arXiv:2309.00071; a larger base, arXiv:2308.12950), but not because nobody thought of them: it has to say which.
"""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training.config_names import OTHER_NAMES, SHAPE
from crawl2llm.training.init_checks import differing_keys

ROPE = "rope_parameters"  # may differ where pretrain.train.model.overrides has it
MODEL = "pretrain.train.model"


def check_config(config: PreTrainedConfig, path: Path, key: str, override_keys: Container[str] = ()) -> None:
    """Raise InputError if config.json in `path` describes another function of the weights than `config` does.

    key: of the config, which names the folder. override_keys: the keys that pretrain.train.model.overrides has.
    """
    stored, expected = read_config(config, path, key), config_as_json(config)
    # model_type first, which decides what else there is.
    for name, value in sorted(differing_keys(expected, stored), key=lambda item: item[0] != "model_type"):
        if name == ROPE and name in override_keys:
            continue
        message, stored_json = difference_text(name, stored[name], value), json.dumps(stored[name])
        if name == ROPE:
            message += (
                f": set {MODEL}.overrides.{ROPE} to {stored_json}, as the weights were trained with, or to others on purpose, as for a "
                "longer context: where it is set, any are allowed"
            )
        elif name == "vocab_size":
            message += ": the tokenizer has to be the one that its tokens were made with"
        else:
            keys = {new: old for old, new in (SHAPE | OTHER_NAMES.get(config.model_type, {})).items()} | {
                "model_type": "type"
            }
            message += f": set {MODEL}.{keys.get(name, f'overrides.{name}')} to {stored_json}"
        raise InputError(f"{key} is {str(path)!r}: {message}")


def read_config(config: PreTrainedConfig, path: Path, key: str) -> dict[str, Any]:
    """config.json in `path`, with its rope_parameters as transformers has them here: files of before its version 5 have rope_theta
    and rope_scaling in their place. InputError if it cannot be read."""
    try:
        stored: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if stored.get("model_type") == config.model_type and getattr(config, ROPE, None) is not None:
            stored[ROPE] = config_as_json(type(config).from_dict(dict(stored)))[ROPE]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{key} is {str(path)!r}: no readable config.json there ({error})") from error
    return stored


def config_as_json(config: PreTrainedConfig) -> dict[str, Any]:
    """A configuration as a file would have it; rope_parameters without `type`, an older name of their `rope_type`."""
    fields: dict[str, Any] = json.loads(json.dumps(config.to_dict()))
    if isinstance(rope := fields.get(ROPE), dict):
        fields[ROPE] = {name: value for name, value in rope.items() if name != "type"}
    return fields


def difference_text(name: str, stored: Any, expected: Any) -> str:
    """In words, two values of a key; of sections what differs in them."""
    if not isinstance(stored, dict) or not isinstance(expected, dict):
        return f"{name} is {stored!r} in its config.json, and {expected!r} in this run"
    keys = [key for key in sorted(stored.keys() | expected.keys()) if stored.get(key) != expected.get(key)]
    return "; ".join(difference_text(f"{name}.{key}", stored.get(key), expected.get(key)) for key in keys)


def rope_difference(config: PreTrainedConfig, path: Path) -> str:
    """How the rope_parameters of config.json in `path` differ from those of `config`, in words; "" where they do not."""
    expected = config_as_json(config).get(ROPE)
    stored = read_config(config, path, "start_from").get(ROPE) if path.is_dir() else None
    return difference_text(ROPE, stored, expected) if stored and stored != expected else ""
