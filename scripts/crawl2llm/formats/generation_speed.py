"""How fast a model generates on this machine, and how much memory it takes: a record beside its evaluation that no manifest lists.

`<model>.speed.json`: another machine, or a busy one, has other numbers, so nothing depends on it. They are for models side by side.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.core.record import processor_name

PROMPT, NEW = 16, 32  # tokens: what a text begins with, and what is generated after it at a time
ROUNDS, SECONDS = 8, 2.0  # so often, and no longer than that: the best is least disturbed by others on the machine
FEWEST = 3  # rounds of a measurement that nothing disturbs
# If nothing disturbs a measurement: of the best round, what the next one reaches, and of its time, what this process runs.
ALIKE = 0.9


def path_of(manifest: Path) -> Path:
    """The record's path beside a manifest of evaluate.model."""
    return manifest.with_name(manifest.name.removesuffix("manifest.json") + "speed.json")


def is_disturbed(rounds: list[tuple[float, float]]) -> bool:
    """Whether other work of the machine slowed all of these rounds (tokens a second, share of the time in which the thread ran).

    Then the best of them is a lower bound: nothing here says how fast the model is without the others.
    """
    best, *slower = sorted(rounds, reverse=True)
    return best[1] < ALIKE or (bool(slower) and slower[0][0] < ALIKE * best[0])


def measure_speed(model: Any, end: int, context: int) -> dict[str, Any]:
    """Tokens a second that a model generates greedily, one text alone, after a first round that does not count; bytes of memory.

    It is the best of FEWEST rounds, or of more, up to ROUNDS and SECONDS, while other work of the machine disturbs them (`disturbed`).

    end: the id of the end-of-text token, with which the prompt is filled and which is not generated. context: the longest text in tokens.
    """
    import torch

    prompt = min(PROMPT, context // 2)
    new = min(NEW, context - prompt)
    prompt_ids = torch.full((1, prompt), end, device=model.device)
    cuda = model.device.type == "cuda"
    rounds: list[tuple[float, float]] = []  # tokens a second, share of the time in which this thread ran

    def generate(tokens: int) -> tuple[float, float]:
        start, ran = time.perf_counter(), time.thread_time()
        with torch.inference_mode():
            model.generate(
                prompt_ids, attention_mask=torch.ones_like(prompt_ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                pad_token_id=end, eos_token_id=end,
            )  # fmt: skip
        if cuda:
            torch.cuda.synchronize()
        spent = time.perf_counter() - start
        # A thread that waits for a GPU does not run, whatever else the machine does.
        return tokens / spent, 1.0 if cuda else (time.thread_time() - ran) / spent

    generate(min(4, new))
    begun = time.perf_counter()
    while len(rounds) < ROUNDS and (not rounds or time.perf_counter() - begun < SECONDS):
        rounds.append(generate(new))
        if len(rounds) >= FEWEST and not is_disturbed(rounds):
            break
    return {
        "tokens_per_second": round(max(rounds)[0], 1),
        "disturbed": is_disturbed(rounds),
        "tokens": new,
        "weights_bytes": int(model.get_memory_footprint()),
        "peak_memory_bytes": (
            torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        ),  # kB on Linux, getrusage(2)
        "threads": torch.get_num_threads(),
        "machine": torch.cuda.get_device_name() if cuda else processor_name(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def write(manifest: Path, speed: dict[str, Any]) -> None:
    """Write the record beside a manifest."""
    write_atomically(path_of(manifest), pretty_json(speed))


def read(manifest: Path) -> dict[str, Any]:
    """The record beside a manifest; empty if there is none that can be read."""
    try:
        speed = json.loads(path_of(manifest).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return speed if isinstance(speed, dict) else {}
