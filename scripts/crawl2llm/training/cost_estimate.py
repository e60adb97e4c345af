"""Hours, GPU-hours and money of a planned training, by what the last one reached where it was alike. Nothing here decides a byte."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, canonical_json, digest
from crawl2llm.training import gpus
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.measures import flops_per_token, peak_of
from crawl2llm.training.parameters import count_model_parameters, model_of_summary
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

MFU = 0.35  # assumed where none was measured: what trainings of models of a billion parameters report; smaller models reach less
ASSUMED = "assumed"
THREAD_FLOPS = 30e9  # assumed FLOP/s of a thread in fp32: two x86-64 cores reach 40 to 80 GFLOP/s (training/auto.py)
# Time with activation checkpointing: a forward pass more, 2 of then 8 operations a parameter and token.
RECOMPUTE_FACTOR = 4 / 3
# A training of so many times as many parameters, or as few, is another, whose speed says nothing.
COMPARABLE_RATIO = 4.0


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
    """Hours, GPU-hours and money, and what they were made from; the latter alone where the GPU's peak for the precision is not known.

    last: as `read_last_training` returns it; used if `is_comparable`. predicted: of prediction/predict.py, used if nothing was measured
    and if its `of` is the `speed_key` of this training.
    """
    mismatch_text = ""
    if last and not is_comparable(last, summary, train, gpu):
        mismatch_text, last = not_comparable_text(last), None
    operations, processes = summary["flops"]["total"], train.processes * train.nodes
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
            mfu, mfu_basis = plan_settings.mfu, "set"
        elif last and last.get("mfu"):
            mfu, mfu_basis = last["mfu"], last_training_basis(last, train.engine)
        elif predicted and predicted["of"] == speed_key(summary, train, plan_settings, gpu):
            mfu, mfu_basis = predicted["mfu"], f"predicted by {predicted['basis']}{mismatch_text}"
        else:
            hint = (
                " (a prediction for other settings is there: --forcerun pretrain_plan makes another)"
                if predicted
                else ""
            )
            mfu, mfu_basis, slowdown = MFU, f"{ASSUMED}{hint}{mismatch_text}", longer
        basis = f"an MFU of {mfu:.0%}, {mfu_basis}"
        rate = mfu * peak / slowdown
    if not operations:
        return {
            "mfu": mfu,
            "basis": basis,
            "hours_per_billion_tokens": 1e9 * summary["flops"]["per_token"] / rate / processes / 3600,
        }
    estimate = {
        "mfu": mfu,
        "basis": basis,
        **price_hours(operations / rate / processes / 3600, processes if gpu else 0, plan_settings),
    }
    return estimate


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
