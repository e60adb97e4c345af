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
from crawl2llm.core.manifest import Manifest, pretty, scratch
from crawl2llm.stages.compress import calibration, llm_compressor, quantize_tools, quantized_output
from crawl2llm.stages.compress.programs import finished
from crawl2llm.training import data, packed_weights, quantization_grids, quantized_weights
from crawl2llm.training.compressible_layers import Layer
from crawl2llm.training.model_loading import context_of

GENERATION = "generation_config.json"
BATCH = 8  # windows that the loss is measured on at once


def made(
    tokens: Iterable[Path],
    source: Path,
    out: Path,
    taken: list[Layer],
    layers: list[Layer],
    settings: dict[str, Any],
    manifest: Manifest,
) -> list[Path]:
    """Quantize the model in `source` into `out`/model, and fill the manifest's summary; the files.

    tokens: manifests of tokenize.encode. taken: of `layers`, those that are quantized. Raises InputError where the environment is not
    there, and where what it gave back is not what was asked for.
    """
    from transformers import AutoConfig

    home, ids = quantize_tools.folder(), None
    # What the rule reserves; more threads are for reading text.
    torch.set_num_threads(settings["threads"] if settings["method"] in model_registry.CALIBRATED else 1)
    if settings["method"] in model_registry.CALIBRATED:
        if why := quantize_tools.missing(home):
            raise InputError(why)
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        ids = calibration.text(tokens, context_of(config), settings["calibration_tokens"], settings["seed"])
    out.mkdir(parents=True, exist_ok=True)
    with scratch(out.with_name(f".{out.name}.quantize")) as place:
        kept = sorted(layer.name for layer in layers if layer not in taken)
        if ids is None:
            nearest(source, taken, kept, settings["group_size"], place / "made")
        else:
            manifest.run["tools"] = run(home, place, source, ids, kept, settings)
        files = written(place / "made", source, taken, settings["rest"], out / "model")
    model = packed_weights.load(files[0].parent, torch.float32).eval()
    dtype = (
        AutoConfig.from_pretrained(files[0].parent, local_files_only=True, trust_remote_code=False).dtype
        or torch.float32
    )
    found = measured(source, model, ids, taken, dtype, settings)
    manifest.summary = quantized_output.summary(source, files, model, taken, layers, settings["method"], **found)
    return files


def run(
    home: Path, place: Path, source: Path, ids: data.Tokens, keep: list[str], settings: dict[str, Any]
) -> dict[str, str]:
    """Have the environment in `home` quantize the model in `source` into `place`/made; the versions that did.

    Raises InputError with its last words where it fails.
    """
    home, place = home.absolute(), place.absolute()  # the program runs in `place`
    np.save(place / "ids.npy", ids, allow_pickle=False)
    job = {key: settings[key] for key in ("method", "group_size", "threads")}
    files = {"ids": "ids.npy", "to": "made", "told": "told.json"}
    job |= {
        "model": str(source.absolute()),
        "keep": keep,
        **{key: str(place / name) for key, name in files.items()},
    }
    (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    # Threads that wait must not spin; nothing of the environment here may reach into that one.
    given = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **given, "HF_HUB_OFFLINE": "1"}
    command = [str(quantize_tools.python(home)), "-I", str(Path(llm_compressor.__file__)), str(place / "job.json")]
    finished(command, f"{settings['method']} by llm-compressor in {home}", env=environment, cwd=place)
    return dict(json.loads((place / "told.json").read_text(encoding="utf-8")))


def nearest(source: Path, taken: list[Layer], keep: list[str], group: int, to: Path) -> None:
    """Leave in `to` what the library leaves, of layers whose weights are rounded to the nearest on the symmetric grid."""
    tensors = held(source)
    for layer in taken:
        numbers, scale = quantization_grids.numbers4(tensors.pop(f"{layer.name}.weight"), group)
        parts = (packed_weights.packed(numbers.flatten(1)), scale, torch.tensor([layer.outputs, layer.inputs]))
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
    told = {
        "quant_method": packed_weights.METHOD,
        "format": packed_weights.FORMAT,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "format": packed_weights.FORMAT}},
        "ignore": keep,
    }
    to.mkdir()
    (to / "config.json").write_text(json.dumps({quantized_weights.SECTION: told}), encoding="utf-8")
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})


def written(found: Path, source: Path, taken: list[Layer], rest: str, folder: Path) -> list[Path]:
    """Write what the library left in `found` into `folder`, which is there whole or not at all; its files.

    source: the folder of the model before. rest: type of the numbers with a floating point. Raises InputError where layers are packed
    that were not asked for, or the other way round, and where a number is not finite.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    told = json.loads((found / "config.json").read_text(encoding="utf-8")).get(quantized_weights.SECTION) or {}
    tensors = held(found)
    own = {name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")}
    if not packed_weights.is_packed(found) or own != {layer.name for layer in taken}:
        other = min(own ^ {layer.name for layer in taken}, default="")
        raise InputError(
            f"llm-compressor left {told.get('format')!r} of {len(own)} layers, not {packed_weights.FORMAT!r} of {len(taken)} ({other})"
        )
    if config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)  # the embeddings
    if bad := [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]:
        raise InputError(f"llm-compressor left numbers that are not finite, in {bad[0]} and {len(bad) - 1} more")
    if rest == "bf16":
        config["dtype"] = "bfloat16"
    if (dtype := getattr(torch, str(config.get("dtype")), None)) is not None:
        tensors = {name: value.to(dtype) if value.is_floating_point() else value for name, value in tensors.items()}

    def write(partial: Path) -> None:
        (partial / "config.json").write_text(pretty({**config, quantized_weights.SECTION: told}), encoding="utf-8")
        save_file(dict(sorted(tensors.items())), partial / "model.safetensors", metadata={"format": "pt"})
        if (source / GENERATION).is_file():
            shutil.copyfile(source / GENERATION, partial / GENERATION)

    return quantized_output.put(folder, source, write)


def held(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a folder of safetensors by their names."""
    from safetensors.torch import load_file

    return {
        name: value.contiguous()
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


@torch.no_grad()
def loss(model: Any, ids: data.Tokens) -> float:
    """The mean cross-entropy in nats a token of a model on windows, int64 [n, context]: of each token but the first of a window."""
    total, windows = 0.0, torch.from_numpy(ids)
    for start in range(0, len(windows), BATCH):
        batch = windows[start : start + BATCH]
        logits = model(batch, use_cache=False).logits[:, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"))
    return total / (ids.shape[0] * (ids.shape[1] - 1))


def measured(
    source: Path, made: Any, ids: data.Tokens | None, taken: list[Layer], dtype: torch.dtype, settings: dict[str, Any]
) -> dict[str, Any]:
    """What became of the weights, and of the loss on the text that they were calibrated on. dtype: in which the result is stored.

    No errors of weights by awq: it scales channels of weights up, and what is multiplied with them down.
    """
    from transformers import AutoModelForCausalLM

    found = {"group_size": settings["group_size"]}
    if settings["method"] != "awq":
        found |= quantized_output.errors(made, source, taken)
    if ids is None:
        return found
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    ).eval()
    found |= {
        "calibration_tokens": int(ids.size),
        "calibration_loss_before": round(loss(model, ids), 6),
        "calibration_loss": round(loss(made, ids), 6),
    }
    # In the types that the result is stored in: the two losses differ by the method alone.
    rounded = {f"{layer.name}.weight" for layer in taken}
    for name, value in model.named_parameters():
        if name in rounded:
            value.data = quantization_grids.int4(
                value.data, settings["group_size"], settings["method"] == "gptq", dtype
            )
        else:
            value.data = value.data.to(dtype).float()
    return {**found, "calibration_loss_nearest": round(loss(model, ids), 6)}
