"""Hours, GPU-hours and money of a planned training, by what the last one reached where it was alike. Nothing here decides a byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

from crawl2llm.chain import config_schema
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.training import gpus
from crawl2llm.training.measures import flops_per_token, peak_of
from crawl2llm.training.parameters import count

MFU = 0.35  # assumed where none was measured: what trainings of models of a billion parameters report; smaller models reach less
CPU = 30e9  # assumed FLOP/s of a thread in fp32: two x86-64 cores reach 40 to 80 GFLOP/s (training/auto.py)
# Time with activation checkpointing: a forward pass more, 2 of then 8 operations a parameter and token.
RECOMPUTED = 4 / 3
ALIKE = 4.0  # a training of so many times as many parameters, or as few, is another, whose speed says nothing


def measured(folder: Path) -> dict[str, Any] | None:
    """What the last training whose results lie in `folder` reached; None where there is none.

    `flops`: FLOP/s of a process, the median of its log; `mfu`: over the peak of its GPU in its precision, None where none is known. The
    rest says what it was the speed of.
    """
    try:
        last = Manifest.of_task(folder / "manifest.json")
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        made = record.read(folder / "manifest.json")
        speed = median(row["tokens_per_second"] for row in rows if row.get("tokens_per_second"))
        model = last.summary["shape"]
        counted = count({"overrides": {}, **model}, model["vocabulary"])
        each = flops_per_token(counted.multiplied, model["layers"], counted.width, model["context"])
        flops, device = speed * each / made["processes"], next(iter(made["devices"]))
        config = config_schema.completed("pretrain.train", made["fingerprint"]["config"])
        precision, threads, engine = config["precision"], config.get("threads"), config["engine"]
    except (ManifestError, OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    peak = peak_of(device, precision) if made.get("device") == "cuda" else None
    return {
        "flops": flops,
        "mfu": flops / peak if peak else None,
        "device": device,
        "cuda": made.get("device") == "cuda",
        "precision": precision,
        "threads": threads,
        "engine": engine,
        "parameters": counted.total,
    }


def alike(last: dict[str, Any], summary: dict[str, Any], train: dict[str, Any], gpu: gpus.Gpu | None) -> bool:
    """Whether a training that is planned may be as fast as the last one (see `measured`): of the same product and precision, and about
    as large. On a CPU, with as many threads too."""
    known = gpus.find(last["device"])
    product = known.name if known else gpus.plain(last["device"])
    same = product == gpus.plain(gpu.name) if gpu and last["cuda"] else not gpu and not last["cuda"]
    same = same and (gpu is not None or last["threads"] == train["threads"])
    ratio = last["parameters"] / summary["parameters"]["total"]
    return same and last["precision"] == train["precision"] and 1 / ALIKE <= ratio <= ALIKE


def by_last(last: dict[str, Any], train: dict[str, Any]) -> str:
    """`as the last training here`, with its engine where this one's is another: the speeds of the two are not the same."""
    engine = last.get("engine", train["engine"])
    return f"as the last training here{f', with engine {engine}' if engine != train['engine'] else ''}"


def other(last: dict[str, Any]) -> str:
    """Words that say why hours are not by the last training."""
    where = last["device"] if last["cuda"] else f"a CPU (threads: {last['threads']})"
    return f"; the last training here was another: {last['parameters']:,} parameters, {last['precision']}, on {where}"


def speed(
    summary: dict[str, Any],
    train: dict[str, Any],
    own: dict[str, Any],
    gpu: gpus.Gpu | None,
    last: dict[str, Any] | None,
) -> dict[str, Any]:
    """Hours, GPU-hours and money, and what they were made from; the latter alone where the GPU's peak for the precision is not known.

    last: as `measured` returns it; used where it is `alike`.
    """
    apart = ""
    if last and not alike(last, summary, train, gpu):
        apart, last = other(last), None
    operations, processes = summary["flops"]["total"], train["processes"] * train["nodes"]
    longer = RECOMPUTED if train["activation_checkpointing"] and not train["selective_checkpointing"] else 1.0
    if gpu is None:
        if last:
            rate, basis = last["flops"], f"{last['flops'] / 1e9:,.0f} GFLOP/s of a process, {by_last(last, train)}"
        else:
            busy = train["threads"] * train["processes"]
            rate = CPU * train["threads"] / longer * min(1.0, (os.cpu_count() or 1) / busy)
            basis = f"{CPU / 1e9:.0f} GFLOP/s of a thread, assumed{apart}"
        mfu = None
    elif (peak := peak_of(gpu.name, train["precision"])) is None:
        return {"basis": f"no peak of {gpus.named(gpu.name)} is known for {train['precision']}"}
    else:
        mfu = own["mfu"] or (last or {}).get("mfu") or MFU
        measured_here = not own["mfu"] and (last or {}).get("mfu")
        basis = f"an MFU of {mfu:.0%}, {by_last(last, train) if last and measured_here else 'set' if own['mfu'] else f'assumed{apart}'}"
        rate = mfu * peak / (1.0 if measured_here or own["mfu"] else longer)
    if not operations:
        return {
            "mfu": mfu,
            "basis": basis,
            "hours_per_billion_tokens": 1e9 * summary["flops"]["per_token"] / rate / processes / 3600,
        }
    found = {"mfu": mfu, "basis": basis, **cost(operations / rate / processes / 3600, processes if gpu else 0, own)}
    return found


def cost(hours: float, gpus: int, own: dict[str, Any]) -> dict[str, Any]:
    """Hours, GPU-hours on so many GPUs, and their price where `own`, pretrain.plan, has that of one."""
    found = {"hours": hours, "gpu_hours": hours * gpus}
    if gpus and own["gpu_hour_price"] is not None:
        return found | {"price": found["gpu_hours"] * own["gpu_hour_price"], "currency": own["currency"]}
    return found
