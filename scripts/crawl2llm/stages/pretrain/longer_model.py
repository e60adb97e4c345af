"""The model that a continued pre-training begins with, where that is not its parent: of a longer context, other RoPE, or more tokens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from transformers import AutoConfig, PreTrainedModel

from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain.settings import ContinueSettings
from crawl2llm.training import initial
from crawl2llm.training.architecture_match import ROPE
from crawl2llm.training.model_loading import context_of
from crawl2llm.training.published.folder import LENGTH_NAMES, link_or_copy, write_json
from crawl2llm.training.published.model_files import TOKENIZER
from crawl2llm.training.weight_files import names_in_files

TOKENIZER_CONFIG = "tokenizer_config.json"
KEPT = ("rope_theta", "partial_rotary_factor")  # of RoPE, the parent's where the settings do not name them
SCALED, ORIGINAL = (
    ("yarn", "longrope", "llama3"),
    "original_max_position_embeddings",
)  # types by the context that they stretch


def is_changed(source: Path, settings: ContinueSettings) -> bool:
    """Whether the model to begin with is another one than that in `source`."""
    return bool(settings.rope_parameters or settings.new_tokens) or is_longer(source, settings)


def is_longer(source: Path, settings: ContinueSettings) -> bool:
    """Whether windows are longer than the context of the model in `source`."""
    config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    return (settings.context or 0) > context_of(config)


def write_model(source: Path, settings: ContinueSettings, folder: Path, name: str) -> None:
    """Write the model to begin with, from that in `source`, into `folder`, which is there whole or not at all.

    Weights are linked; files with embeddings are written anew where tokens are added. Memory: such a file. name: of the model that is
    made. Raises InputError for a context or RoPE that the architecture does not have, and for a token that is there.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.suffix == ".safetensors":
            link_or_copy(path, partial / path.name)
        elif path.is_file():
            shutil.copyfile(path, partial / path.name)
    config = changed_config(source, settings, f"models.{name}")
    if settings.new_tokens:
        numbers = add_tokens(partial, settings.new_tokens, f"models.{name}.new_tokens")
        empty = initial.empty_model(config)
        config.vocab_size = max(config.vocab_size, max(numbers) + 1)
        widen_embeddings(partial, empty, numbers, config.vocab_size)
    config.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def changed_config(source: Path, settings: ContinueSettings, where: str) -> Any:
    """The parent's configuration with the context and RoPE of the settings."""
    config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    rope, context = getattr(config, ROPE, None) or {}, context_of(config)
    longer = (settings.context or 0) > context
    if not rope and (longer or settings.rope_parameters):
        key, value = ("context", settings.context) if longer else (ROPE, settings.rope_parameters)
        raise InputError(
            f"{where}.{key} is {value}, and the model, of type {config.model_type!r} and context {context}, has no rotary positions: leave "
            "it out"
        )
    changes: dict[str, Any] = {}
    if longer:
        changes[next(name for name in LENGTH_NAMES if hasattr(config, name))] = settings.context
    if settings.rope_parameters:
        kept = {key: rope[key] for key in KEPT if key in rope}
        if settings.rope_parameters.get("rope_type") in SCALED:  # transformers would take the longer context for it
            kept[ORIGINAL] = rope.get(ORIGINAL) or getattr(config, ORIGINAL, None) or context
        changes[ROPE] = {**kept, **settings.rope_parameters}
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False, **changes)
        initial.empty_model(config)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{where}.{ROPE} is {settings.rope_parameters}: transformers does not take it ({error})"
        ) from error
    return config


def add_tokens(folder: Path, new_tokens: Sequence[str], key: str) -> list[int]:
    """Add special tokens to the tokenizer in `folder`, whose other entries keep their numbers; those of the new ones.

    Raises InputError, which begins with the config's `key`, for one that it has already.
    """
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    if known := [token for token in new_tokens if tokenizer.token_to_id(token) is not None]:
        raise InputError(f"{key} has {known[0]!r}, which the tokenizer has already: leave it out")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in new_tokens])
    numbers = {token: tokenizer.get_vocab()[token] for token in new_tokens}
    tokenizer.save(str(folder / TOKENIZER))
    if (config_file := folder / TOKENIZER_CONFIG).is_file():
        config = json.loads(config_file.read_text(encoding="utf-8"))
        if listed := config.get("added_tokens_decoder"):
            flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
            listed |= {str(number): {"content": token, **flags} for token, number in numbers.items()}
            write_json(config_file, config)
    return list(numbers.values())


def widen_embeddings(folder: Path, empty: PreTrainedModel, numbers: Sequence[int], rows: int) -> None:
    """Give the embeddings in `folder` so many rows, those of new tokens with the mean of the rows before the first of these.

    empty: the model without values, as its files are. numbers: of the new tokens. A model may have more rows, which no token used.
    """
    tables = [table for table in (empty.get_input_embeddings(), empty.get_output_embeddings()) if table is not None]
    wanted = {id(value) for table in tables for value in table.parameters()}
    names = {name for name, value in empty.named_parameters(remove_duplicate=False) if id(value) in wanted}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as stored:
            known, metadata = set(stored.keys()), stored.metadata()
        stored_names = {part for name in names for part in names_in_files(empty, name, dict.fromkeys(known))} & known
        if not stored_names:
            continue
        tensors = load_file(file)
        for name in stored_names:
            tensors[name] = with_mean_rows(tensors[name], numbers, rows)
        file.unlink()  # a link, whose other name keeps what was there
        save_file(tensors, file, metadata)


def with_mean_rows(table: torch.Tensor, numbers: Sequence[int], rows: int) -> torch.Tensor:
    """A table, or a bias, of so many rows, with the mean of those before the first of `numbers` in the rows `numbers`."""
    mean = table[: min(numbers)].double().mean(0).to(table.dtype)
    out = torch.cat([table, mean.expand(rows - len(table), *table.shape[1:])]).contiguous()
    out[list(numbers)] = mean
    return out
