"""Models side by side where one of them is compressed: size, quality, speed and memory, as a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from crawl2llm.chain.model_registry import REWARD_STEP
from crawl2llm.chain.steps import EVALUATION, stage_of
from crawl2llm.core.console import form
from crawl2llm.formats import generation_speed
from crawl2llm.formats.run_records import Run, dig, number
from crawl2llm.stages.compress.quantize_tools import PACKED
from crawl2llm.stages.report.figures import BLUE, ORANGE, compact, drawn
from crawl2llm.stages.report.models import Model, title
from crawl2llm.stages.report.page import NOTHING, integer, memory, signed, significant, size
from crawl2llm.stages.report.tasks import NAMES

STAGE = "compress"
EXPANDED = (
    "Models by int4, gptq and awq are expanded when they are loaded: their speed and memory are those of an unquantized model. "
    "transformers loads them packed where compressed-tensors is installed: .venv/bin/python -m pip install compressed-tensors==0.19.0."
)


def is_compressed(model: Model) -> bool:
    """Whether a step of the stage `compress` makes a model."""
    return stage_of(model.step) == STAGE


def is_weight(file: str) -> bool:
    """Whether a file of a model's manifest holds its weights."""
    path = Path(file)
    return path.suffix == ".safetensors" and path.parent.name == "model"


def rows(run: Run, models: list[Model]) -> list[dict[str, Any]]:
    """Every model with a result, as numbers: `bytes` of its weights on the disk, whether they are
    `expanded` when it is loaded, `bits`, `centered` (the mean over the tasks), `speed`.

    None where no model of the run is compressed. speed: what formats/generation_speed.py measured; empty where it did not.
    """
    if not any(is_compressed(model) and run.task(model.step, model.task) for model in models):
        return []
    found = []
    for model in models:
        made, evaluation = run.task(model.step, model.task), run.task(EVALUATION, model.name)
        if made is None or model.step == REWARD_STEP:
            continue
        summary = evaluation.summary if evaluation else {}
        scores = [value for task in NAMES if (value := number(dig(summary, "items", task, "centered"))) is not None]
        found.append(
            {
                "name": model.name,
                "compressed": is_compressed(model),
                "expanded": dig(made.summary, "method") in PACKED,
                "bytes": sum(facts["bytes"] for file, facts in made.files.items() if is_weight(file)),
                "parameters": number(dig(summary, "parameters")),
                "bits": number(dig(summary, "heldout_text", "bits_per_byte")),
                "centered": sum(scores) / len(scores) if scores else None,
                "speed": generation_speed.read(evaluation.path) if evaluation and evaluation.path else {},
            }
        )
    return found


def rate(measured: dict[str, Any]) -> str:
    """Tokens a second; `≥ 196` if other work of the machine took a part of its time, so that it is a lower bound."""
    shown = significant(measured.get("tokens_per_second"), 3)
    return f"≥ {shown}" if measured.get("disturbed") and shown != NOTHING else shown


def table(found: list[dict[str, Any]]) -> dict[str, Any]:
    """`rows` of cells as the page shows them, and `about`: the machine that speed and memory were measured on."""
    machines = sorted({of["speed"]["machine"] for of in found if of["speed"].get("machine")})
    threads = sorted({of["speed"]["threads"] for of in found if of["speed"].get("threads")})
    about = (
        f"Tokens a second of one greedy text alone, and memory, on the machine at hand: {', '.join(machines)}, "
        f"{' or '.join(map(str, threads))} {form(max(threads, default=None), 'thread')}."
        if machines
        else "Speed and memory were not measured."
    )
    if any(of["speed"].get("disturbed") for of in found):
        about += (
            " With ≥ the machine had other work at the time, such as other tasks of the run: by itself the model is faster, "
            "by how much is not known."
        )
    if machines and any(of["expanded"] for of in found):
        about += f" {EXPANDED}"
    shown = [
        {
            "name": title(of["name"]),
            "cells": [
                size(of["bytes"]),
                integer(of["parameters"]),
                significant(of["bits"]),
                signed(of["centered"], 3) if of["centered"] is not None else NOTHING,
                rate(of["speed"]),
                size(of["speed"].get("weights_bytes")),
                memory(of["speed"].get("peak_memory_bytes")),
            ],
        }
        for of in found
    ]
    return {"rows": shown, "about": about}


def figure(found: list[dict[str, Any]]) -> str | None:
    """Size on the disk against bits per byte, each point with its model's name and speed; None where fewer than two have both."""
    points = [of for of in found if of["bytes"] and of["bits"] is not None]
    if len(points) < 2:
        return None

    def words(of: dict[str, Any]) -> str:
        shown = rate(of["speed"])
        return of["name"] + (f", {shown} tokens/s" if shown != NOTHING else "")

    def draw(axes: Axes) -> None:
        for of in points:
            axes.plot(
                of["bytes"], of["bits"], "s" if of["compressed"] else "o", color=ORANGE if of["compressed"] else BLUE
            )
            axes.annotate(words(of), (of["bytes"], of["bits"]), xytext=(6, 5), textcoords="offset points", fontsize=8)
        axes.set(xlabel="bytes of weights on the disk", ylabel="bits per held-out byte")
        axes.set_xlim(0, 1.35 * max(of["bytes"] for of in points))
        axes.margins(y=0.2)
        axes.xaxis.set_major_formatter(lambda value, _: compact(value))

    spoken = "; ".join(f"{words(of)}: {of['bytes']:,} bytes, {of['bits']:.4g} bits per byte" for of in points)
    return drawn("compressed", "Size and bits per byte", f"Size on the disk against bits per byte. {spoken}.", draw)
