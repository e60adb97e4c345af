"""The folder of a published model as a run's own models have one: safetensors, config.json, tokenizer.json, chat template."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import xxhash
import yaml

from crawl2llm.core import content_hash
from crawl2llm.training.published import gguf_architectures, gguf_tokenizer, gguf_weights, hub_folders, weight_names
from crawl2llm.training.published.gguf_file import read_header
from crawl2llm.training.published.model_files import (
    CONFIG,
    INDEX,
    PAPERS,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    is_gguf,
    read_json,
    safetensors_entries,
    template_in_config,
    weight_files,
)

GENERATION = "generation_config.json"
# What decides the model beside its weights, as far as a folder has it.
DECIDING = (CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json", TEMPLATE,
            "chat_template.json")  # fmt: skip
GGUF_TYPE = "gguf_type"  # in the card of a converted model: how most of its weights were quantized
LENGTH_NAMES = ("max_position_embeddings", "n_positions")  # of the context in config.json


@dataclass(frozen=True, kw_only=True)
class PublishedFacts:
    """What a published model says of itself; "" for what it does not say."""

    type: str  # of transformers
    parameters: int  # tied embeddings once
    vocabulary: int  # rows of the embeddings
    context: int  # tokens; 0 if it names none
    licence: str
    name: str
    quantization: str  # that it came in, as "Q4_1" or "gptq"


def content_digest(source: Path) -> str:
    """The digest of what decides a model, in hex: weights, configuration, tokenizer, template; place and times count nothing.

    Digests of files are cached (core/content_hash.py). Raises InputError or OSError for a folder without weights.
    """
    if is_gguf(source):
        return content_hash.cached_hash(source)
    files = [*weight_files(source, str(source)), *(source / name for name in DECIDING if (source / name).is_file())]
    lines = [f"{file.name} {content_hash.cached_hash(file)}\n" for file in sorted(files)]
    return xxhash.xxh3_128_hexdigest("".join(lines).encode())


def write_model_folder(source: Path, folder: Path) -> PublishedFacts:
    """Write the model of a folder or GGUF file that `check_published` takes into `folder`, which is made.

    A folder's weights are linked, or copied if they cannot be or have other names (weight_names.py); a GGUF file's are written anew,
    exactly as they are there. Memory: some rows of a tensor. Raises InputError and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return _convert_gguf(source, folder) if is_gguf(source) else _copy_folder(source, folder)


def _copy_folder(source: Path, folder: Path) -> PublishedFacts:
    where = str(source)
    weights = weight_files(source, where)
    shapes_of = {
        file: {name: entry["shape"] for name, entry in safetensors_entries(file, where)[0].items()} for file in weights
    }
    names = weight_names.own_names(name for shapes in shapes_of.values() for name in shapes)
    is_changed = any(names.get(name) != name for shapes in shapes_of.values() for name in shapes)
    for file in weights:
        if is_changed:
            weight_names.write_renamed(file, folder / file.name, names)
        else:
            link_or_copy(file, folder / file.name)
    papers = [file for pattern in PAPERS for file in source.glob(pattern)]
    index = [source / INDEX] if len(weights) > 1 or weights[0].name != WEIGHTS else []
    for file in [*(source / name for name in DECIDING), *index, *papers]:
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    if not (folder / TEMPLATE).is_file() and (template := template_in_config(source, where)):
        (folder / TEMPLATE).write_text(template, encoding="utf-8")  # by which serve and cards tell that it chats
    config = read_json(source / CONFIG, where)
    shapes = {names[name]: shape for part in shapes_of.values() for name, shape in part.items() if name in names}
    if is_changed and index:
        placed = {names[name]: file.name for file, part in shapes_of.items() for name in part if name in names}
        write_json(folder / INDEX, {"metadata": {}, "weight_map": placed})
    tied = {"lm_head.weight"} if config.get("tie_word_embeddings") else set()
    card = model_card(source)
    quantization = config.get("quantization_config") or {}
    return PublishedFacts(
        type=str(config.get("model_type", "")),
        parameters=sum(prod(shape) for name, shape in shapes.items() if name not in tied),
        vocabulary=int(config.get("vocab_size", 0)),
        context=next((int(config[name]) for name in LENGTH_NAMES if config.get(name)), 0),
        licence=str(card.get("license") or ""),
        name=str(card.get("model_name") or config.get("_name_or_path") or hub_folders.name_of_folder(source.resolve())),
        quantization=str(quantization.get("quant_method") or card.get(GGUF_TYPE) or ""),
    )


def link_or_copy(file: Path, to: Path) -> None:
    """The same file under another name; a copy where file systems differ, or the owner's rights do."""
    to.unlink(missing_ok=True)
    try:
        os.link(file.resolve(), to)
    except OSError:
        shutil.copyfile(file, to)


def model_card(folder: Path) -> Mapping[str, Any]:
    """What the head of a folder's README.md says in YAML; nothing if there is none that can be read."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    head = re.match(r"---\r?\n(.*?)\r?\n---", text, re.DOTALL)
    try:
        card = yaml.safe_load(head[1]) if head else None
    except yaml.YAMLError:
        card = None
    return card if isinstance(card, dict) else {}


def _convert_gguf(source: Path, folder: Path) -> PublishedFacts:
    header = read_header(source, str(source))
    gguf_architectures.check_architecture(header, str(source))
    gguf_tokenizer.check_tokenizer(header, str(source))
    weights = gguf_architectures.weights_of(header)
    tokens = gguf_tokenizer.special_ids(header)
    config = gguf_architectures.model_config(header, tokens)
    gguf_weights.write_safetensors(folder / WEIGHTS, source, weights)
    write_json(folder / CONFIG, config)
    write_json(folder / GENERATION, tokens)
    write_json(folder / TOKENIZER, gguf_tokenizer.tokenizer_json(header))
    context = int(config["max_position_embeddings"])
    write_json(folder / TOKENIZER_CONFIG, gguf_tokenizer.tokenizer_config(header, context))
    if template := gguf_tokenizer.chat_template(header):
        (folder / TEMPLATE).write_text(template, encoding="utf-8")
    sizes = Counter[str]()
    for weight in weights.values():
        sizes[weight.stored.type] += prod(weight.stored.shape)
    facts = PublishedFacts(
        type=str(config["model_type"]),
        parameters=sizes.total(),
        vocabulary=int(config["vocab_size"]),
        context=context,
        licence=str(header.keys.get("general.license", "")),
        name=str(header.keys.get("general.name", source.stem)),
        quantization=sizes.most_common(1)[0][0],
    )
    write_card(folder, facts, source.name)
    return facts


def write_card(folder: Path, facts: PublishedFacts, file: str) -> None:
    """Write README.md of a converted model: what its file said of itself, and that its weights were dequantized."""
    head = {"license": facts.licence, "model_name": facts.name, GGUF_TYPE: facts.quantization}
    text = yaml.safe_dump({key: value for key, value in head.items() if value}, allow_unicode=True, sort_keys=False)
    lines = f"# {facts.name}\n\nConverted from `{file}` ({facts.quantization}); the weights are those of that file.\n"
    (folder / "README.md").write_text(f"---\n{text}---\n\n{lines}", encoding="utf-8")


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write JSON as transformers does."""
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
