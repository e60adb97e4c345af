"""Hours, GPU-hours and money of a planned training, by what the last one reached where it was alike. Nothing here decides a byte."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, canonical_json, digest
from crawl2llm.training import auto, gpus
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.measures import flops_per_token, peak_of
from crawl2llm.training.parameters import count_model_parameters, model_of_summary
from crawl2llm.training.pretraining_settings import PlanSettings, ResolvedModel, TrainSettings

Source = Literal["assumed", "predicted", "measured", "set"]  # of a speed
MFU = 0.35  # assumed where none was measured: what trainings of models of a billion parameters report; smaller models reach less
THREAD_FLOPS = 30e9  # assumed FLOP/s of a thread in fp32: two x86-64 cores reach 40 to 80 GFLOP/s (training/auto.py)
# Time with activation checkpointing: a forward pass more, 2 of then 8 operations a parameter and token.
RECOMPUTE_FACTOR = 4 / 3
# A training of so many times as many parameters, or as few, is another, whose speed says nothing.
COMPARABLE_RATIO = 4.0
MICRO_BATCH = 16  # most sequences that a GPU takes at once: of the largest model that is chosen, 52 of 80 GB
# MFU that prediction/predict.py says of an H100 and of eight of a node with `gpu_settings`, by hidden size and layers of auto.TABLE:
# `python -m tools.node_mfu`.
PREDICTED_MFU = {
    (64, 2): (0.0019, 0.00018),
    (96, 3): (0.0046, 0.00042),
    (128, 4): (0.0097, 0.0017),
    (256, 8): (0.078, 0.054),
    (512, 8): (0.27, 0.25),
    (576, 30): (0.35, 0.34),
    (960, 32): (0.44, 0.43),
    (2048, 22): (0.54, 0.53),
}


def read_last_training(folder: Path) -> dict[str, Any] | None:
    """What the last training whose results lie in `folder` reached; None if there is none.

    `flops`: FLOP/s of a process, the median of its log; `mfu`: over the peak of its GPU in its precision, None if none is known. The
    rest says what it was the speed of.
    """
    try:
        last = Manifest.of_task(folder / "manifest.json")
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        run_record = record.read(folder / "manifest.json")
        speed = median(row["tokens_per_second"] for row in rows if row.get("tokens_per_second"))
        model = model_of_summary(last.summary["shape"])
        counted = count_model_parameters(model, last.summary["shape"]["vocabulary"])
        token_flops = flops_per_token(counted.multiplied, model.layers, counted.width, model.context)
        flops, device = speed * token_flops / run_record["processes"], next(iter(run_record["devices"]))
        train = TrainSettings.model_construct(**run_record["fingerprint"]["config"])
    except (ManifestError, OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    peak = peak_of(device, train.precision) if run_record.get("device") == "cuda" else None
    return {
        "flops": flops,
        "mfu": flops / peak if peak else None,
        "device": device,
        "cuda": run_record.get("device") == "cuda",
        "precision": train.precision,
        "threads": train.threads,
        "engine": train.engine,
        "parameters": counted.total,
    }


def read_prediction(folder: Path) -> dict[str, Any] | None:
    """The predicted speed in the record of pretrain.plan's results in `folder`; None without one."""
    try:
        predicted = record.read(folder / "manifest.json")["plan"]["predicted"]
        return predicted if isinstance(predicted, dict) and {"of", "mfu", "basis"} <= predicted.keys() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_comparable(last: dict[str, Any], summary: dict[str, Any], train: TrainSettings, gpu: gpus.Gpu | None) -> bool:
    """Whether a training that is planned may be as fast as the last one (see `read_last_training`): of the same product and precision, and
    about as large. On a CPU, with as many threads too.
    """
    known_gpu = gpus.find(last["device"])
    product = known_gpu.name if known_gpu else gpus.normalize_name(last["device"])
    same = product == gpus.normalize_name(gpu.name) if gpu and last["cuda"] else not gpu and not last["cuda"]
    same = same and (gpu is not None or last["threads"] == train.threads)
    ratio = last["parameters"] / summary["parameters"]["total"]
    return same and last["precision"] == train.precision and 1 / COMPARABLE_RATIO <= ratio <= COMPARABLE_RATIO


def gpu_settings(global_batch_tokens: int, context: int, processes: int) -> dict[str, Any]:
    """Keys of pretrain.train that are fast on so many GPUs of a node: what `crawl2llm new --gpus` writes."""
    return {
        "processes": processes,
        "micro_batch": max(1, min(MICRO_BATCH, global_batch_tokens // context // processes)),
        "engine": "torch",
        "zero_stage": int(processes > 1),
        "precision": "bf16",
        **({} if processes > 1 else {"autocast": False}),
        "compile_layers": True,
        "loss_chunk": gpus.LOSS_CHUNK,
        "save_dtype": "bf16",
    }


def node_mfu(model: ResolvedModel, processes: int) -> float:
    """The predicted MFU of a training on so many H100 of a node, with `gpu_settings`. Several GPUs count as eight.

    model: of a row of auto.TABLE.
    """
    by_number = PREDICTED_MFU[model.hidden_size, model.layers]
    return by_number[0] if processes == 1 else by_number[1]


def tabled_mfu(summary: dict[str, Any], train: TrainSettings, gpu: gpus.Gpu) -> float | None:
    """`node_mfu` of a training that is planned, if its model, its settings and its GPU are those of the table; else None."""
    model, context = model_of_summary(summary["shape"]), summary["shape"]["context"]
    names = ("hidden_size", "layers", "heads", "kv_heads", "intermediate_size", "context")
    rows = {tuple(getattr(row, name) for name in names) for row in auto.TABLE}
    if gpu.name != "h100" or model.type != "llama" or tuple(getattr(model, name) for name in names) not in rows:
        return None
    settings = gpu_settings(summary["global_batch_tokens"], context, train.processes)
    for name in ("nodes", "optimizer", "activation_checkpointing", "parallel", "document_masking"):
        settings[name] = getattr(TrainSettings(), name)
    del settings["save_dtype"]  # of what is written
    is_alike = all(getattr(train, name) == value for name, value in settings.items())
    return node_mfu(model, train.processes) if is_alike else None


def last_training_basis(last: dict[str, Any], engine: str) -> str:
    """`as the last training here`, with its engine where this one's, `engine`, is another: the speeds of the two are not the same."""
    last_engine = last.get("engine", engine)
    return f"as the last training here{f', with engine {last_engine}' if last_engine != engine else ''}"


def not_comparable_text(last: dict[str, Any]) -> str:
    """Words that say why hours are not by the last training."""
    where = last["device"] if last["cuda"] else f"a CPU (threads: {last['threads']})"
    return f"; the last training here was another: {last['parameters']:,} parameters, {last['precision']}, on {where}"


def estimate_cost(
    summary: dict[str, Any],
    train: TrainSettings,
    plan_settings: PlanSettings,
    gpu: gpus.Gpu | None,
    last: dict[str, Any] | None,
    predicted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Hours, GPU-hours and money, and what they were made from: `basis` in words, and `source`, a Source of the speed.

    `basis` alone if the GPU's peak for the precision is not known.
    last: as `read_last_training` returns it; used if `is_comparable`. predicted: of prediction/predict.py, used if nothing was measured
    and if its `of` is the `speed_key` of this training.
    """
    mismatch_text = ""
    if last and not is_comparable(last, summary, train, gpu):
        mismatch_text, last = not_comparable_text(last), None
    operations, processes = summary["flops"]["total"], train.processes * train.nodes
    source: Source = "measured" if last else "assumed"
    longer = RECOMPUTE_FACTOR if train.activation_checkpointing and not train.selective_checkpointing else 1.0
    if gpu is None:
        if last:
            rate = last["flops"]
            basis = f"{rate / 1e9:,.0f} GFLOP/s of a process, {last_training_basis(last, train.engine)}"
        else:
            busy = train.threads * train.processes
            rate = THREAD_FLOPS * train.threads / longer * min(1.0, (os.cpu_count() or 1) / busy)
            basis = f"{THREAD_FLOPS / 1e9:.0f} GFLOP/s of a thread, assumed{mismatch_text}"
        mfu = None
    elif (peak := peak_of(gpu.name, train.precision)) is None:
        return {"basis": f"no peak of {gpus.with_article(gpu.name)} is known for {train.precision}"}
    else:
        slowdown = 1.0
        if plan_settings.mfu:
            mfu, mfu_basis, source = plan_settings.mfu, "set", "set"
        elif last and last.get("mfu"):
            mfu, mfu_basis = last["mfu"], last_training_basis(last, train.engine)
        elif predicted and predicted["of"] == speed_key(summary, train, plan_settings, gpu):
            mfu, source = predicted["mfu"], "predicted"
            mfu_basis = f"predicted by {predicted['basis']}{mismatch_text}"
        elif tabled := tabled_mfu(summary, train, gpu):  # "assumed" still: pretrain.plan counts the very step
            mfu, mfu_basis = tabled, f"predicted for what `crawl2llm new --gpus` writes{mismatch_text}"
        else:
            hint = (
                " (a prediction for other settings is there: --forcerun pretrain_plan makes another)"
                if predicted
                else ""
            )
            mfu, mfu_basis, slowdown, source = MFU, f"assumed{hint}{mismatch_text}", longer, "assumed"
        share = f"{mfu:.0%}" if mfu >= 0.01 else f"{mfu:.2%}"  # of a small model
        basis = f"an MFU of {share}, {mfu_basis}"
        rate = mfu * peak / slowdown
    estimate = {"mfu": mfu, "basis": basis, "source": source}
    if not operations:
        return estimate | {
            "hours_per_billion_tokens": 1e9 * summary["flops"]["per_token"] / rate / processes / 3600,
        }
    hours = operations / rate / processes / 3600
    return estimate | price_hours(hours, processes if gpu else 0, plan_settings)


def speed_key(summary: dict[str, Any], train: TrainSettings, plan_settings: PlanSettings, gpu: gpus.Gpu) -> str:
    """A digest of what a predicted speed holds for: GPU and what was measured of it, model, batch, and all that an engine knows."""
    names = (
        "micro_batch", "processes", "nodes", "activation_checkpointing", "selective_checkpointing", "async_checkpoints",
    )  # fmt: skip
    placement = {name: getattr(train, name) for name in names} | {"parallel": dict(train.parallel)}
    engine = asdict(replace(EngineSettings.of_pretraining(train), pretraining=None))
    sizes = {"gpu": gpu.name, "shape": summary["shape"], "global_batch_tokens": summary["global_batch_tokens"]}
    check = Path(plan_settings.gpu_check) if plan_settings.gpu_check else None
    measured = hashlib.sha256(check.read_bytes()).hexdigest() if check and check.is_file() else None
    return digest(canonical_json([sizes, placement, engine, measured]))


def price_hours(hours: float, gpus: int, plan_settings: PlanSettings) -> dict[str, Any]:
    """Hours, GPU-hours on so many GPUs, and their price if `plan_settings`, pretrain.plan, has that of one."""
    estimate = {"hours": hours, "gpu_hours": hours * gpus}
    if gpus and plan_settings.gpu_hour_price is not None:
        return estimate | {
            "price": estimate["gpu_hours"] * plan_settings.gpu_hour_price,
            "currency": plan_settings.currency,
        }
    return estimate
