"""A quantized model as its result holds it: the folder, which is there whole or not at all, and the summary of its manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.core.console import log
from crawl2llm.core.phrases import first_few
from crawl2llm.training import quantized_weights
from crawl2llm.training.compressible_layers import Layer, quantization_error, weight_bytes
from crawl2llm.training.model import COMPANIONS


def write_folder(folder: Path, source: Path, write: Callable[[Path], None]) -> list[Path]:
    """Have `write` fill `folder` with weights and config.json, and lay the tokenizer of the model in `source` beside; the files."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    for path in partial.glob("*.safetensors"):  # written for the owner alone
        path.chmod((partial / "config.json").stat().st_mode)
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, partial / name)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())


def weight_errors(model: Any, source: Path, chosen_layers: list[Layer]) -> dict[str, Any]:
    """How far the weights of quantized layers are from those of the model in `source`.

    weight_error: the root of the squared differences over the squares, of all; worst_error: the largest of a layer, worst_layer.
    """
    error_by_layer = {layer.name: quantization_error(model, source, layer) for layer in chosen_layers}
    squares, wrong = (sum(pair[part] for pair in error_by_layer.values()) for part in (0, 1))
    worst = max(
        error_by_layer,
        key=lambda name: error_by_layer[name][1] / error_by_layer[name][0] if error_by_layer[name][0] else 0.0,
    )
    return {
        "weight_error": round((wrong / squares) ** 0.5 if squares else 0.0, 6),
        "worst_layer": worst,
        "worst_error": round(
            (error_by_layer[worst][1] / error_by_layer[worst][0]) ** 0.5 if error_by_layer[worst][0] else 0.0, 6
        ),
    }


def manifest_summary(
    source: Path,
    files: list[Path],
    model: Any,
    chosen_layers: list[Layer],
    layers: list[Layer],
    method: str,
    **measured: Any,
) -> dict[str, Any]:
    """The manifest's summary, which is logged too: what was quantized, sizes in bytes, what else was measured, and a note of layers that
    were left.

    source: the folder of the model before. files: what `write_folder` left. chosen_layers: of `layers`, those that are quantized.
    """
    before, after = weight_bytes(source), weight_bytes(files[0].parent)
    whole, parts = quantized_weights.count_parameters(model), sum(layer.weight_count for layer in chosen_layers)
    unquantized = sorted(layer.name for layer in layers if layer not in chosen_layers and not layer.output)
    first_names = first_few(unquantized, 3)
    log.info(
        "%s of %s parameters; %s bytes of weights instead of %s; %s",
        f"{parts:,}", f"{whole:,}", f"{after:,}", f"{before:,}",
        ", ".join(f"{key.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.6g}'}" for key, value in measured.items()),
    )  # fmt: skip
    return {
        "method": method,
        "parameters": whole,
        "quantized_parameters": parts,
        "quantized_layers": len(chosen_layers),
        "unquantized_layers": len(unquantized),
        "bytes_before": before,
        "bytes": after,
        **measured,
        "notes": [f"{len(unquantized)} linear layers are not quantized: {first_names}."] if unquantized else [],
    }
