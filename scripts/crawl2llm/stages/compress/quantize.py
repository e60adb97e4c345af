"""Quantize a model: the weights of its linear layers in eight or four bits, on a CPU too.

Writes `<model>/model/` (safetensors, config.json and tokenizer), which `AutoModelForCausalLM.from_pretrained` loads where the method's
library is installed: bitsandbytes for int8 and nf4, compressed-tensors for int4, gptq and awq. The last two calibrate on windows of
the training text. Embeddings, norms and the output layer stay numbers with a floating point. Nothing is trained: how much worse the
model is, evaluate.model measures. How far the weights are from what they were, or what became of the loss on that text, is in the manifest.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import QUANTIZE_STEP
from crawl2llm.chain.step_program import Program
from crawl2llm.core import free_memory
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import optional
from crawl2llm.stages.compress import quantize_tools, quantized_output
from crawl2llm.stages.compress.settings import QuantizeSettings
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.compressible_layers import layers_to_quantize, linear_layers, weight_bytes
from crawl2llm.training.model_loading import model_folder, model_name, verify_weights

STEP = QUANTIZE_STEP


def settings_of_library(settings: QuantizeSettings, dtype: Any, skipped: list[str]) -> Any:
    """BitsAndBytesConfig of the step's settings. dtype: of the arithmetic of nf4. skipped: names of the layers that stay as they are."""
    from transformers import BitsAndBytesConfig

    if settings.method == "int8":
        return BitsAndBytesConfig(
            load_in_8bit=True, llm_int8_threshold=float(settings.outlier_threshold), llm_int8_skip_modules=skipped
        )
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=settings.double_quantization,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=skipped,
    )


def check_memory(folder: Path, has: int, copies: float = 0.5) -> None:
    """InputError if the model that is quantized and what is made of it clearly need more than `has` bytes.

    copies: how often the weights are there a second time while they are quantized.
    """
    model_bytes = weight_bytes(folder)
    needed = {"program": memory.PROGRAM, "weights": model_bytes, "quantized weights": int(model_bytes * copies)}
    if sum(needed.values()) > memory.TOLERANCE * has:
        raise memory.refusal_error(STEP, needed, has, 1, ["run it on a machine with more memory"])


class Task(QuantizeSettings):
    """What the program is given."""

    tools: str | None = optional("A digest of the quantizers' packages, if the method calibrates.")


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed's import, by transformers, warns without it
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    quantized_weights.silence_bitsandbytes()
    logging.disable_progress_bar()
    _, source = verify_weights(args.model)
    if quantized_weights.is_quantized(source):
        raise InputError(f"{source} is quantized already; {STEP} takes a model whose weights are not")
    check_memory(source, free_memory.available_bytes(), copies=2 if settings.method in quantize_tools.PACKED else 0.5)
    config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    quantize_tools.check_type(settings.method, config.model_type, f"{STEP}.method", "config.json's model_type")
    layers = linear_layers(config)
    chosen_layers = layers_to_quantize(layers, settings.method, settings.group_size, settings.keep)
    log.info(
        "%s of %s linear layers of %s to %s",
        len(chosen_layers),
        len(layers),
        model_name(args.model),
        settings.method,
    )
    if settings.method in quantize_tools.PACKED:
        from crawl2llm.stages.compress import four_bit

        return four_bit.quantize_model(
            args.tokens, source, model_folder(args.manifest), chosen_layers, layers, settings, manifest
        )
    skipped = sorted(layer.name for layer in layers if layer not in chosen_layers)
    library_settings = settings_of_library(settings, config.dtype or torch.float32, skipped)
    # On the CPU also where a GPU is: the same bytes everywhere. Saved before its first use, after which nf4 is laid out for the processor.
    model = AutoModelForCausalLM.from_pretrained(
        source,
        dtype="auto",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        device_map={"": "cpu"},
        quantization_config=library_settings,
    )
    files = quantized_output.write_folder(
        model_folder(args.manifest) / "model", source, partial(save_model, model, settings.rest)
    )
    measured = quantized_output.weight_errors(model, source, chosen_layers)
    manifest.summary = quantized_output.manifest_summary(
        source, files, model, chosen_layers, layers, settings.method, **measured
    )
    return files


def save_model(model: Any, rest: str, folder: Path) -> None:
    """Write a model of bitsandbytes into `folder`. rest: type of the weights that are not quantized."""
    import torch

    if rest == "bf16":
        model.config.dtype = torch.bfloat16
        quantized_weights.cast_unquantized(model, torch.bfloat16)
    model.save_pretrained(folder)


main = Program(STEP, __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
