"""Quantization to packed integers of four bits: rounded to the nearest here, or calibrated on text by GPTQ and AWQ, whose library has an
environment of its own.

The process of the other environment gets plain files and leaves a folder of safetensors. From that comes the result: its packed layers,
and the rest as `rest` says, beside the configuration of the model before. It is measured on the text that it was calibrated on, beside
round-to-nearest on the same grid.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, pretty_json, scratch_folder
from crawl2llm.core.programs import run_program
from crawl2llm.stages.compress import calibration, llm_compressor, quantize_tools, quantized_output
from crawl2llm.stages.compress.settings import QuantizeSettings
from crawl2llm.training import data, packed_weights, quantization_grids, quantized_weights
from crawl2llm.training.compressible_layers import Layer
from crawl2llm.training.model_loading import context_of

GENERATION = "generation_config.json"
BATCH = 8  # windows that the loss is measured on at once


def quantize_model(
    tokens: Iterable[Path],
    source: Path,
    out: Path,
    chosen_layers: list[Layer],
    layers: list[Layer],
    settings: QuantizeSettings,
    manifest: Manifest,
) -> list[Path]:
    """Quantize the model in `source` into `out`/model, and fill the manifest's summary; the files.

    tokens: manifests of tokenize.encode. chosen_layers: of `layers`, those that are quantized. Raises InputError if the environment is
    not there, and where what it gave back is not what was asked for.
    """
    from transformers import AutoConfig

    home, ids = quantize_tools.ENVIRONMENT.folder(), None
    # What the rule reserves; more threads are for reading text.
    torch.set_num_threads(settings.threads if settings.method in model_registry.CALIBRATED_METHODS else 1)
    if settings.method in model_registry.CALIBRATED_METHODS:
        if why := quantize_tools.ENVIRONMENT.problem(home):
            raise InputError(why)
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        ids = calibration.calibration_windows(tokens, context_of(config), settings.calibration_tokens, settings.seed)
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out.with_name(f".{out.name}.quantize")) as place:
        unquantized = sorted(layer.name for layer in layers if layer not in chosen_layers)
        if ids is None:
            round_to_nearest(source, chosen_layers, unquantized, settings.group_size, place / "made")
        else:
            manifest.run["tools"] = run_library(home, place, source, ids, unquantized, settings)
        files = write_result(place / "made", source, chosen_layers, settings.rest, out / "model")
    model = packed_weights.load(files[0].parent, torch.float32).eval()
    dtype = (
        AutoConfig.from_pretrained(files[0].parent, local_files_only=True, trust_remote_code=False).dtype
        or torch.float32
    )
    measurements = measure_result(source, model, ids, chosen_layers, dtype, settings)
    manifest.summary = quantized_output.manifest_summary(
        source, files, model, chosen_layers, layers, settings.method, **measurements
    )
    return files


def run_library(
    home: Path, place: Path, source: Path, ids: data.Tokens, keep: list[str], settings: QuantizeSettings
) -> dict[str, str]:
    """Have the environment in `home` quantize the model in `source` into `place`/made; the versions that did.

    Raises InputError with its last words where it fails.
    """
    home, place = home.absolute(), place.absolute()  # the program runs in `place`
    np.save(place / "ids.npy", ids, allow_pickle=False)
    job: dict[str, Any] = {
        "method": settings.method,
        "group_size": settings.group_size,
        "threads": settings.threads,
    }
    files = {"ids": "ids.npy", "to": "made", "told": "told.json"}
    job |= {"model": str(source.absolute()), "keep": keep, **{key: str(place / name) for key, name in files.items()}}
    (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    # Threads that wait must not spin; nothing of the environment here may reach into that one.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **inherited, "HF_HUB_OFFLINE": "1"}
    command = [str(quantize_tools.python_path(home)), "-I", str(Path(llm_compressor.__file__)), str(place / "job.json")]
    run_program(command, f"{settings.method} by llm-compressor in {home}", env=environment, cwd=place)
    return dict(json.loads((place / "told.json").read_text(encoding="utf-8")))


def round_to_nearest(source: Path, chosen_layers: list[Layer], keep: list[str], group: int, to: Path) -> None:
    """Write to `to` what the library writes, with weights that are rounded to the nearest on the symmetric grid."""
    tensors = read_tensors(source)
    for layer in chosen_layers:
        numbers, scale = quantization_grids.int4_numbers(tensors.pop(f"{layer.name}.weight"), group)
        parts = (packed_weights.pack_numbers(numbers.flatten(1)), scale, torch.tensor([layer.outputs, layer.inputs]))
        names = ("weight_packed", "weight_scale", "weight_shape")
        tensors |= {f"{layer.name}.{name}": part for name, part in zip(names, parts, strict=True)}
    weights = {
        "num_bits": packed_weights.BITS,
        "type": "int",
        "strategy": "group",
        "group_size": group,
        "symmetric": True,
        "dynamic": False,
    }
    quantization_config = {
        "quant_method": packed_weights.METHOD,
        "format": packed_weights.FORMAT,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "format": packed_weights.FORMAT}},
        "ignore": keep,
    }
    to.mkdir()
    (to / "config.json").write_text(json.dumps({quantized_weights.SECTION: quantization_config}), encoding="utf-8")
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})


def write_result(library_folder: Path, source: Path, chosen_layers: list[Layer], rest: str, folder: Path) -> list[Path]:
    """Write what the library left in `library_folder` into `folder`, which is there whole or not at all; its files.

    source: the folder of the model before. rest: type of the numbers with a floating point. Raises InputError if layers are packed
    that were not asked for, or the other way round, and where a number is not finite.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    quantization_config = (
        json.loads((library_folder / "config.json").read_text(encoding="utf-8")).get(quantized_weights.SECTION) or {}
    )
    tensors = read_tensors(library_folder)
    packed_layers = {name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")}
    if not packed_weights.is_packed(library_folder) or packed_layers != {layer.name for layer in chosen_layers}:
        example = min(packed_layers ^ {layer.name for layer in chosen_layers}, default="")
        raise InputError(
            f"llm-compressor left {quantization_config.get('format')!r} of {len(packed_layers)} layers, not {packed_weights.FORMAT!r} of "
            f"{len(chosen_layers)} ({example})"
        )
    if config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)  # the embeddings
    if bad := [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]:
        raise InputError(f"llm-compressor left numbers that are not finite, in {bad[0]} and {len(bad) - 1} more")
    if rest == "bf16":
        config["dtype"] = "bfloat16"
    if (dtype := getattr(torch, str(config.get("dtype")), None)) is not None:
        tensors = {name: value.to(dtype) if value.is_floating_point() else value for name, value in tensors.items()}

    def write_files(partial: Path) -> None:
        (partial / "config.json").write_text(
            pretty_json({**config, quantized_weights.SECTION: quantization_config}), encoding="utf-8"
        )
        save_file(dict(sorted(tensors.items())), partial / "model.safetensors", metadata={"format": "pt"})
        if (source / GENERATION).is_file():
            shutil.copyfile(source / GENERATION, partial / GENERATION)

    return quantized_output.write_folder(folder, source, write_files)


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a folder of safetensors by their names."""
    from safetensors.torch import load_file

    return {
        name: value.contiguous()
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


@torch.no_grad()
def mean_loss(model: Any, ids: data.Tokens) -> float:
    """The mean cross-entropy in nats a token of a model on windows, int64 [n, context]: of each token but the first of a window."""
    total, windows = 0.0, torch.from_numpy(ids)
    for start in range(0, len(windows), BATCH):
        batch = windows[start : start + BATCH]
        logits = model(batch, use_cache=False).logits[:, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"))
    return total / (ids.shape[0] * (ids.shape[1] - 1))


def measure_result(
    source: Path,
    quantized_model: Any,
    ids: data.Tokens | None,
    chosen_layers: list[Layer],
    dtype: torch.dtype,
    settings: QuantizeSettings,
) -> dict[str, Any]:
    """What became of the weights, and of the loss on the text that they were calibrated on. dtype: in which the result is stored.

    No errors of weights by awq: it scales channels of weights up, and what is multiplied with them down.
    """
    from transformers import AutoModelForCausalLM

    measurements: dict[str, Any] = {"group_size": settings.group_size}
    if settings.method != "awq":
        measurements |= quantized_output.weight_errors(quantized_model, source, chosen_layers)
    if ids is None:
        return measurements
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    ).eval()
    measurements |= {
        "calibration_tokens": int(ids.size),
        "calibration_loss_before": round(mean_loss(model, ids), 6),
        "calibration_loss": round(mean_loss(quantized_model, ids), 6),
    }
    # In the types that the result is stored in: the two losses differ by the method alone.
    rounded = {f"{layer.name}.weight" for layer in chosen_layers}
    for name, value in model.named_parameters():
        if name in rounded:
            value.data = quantization_grids.round_int4(
                value.data, settings.group_size, settings.method == "gptq", dtype
            )
        else:
            value.data = value.data.to(dtype).float()
    return {**measurements, "calibration_loss_nearest": round(mean_loss(model, ids), 6)}
