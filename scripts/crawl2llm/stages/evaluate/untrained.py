"""A model of another's shape with random weights: what a task is worth to one that has learned nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.model_loading import load_tokenizer


def untrained_model(folder: Path, precision: str, seed: int) -> tuple[Any, Any]:
    """(model, tokenizer) of a model's folder, of which the configuration and the tokenizer are read, and no weight.

    The weights are those of transformers' own initialisation under `seed`. Raises InputError as
    `crawl2llm.training.model_loading.load_model` does.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = load_tokenizer(folder)
    try:
        configuration = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: not a model that transformers reads: {error}") from error
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configuration, trust_remote_code=False)
    return model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[precision]), tokenizer
