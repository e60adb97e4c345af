"""How fast a model generates on this machine, and how much memory it takes: a record beside its evaluation that no manifest lists.

`<model>.speed.json`: another machine, or a busy one, has other numbers, so nothing depends on it. They are for models side by side.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

from scripts.workflow.manifest import pretty, write_atomically
from scripts.workflow.record import processor

PROMPT, NEW = 16, 32  # tokens: what a text begins with, and what is generated after it at a time
ROUNDS, SECONDS = 3, 0.8  # so often, but no longer than that: the best is least disturbed by others on the machine


def path_of(manifest: Path) -> Path:
    """The record's path beside a manifest of evaluate.model."""
    return manifest.with_name(manifest.name.removesuffix("manifest.json") + "speed.json")


def measure(model: Any, end: int, context: int) -> dict[str, Any]:
    """Tokens a second that a model generates greedily, one text alone, after a first round that does not count; bytes of memory.

    end: the id of the end-of-text token, with which the prompt is filled and which is not generated. context: the longest text in tokens.
    """
    import torch

    prompt = min(PROMPT, context // 2)
    new = min(NEW, context - prompt)
    given = torch.full((1, prompt), end, device=model.device)
    rates: list[float] = []

    def generate(tokens: int) -> float:
        begun = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                pad_token_id=end, eos_token_id=end,
            )  # fmt: skip
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    generate(min(4, new))
    begun = time.perf_counter()
    while len(rates) < ROUNDS and (not rates or time.perf_counter() - begun < SECONDS):
        rates.append(new / generate(new))
    cuda = model.device.type == "cuda"
    return {
        "tokens_per_second": round(max(rates), 1),
        "tokens": new,
        "weights_bytes": int(model.get_memory_footprint()),
        "peak_memory_bytes": (
            torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        ),  # kB on Linux, getrusage(2)
        "threads": torch.get_num_threads(),
        "machine": torch.cuda.get_device_name() if cuda else processor(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def write(manifest: Path, found: dict[str, Any]) -> None:
    """Write the record beside a manifest."""
    write_atomically(path_of(manifest), pretty(found))


def read(manifest: Path) -> dict[str, Any]:
    """The record beside a manifest; empty where there is none that can be read."""
    try:
        found = json.loads(path_of(manifest).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
