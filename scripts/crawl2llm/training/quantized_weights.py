"""Models whose weights are quantized: told by config.json, and placed on a device as their library wants it."""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.core import devices
from crawl2llm.core.console import log

SECTION = "quantization_config"  # of config.json, as transformers writes it
# bitsandbytes says at every layer of every call that it rounds activations, and on import that an optional kernel is not there.
LOUD_LOGGERS = ("bitsandbytes.autograd._functions", "bitsandbytes.backends.cpu.ops")


def config_of(folder: Path | str) -> dict[str, Any]:
    """What config.json in a model's folder holds; {} where it is missing or broken."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def is_quantized(folder: Path | str) -> bool:
    """Whether config.json in a model's folder says that its weights are quantized; no for a folder without a readable one."""
    return bool(config_of(folder).get(SECTION))


def silence_bitsandbytes() -> None:
    """Keep bitsandbytes from a line at every layer of every call."""
    for name in LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


@cache
def inference_device() -> str:
    """`cuda` where torch sees a GPU, else `cpu`; a warning says why torch sees none of the GPUs that this program may use."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if visible_gpus := devices.visible_gpus():
        why = devices.why_gpus_unseen(devices.cuda_of_torch())
        log.warning(
            "the model is on the CPU, which is slow: torch %s sees none of the %d GPUs here%s",
            torch.__version__, len(visible_gpus), f": {why}" if why else "",
        )  # fmt: skip
    return "cpu"


def place_model(model: Any) -> Any:
    """The model in evaluation mode, on `inference_device`; a quantized one was loaded there, and not every kind can be moved."""
    return (model if getattr(model, "is_quantized", False) else model.to(inference_device())).eval()


def cast_unquantized(model: Any, dtype: Any) -> None:
    """Give the weights that are not quantized this type: transformers leaves them as they are stored."""
    for value in model.parameters():
        if value.is_floating_point():
            value.data = value.data.to(dtype)


def count_parameters(model: Any) -> int:
    """Parameters of a model, also of one with two weights of four bits in a byte."""
    return int(model.num_parameters())
