"""Whether the weights of a published model are those of its config.json, seen without reading them into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from crawl2llm.core.errors import InputError
from crawl2llm.core.phrases import and_more
from crawl2llm.training.published.model_files import CONFIG, safetensors_entries, weight_files
from crawl2llm.training.published.weight_names import BODIES, HEAD

HEAD_WEIGHT = f"{HEAD}weight"


def check_weights(folder: Path, where: str) -> None:
    """Raise InputError, which begins with `where`, for a folder whose files do not hold the model of its config.json.

    transformers fills what is missing with random numbers, others each time, and leaves out what it does not know: it only warns.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, device_map={"": "meta"}, local_files_only=True, trust_remote_code=False, use_safetensors=True,
            ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(f"{where}: not a model that transformers reads: {error}") from error
    model, report = loaded
    faults = {
        "its weights lack {}, of the model of its {}": report["missing_keys"],
        "its weights have {}, which the model of its {} has not": report["unexpected_keys"],
        "its weights have {} in another shape than the model of its {}": {
            name for name, *_ in report["mismatched_keys"]
        },
    }
    for fault, names in faults.items():
        if names:
            raise InputError(f"{where}: {fault.format(and_more(sorted(names), 3), CONFIG)}")
    if model.config.tie_word_embeddings:
        check_tied(folder, where)


def check_tied(folder: Path, where: str) -> None:
    """Raise InputError for a head that is stored beside the embeddings with other values than these, though they are tied: transformers
    would evaluate the one, and a training would go on from the other.
    """
    places = {
        name: file
        for file in weight_files(folder, where)
        for name in safetensors_entries(file, where)[0]
        if name.endswith((HEAD_WEIGHT, *BODIES))
    }
    if HEAD_WEIGHT not in places:
        return
    head, *embeddings = (
        read_tensor(places[name], name) for name in sorted(places, key=lambda name: name != HEAD_WEIGHT)
    )
    if not all(torch.equal(head, table) for table in embeddings):
        raise InputError(
            f"{where}: its {CONFIG} ties {HEAD_WEIGHT} to the embeddings (tie_word_embeddings), and its values are others; set it to "
            "false there"
        )


def read_tensor(file: Path, name: str) -> torch.Tensor:
    """A tensor of a file of safetensors."""
    with safe_open(file, "pt") as stored:
        return stored.get_tensor(name)
