"""The tokens that end an answer: that of the tokenizer, and further ones that a published model names in generation_config.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FILES = ("generation_config.json", "config.json")


def further_ends(model: Any, end: int) -> tuple[int, ...]:
    """The ids, but for `end`, that end an answer of a model of transformers: by its generation_config, or else its config."""
    places = (getattr(model, "generation_config", None), model.config)
    return _without(end, (getattr(place, "eos_token_id", None) for place in places))


def further_ends_in(folder: Path, end: int) -> tuple[int, ...]:
    """The same of a model's folder."""
    return _without(end, _values_in(folder))


def add_end(folder: Path, end: int) -> list[Path]:
    """Name `end` among the ends in a model's folder, where transformers stops; generation_config.json if it was written for that.

    Some models are published with the end of documents, and their answers end with that of a turn: see chat_layout.take_end_of_turn.
    """
    known = next((_as_list(value) for value in _values_in(folder) if value is not None), [])
    if end in known:
        return []
    file = folder / FILES[0]
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps({**content, "eos_token_id": [end, *known]}, indent=2) + "\n", encoding="utf-8")
    return [file]


def answer_text(tokenizer: Any, ids: Sequence[int], further: Sequence[int]) -> str:
    """What an answer says, without the token that ended it: one of `further_ends` need be no special token."""
    text_ids = ids[:-1] if ids and ids[-1] in further else ids
    return str(tokenizer.decode(text_ids, skip_special_tokens=True)).strip()


def _values_in(folder: Path) -> list[int | list[int] | None]:
    contents = (json.loads(file.read_text(encoding="utf-8")) for name in FILES if (file := folder / name).is_file())
    return [content.get("eos_token_id") for content in contents]


def _without(end: int, values: Iterable[int | list[int] | None]) -> tuple[int, ...]:
    ends = next((_as_list(value) for value in values if value is not None), [])
    return tuple(each for each in ends if each != end)


def _as_list(ends: int | list[int]) -> list[int]:
    return ends if isinstance(ends, list) else [ends]
