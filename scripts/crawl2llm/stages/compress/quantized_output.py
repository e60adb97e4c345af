"""A quantized model as its result holds it: the folder, which is there whole or not at all, and the summary of its manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.core.console import log
from crawl2llm.training import quantized_weights
from crawl2llm.training.compressible_layers import Layer, error, size_of
from crawl2llm.training.model import COMPANIONS


def put(folder: Path, source: Path, write: Callable[[Path], None]) -> list[Path]:
    """Have `write` fill `folder` with weights and config.json, and lay the tokenizer of the model in `source` beside; the files."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    for path in partial.glob("*.safetensors"):  # written for the owner alone
        path.chmod((partial / "config.json").stat().st_mode)
    for beside in COMPANIONS:
        if (source / beside).is_file():
            shutil.copyfile(source / beside, partial / beside)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())


def errors(model: Any, source: Path, taken: list[Layer]) -> dict[str, Any]:
    """How far the weights of quantized layers are from those of the model in `source`.

    weight_error: the root of the squared differences over the squares, of all; worst_error: the largest of a layer, worst_layer.
    """
    found = {layer.name: error(model, source, layer) for layer in taken}
    squares, wrong = (sum(pair[part] for pair in found.values()) for part in (0, 1))
    worst = max(found, key=lambda one: found[one][1] / found[one][0] if found[one][0] else 0.0)
    return {
        "weight_error": round((wrong / squares) ** 0.5 if squares else 0.0, 6),
        "worst_layer": worst,
        "worst_error": round((found[worst][1] / found[worst][0]) ** 0.5 if found[worst][0] else 0.0, 6),
    }


def summary(
    source: Path, files: list[Path], model: Any, taken: list[Layer], layers: list[Layer], method: str, **measured: Any
) -> dict[str, Any]:
    """The manifest's summary, which is logged too: what was quantized, sizes in bytes, what else was measured, and a note of layers that
    were left.

    source: the folder of the model before. files: what `put` left. taken: of `layers`, those that are quantized.
    """
    before, after = size_of(source), size_of(files[0].parent)
    whole, parts = quantized_weights.parameters(model), sum(layer.size for layer in taken)
    kept = sorted(layer.name for layer in layers if layer not in taken and not layer.output)
    some = f"{', '.join(kept[:3])}{', …' * (len(kept) > 3)}"
    log.info(
        "%s of %s parameters; %s bytes of weights instead of %s; %s",
        f"{parts:,}", f"{whole:,}", f"{after:,}", f"{before:,}",
        ", ".join(f"{key.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.6g}'}" for key, value in measured.items()),
    )  # fmt: skip
    return {
        "method": method,
        "parameters": whole,
        "quantized_parameters": parts,
        "quantized_layers": len(taken),
        "unquantized_layers": len(kept),
        "bytes_before": before,
        "bytes": after,
        **measured,
        "notes": [f"{len(kept)} linear layers are not quantized: {some}."] if kept else [],
    }
