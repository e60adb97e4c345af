"""A trained model as its manifest leaves it: where its weights lie, and the model with its tokenizer in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import BASE
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.training import packed_weights, quantized_weights
from crawl2llm.training.chat_layout import take_end_of_turn

CONTEXT = 2048  # tokens
# How the names of transformers' classes end that give a text a score, as a reward model does.
SEQUENCE_CLASSIFICATION = "ForSequenceClassification"


def model_name(manifest: Path) -> str:
    """The model that a manifest is of: `…/finetune/train/sft.manifest.json` → `sft`, `…/pretrain/train/manifest.json` → `base`."""
    return task_of(manifest) or BASE


def model_folder(manifest: Path) -> Path:
    """The folder of a model's files: `…/train/sft/` of `…/train/sft.manifest.json`, and that of the manifest itself for `base`."""
    return manifest.parent / task_of(manifest)


def verify_weights(manifest: Path) -> tuple[Manifest, Path]:
    """(manifest, folder of safetensors and tokenizer) of a model, whose files have their checksums.

    Raises ManifestError that names a missing or damaged file.
    """
    below = f"{Path(task_of(manifest)) / 'model'}/"
    model_manifest = Manifest.read(manifest).verify_files(below)
    return model_manifest, model_manifest.subfolder(below)


def context_of(config: Any) -> int:
    """The longest text of a model in tokens, by its configuration of transformers; CONTEXT where it names none, as a state-space model."""
    return context_by(lambda name: getattr(config, name, None))


def context_by(value_of: Callable[[str], Any]) -> int:
    """The same by what gives the value of a key of config.json, or None."""
    return int(value_of("max_position_embeddings") or value_of("n_positions") or CONTEXT)


def load_tokenizer(folder: Path | str) -> Any:
    """The tokenizer in a model's folder; its end token is that of its chat template's answers, its padding token that where it has none.

    Raises InputError if there is none that `transformers` reads, or one without an end token.
    """
    from transformers import PreTrainedTokenizerFast

    # What tokenizer.json says and nothing else: for some types of models (qwen2) AutoTokenizer takes their first makers' own splitting.
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: not a model that transformers reads: {error}") from error
    tokenizer.backend_tokenizer.no_truncation()  # which some are published with: a text would be scored by its beginning
    tokenizer.backend_tokenizer.no_padding()
    take_end_of_turn(tokenizer)
    if tokenizer.eos_token_id is None:
        raise InputError(f"{folder}: its tokenizer has no end-of-text token (eos_token), which ends every answer")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def is_reward_model(folder: Path | str) -> bool:
    """Whether config.json in a model's folder names a reward model (align.reward); no for a folder without a readable one."""
    names = quantized_weights.config_of(folder).get("architectures") or ()
    return any(str(name).endswith(SEQUENCE_CLASSIFICATION) for name in names)


def load_model(folder: Path | str, precision: str = "fp32") -> tuple[Any, Any]:
    """(model, tokenizer) of a folder of safetensors; see `load_tokenizer`.

    precision: of the arithmetic, and of weights that are not quantized. A quantized model is loaded onto the GPU if there is one; one of
    packed integers (int4, gptq, awq) is expanded into weights of this type.
    Raises InputError if the folder holds no model that `transformers` reads too, or a quantized one without the library for it.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    if is_reward_model(folder):
        raise InputError(f"{folder}: a reward model, which scores answers and gives none itself; name a language model")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    tokenizer, where = load_tokenizer(folder), {}
    if packed_weights.is_packed(folder):
        return packed_weights.load(folder, dtype), tokenizer
    if quantized_weights.is_quantized(folder):
        quantized_weights.silence_bitsandbytes()
        where = {"device_map": {"": quantized_weights.inference_device()}}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True, **where
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(f"{folder}: not a model that transformers reads: {error}") from error
    if where:
        quantized_weights.cast_unquantized(model, dtype)
    return model, tokenizer
