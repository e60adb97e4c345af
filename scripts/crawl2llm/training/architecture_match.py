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
from crawl2llm.training.init_checks import differing

ROPE = "rope_parameters"  # may differ where pretrain.train.model.overrides has it
MODEL = "pretrain.train.model"


def check_config(own: PreTrainedConfig, path: Path, key: str, chosen: Container[str] = ()) -> None:
    """Raise InputError where config.json in `path` describes another function of the weights than `own` does.

    key: of the config, which names the folder. chosen: the keys that pretrain.train.model.overrides has.
    """
    there, here = described(own, path, key), plain(own)
    # model_type first, which decides what else there is.
    for name, value in sorted(differing(here, there), key=lambda item: item[0] != "model_type"):
        if name == ROPE and name in chosen:
            continue
        said, wanted = difference(name, there[name], value), json.dumps(there[name])
        if name == ROPE:
            said += (
                f": set {MODEL}.overrides.{ROPE} to {wanted}, as the weights were trained with, or to others on purpose, as for a longer "
                "context: where it is set, any are allowed"
            )
        elif name == "vocab_size":
            said += ": the tokenizer has to be the one that its tokens were made with"
        else:
            keys = {new: old for old, new in (SHAPE | OTHER_NAMES.get(own.model_type, {})).items()} | {
                "model_type": "type"
            }
            said += f": set {MODEL}.{keys.get(name, f'overrides.{name}')} to {wanted}"
        raise InputError(f"{key} is {str(path)!r}: {said}")


def described(own: PreTrainedConfig, path: Path, key: str) -> dict[str, Any]:
    """config.json in `path`, with its rope_parameters as transformers has them here: files of before its version 5 have rope_theta
    and rope_scaling in their place. InputError where it cannot be read."""
    try:
        found: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if found.get("model_type") == own.model_type and getattr(own, ROPE, None) is not None:
            found[ROPE] = plain(type(own).from_dict(dict(found)))[ROPE]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{key} is {str(path)!r}: no readable config.json there ({error})") from error
    return found


def plain(config: PreTrainedConfig) -> dict[str, Any]:
    """A configuration as a file would have it; rope_parameters without `type`, an older name of their `rope_type`."""
    found: dict[str, Any] = json.loads(json.dumps(config.to_dict()))
    if isinstance(rope := found.get(ROPE), dict):
        found[ROPE] = {name: value for name, value in rope.items() if name != "type"}
    return found


def difference(name: str, there: Any, here: Any) -> str:
    """In words, two values of a key; of sections what differs in them."""
    if not isinstance(there, dict) or not isinstance(here, dict):
        return f"{name} is {there!r} in its config.json, and {here!r} in this run"
    keys = [key for key in sorted(there.keys() | here.keys()) if there.get(key) != here.get(key)]
    return "; ".join(difference(f"{name}.{key}", there.get(key), here.get(key)) for key in keys)


def rope_differs(own: PreTrainedConfig, path: Path) -> str:
    """How the rope_parameters of config.json in `path` differ from those of `own`, in words; "" where they do not."""
    here = plain(own).get(ROPE)
    there = described(own, path, "start_from").get(ROPE) if path.is_dir() else None
    return difference(ROPE, there, here) if there and there != here else ""
