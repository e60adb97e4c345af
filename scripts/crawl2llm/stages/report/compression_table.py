"""Models side by side where one of them is compressed: size, quality, speed and memory, as a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from crawl2llm.chain.model_registry import MERGE_STEP, REWARD_STEP
from crawl2llm.chain.step import stage_of
from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats import generation_speed
from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.compress.quantize_tools import PACKED
from crawl2llm.stages.report.figures import BLUE, ORANGE, compact_number, figure_svg
from crawl2llm.stages.report.models import Model, model_title
from crawl2llm.stages.report.page import (
    NOTHING,
    format_bytes,
    format_integer,
    format_memory,
    format_signed,
    format_significant,
)
from crawl2llm.stages.report.tasks import NAMES

STAGE = "compress"
EXPANDED_NOTE = (
    "Models by int4, gptq and awq are expanded when they are loaded: their speed and memory are those of an unquantized model. "
    "transformers loads them packed where compressed-tensors is installed: .venv/bin/python -m pip install compressed-tensors==0.19.0."
)


def is_compressed(model: Model) -> bool:
    """Whether a step of the stage `compress` makes a model smaller."""
    return stage_of(model.step) == STAGE and model.step != MERGE_STEP


def is_weight(file: str) -> bool:
    """Whether a file of a model's manifest holds its weights."""
    path = Path(file)
    return path.suffix == ".safetensors" and path.parent.name == "model"


def compression_rows(run: Run, models: list[Model]) -> list[dict[str, Any]]:
    """Every model with a result, as numbers: `bytes` of its weights on the disk, whether they are
    `expanded` when it is loaded, `bits`, `centered` (the mean over the tasks), `speed`.

    None if no model of the run is compressed. speed: what formats/generation_speed.py measured; empty if it did not.
    """
    if not any(is_compressed(model) and run.task(model.step, model.task) for model in models):
        return []
    model_rows = []
    for model in models:
        manifest, evaluation = run.task(model.step, model.task), run.task("evaluate.model", model.name)
        if manifest is None or model.step == REWARD_STEP:
            continue
        summary = evaluation.summary if evaluation else {}
        scores = [
            value
            for task in NAMES
            if (value := finite_number(nested_value(summary, "items", task, "centered"))) is not None
        ]
        model_rows.append(
            {
                "name": model.name,
                "compressed": is_compressed(model),
                "expanded": nested_value(manifest.summary, "method") in PACKED,
                "bytes": sum(facts["bytes"] for file, facts in manifest.files.items() if is_weight(file)),
                "parameters": finite_number(nested_value(summary, "parameters")),
                "bits": finite_number(nested_value(summary, "heldout_text", "bits_per_byte")),
                "centered": sum(scores) / len(scores) if scores else None,
                "speed": generation_speed.read(evaluation.path) if evaluation and evaluation.path else {},
            }
        )
    return model_rows


def speed_text(measured: dict[str, Any]) -> str:
    """Tokens a second; `≥ 196` if other work of the machine took a part of its time, so that it is a lower bound."""
    text = format_significant(measured.get("tokens_per_second"), 3)
    return f"≥ {text}" if measured.get("disturbed") and text != NOTHING else text


def table(model_rows: list[dict[str, Any]]) -> dict[str, Any]:
    """`rows` of cells as the page shows them, and `about`: the machine that speed and memory were measured on."""
    machines = sorted({row["speed"]["machine"] for row in model_rows if row["speed"].get("machine")})
    threads = sorted({of["speed"]["threads"] for of in model_rows if of["speed"].get("threads")})
    about = (
        f"Tokens a second of one greedy text alone, and memory, on the machine at hand: {', '.join(machines)}, "
        f"{' or '.join(map(str, threads))} {singular_or_plural(max(threads, default=None), 'thread')}."
        if machines
        else "Speed and memory were not measured."
    )
    if any(of["speed"].get("disturbed") for of in model_rows):
        about += (
            " With ≥ the machine had other work at the time, such as other tasks of the run: by itself the model is faster, "
            "by how much is not known."
        )
    if machines and any(of["expanded"] for of in model_rows):
        about += f" {EXPANDED_NOTE}"
    table_rows = [
        {
            "name": model_title(of["name"]),
            "cells": [
                format_bytes(of["bytes"]),
                format_integer(of["parameters"]),
                format_significant(of["bits"]),
                format_signed(of["centered"], 3) if of["centered"] is not None else NOTHING,
                speed_text(of["speed"]),
                format_bytes(of["speed"].get("weights_bytes")),
                format_memory(of["speed"].get("peak_memory_bytes")),
            ],
        }
        for of in model_rows
    ]
    return {"rows": table_rows, "about": about}


def figure(model_rows: list[dict[str, Any]]) -> str | None:
    """Size on the disk against bits per byte, each point with its model's name and speed; None if fewer than two have both."""
    points = [row for row in model_rows if row["bytes"] and row["bits"] is not None]
    if len(points) < 2:
        return None

    def point_label(row: dict[str, Any]) -> str:
        speed = speed_text(row["speed"])
        return row["name"] + (f", {speed} tokens/s" if speed != NOTHING else "")

    def draw(axes: Axes) -> None:
        for row in points:
            axes.plot(
                row["bytes"],
                row["bits"],
                "s" if row["compressed"] else "o",
                color=ORANGE if row["compressed"] else BLUE,
            )
            axes.annotate(
                point_label(row), (row["bytes"], row["bits"]), xytext=(6, 5), textcoords="offset points", fontsize=8
            )
        axes.set(xlabel="bytes of weights on the disk", ylabel="bits per held-out byte")
        axes.set_xlim(0, 1.35 * max(of["bytes"] for of in points))
        axes.margins(y=0.2)
        axes.xaxis.set_major_formatter(lambda value, _: compact_number(value))

    spoken = "; ".join(f"{point_label(of)}: {of['bytes']:,} bytes, {of['bits']:.4g} bits per byte" for of in points)
    return figure_svg(
        "compressed", "Size and bits per byte", f"Size on the disk against bits per byte. {spoken}.", draw
    )
