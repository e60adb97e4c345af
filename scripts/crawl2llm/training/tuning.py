"""Tune a model by a class of runs (pair_run.Run and those of stages/align): the training, what is measured, and the results."""

from __future__ import annotations

import argparse
import math
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from crawl2llm.chain import command_line, config_schema
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.training import (
    adapters,
    checkpoint,
    checkpoint_integrity,
    loop,
    loss_scale,
    metrics,
    mixture,
    model,
    pair_batches,
    program,
    prometheus,
)
from crawl2llm.training.callback import Callback
from crawl2llm.training.callbacks.async_failures import AsyncFailures
from crawl2llm.training.callbacks.checkpoints import Checkpoints
from crawl2llm.training.callbacks.loss_rows import LossRows, SyncRows
from crawl2llm.training.callbacks.phases import Phases
from crawl2llm.training.callbacks.skip_limit import SkipLimit
from crawl2llm.training.callbacks.tuning_rows import TuningRows
from crawl2llm.training.model_loading import model_folder, model_name, verify_weights
from crawl2llm.training.pair_run import Run
from crawl2llm.training.processes import RESUBMIT
from crawl2llm.training.shared_settings import TuningSettings
from crawl2llm.training.template import has_enough_pairs

RUN_FILES = (  # beside checkpoints; charts stay
    metrics.LOSSES,
    metrics.METRICS,
    prometheus.FILE,
    command_line.LOG,
    checkpoint_folders.POINTER,
)
KEPT_FILES = (metrics.LOSSES, checkpoint_folders.POINTER)  # which tell whose checkpoints they are


def run_tuning(kind: type[Run], args: argparse.Namespace, settings: TuningSettings, manifest: Manifest) -> list[Path]:
    """Train by a run of this class, and write the results; returns the manifest's files on process 0 and nothing on the others."""
    signals = program.begin_training(settings.device)
    first, folder = os.environ["RANK"] == "0", command_line.checkpoint_folder(args)
    # Process 0 compares checksums; if it fails, the launcher ends the others.
    source = verify_weights(args.model)[1] if first else model_folder(args.model) / model.FOLDER
    if kind is Run and not has_enough_pairs(args.pairs, "train"):
        return pass_on_model(args, source, manifest) if first else []
    if not first:
        train_and_measure(kind(args, settings, folder, source), None, signals)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = kind(args, settings, folder, source)
        log.info(
            "%s parameters, %s steps of %s %s, %d × %s, %s, ZeRO %d, %s",
            f"{run.size:,}", f"{run.steps:,}", f"{settings.batch_size:,}", run.batch_noun, run.processes, run.device.type, run.kind,
            settings.zero_stage, settings.precision,
        )  # fmt: skip
        cut = pair_batches.report_notes(
            *run.cuts, settings.max_length, run.batches.template.cut, run.where, run.row_noun
        )
        for words in (*cut, *mixture.report_notes(run.engine.model.config)):
            log.warning("%s", words)
        if done := run.state.done:
            log.info("%s", checkpoint_folders.resume_line(folder / f"step-{done:06d}", done, run.steps))
        with metrics.Recorder(
            folder,
            run.state.done,
            0,
            tensorboard=settings.tensorboard,
            wandb=settings.wandb,
            project=settings.wandb_project,
            config=config_schema.given_settings(run.where, settings),
        ) as recorder:
            tensors, made_on = train_and_measure(run, recorder, signals)
        manifest.run |= made_on
        return write_results(run, tensors, manifest)


def train_and_measure(
    run: Run, recorder: metrics.Recorder | None, signals: list[int]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Train, and measure before and after; (weights, on process 0 alone; what the run trained on). A collective call.

    Ends this program with status RESUBMIT if a signal stopped it, after a checkpoint.
    """
    report_measures(recorder, "before", 0, run.before)
    run.state.signals = signals
    ended = loop.train(run, callbacks_of(run, recorder))
    if ended:
        run.after = run.measure_heldout()
        report_measures(recorder, "after", run.steps, run.after)
    made_on = run.machine_record()
    if not ended:
        raise SystemExit(RESUBMIT)
    if len(run.state.skipped) == run.steps or not all(map(math.isfinite, run.after.values())):
        raise checkpoint.CollectiveError(f"the loss is no longer finite ({run.after}); lower {run.where}.learning_rate")
    return {key: value for key, value in run.engine.master_weights() if recorder}, made_on


def report_measures(recorder: metrics.Recorder | None, when: str, step: int, measures: dict[str, float]) -> None:
    """Show what was measured on the held-out part, unless nothing was or a resumed run has the row already."""
    if not recorder or not measures:
        return
    if any(
        row["step"] == step and measures.keys() & row.keys() for row in metrics.read(recorder.folder / metrics.METRICS)
    ):
        return
    recorder.write_metrics({"step": step, **measures})
    for key, value in measures.items():
        unit = " nats a token" if key == "heldout_loss" else ""
        log.info("%s %s: %.4f%s", key.replace("_", " ").replace("heldout", "held-out"), when, value, unit)


def callbacks_of(run: Run, recorder: metrics.Recorder | None) -> list[Callback]:
    """What happens around the steps of a run, in this order. recorder: on process 0, which alone writes rows."""
    callbacks = [
        Phases("reading pairs", run.settings.step_timeout),
        AsyncFailures(run.checkpoint_writer) if run.checkpoint_writer else None,
        *run.extra_callbacks,
        LossRows(recorder) if recorder else None,
        TuningRows(run, recorder) if recorder else None,
        SkipLimit(run.settings.max_skipped_steps, run.skip_error),
        Checkpoints(run.wants_checkpoint),
        SyncRows(recorder) if recorder else None,
    ]
    return [callback for callback in callbacks if callback]


def write_results(run: Run, tensors: dict[str, torch.Tensor], manifest: Manifest) -> list[Path]:
    """Write model/, losses.jsonl and metrics.jsonl, and fill the manifest's summary; the files to list."""
    if bad := [key for key, value in tensors.items() if not value.isfinite().all()]:
        raise command_line.InputError(
            f"the weights are not finite ({bad[0]} and {len(bad) - 1} more); lower {run.where}.learning_rate"
        )
    out, state = model_folder(run.args.manifest), run.state
    out.mkdir(exist_ok=True)
    with checkpoint.detect_full_disk(out):
        whole = adapters.merged_weights(tensors, run.engine_settings, run.adapted()) if run.adapted else tensors
        files = model.export(whole, run.engine.model.config, run.save_dtype, run.companions(), out / model.FOLDER)
        shutil.rmtree(out / adapters.FOLDER, ignore_errors=True)  # of other settings
        if run.adapted:
            files += adapters.write(tensors, run.engine_settings, out / adapters.FOLDER)
    for file in (metrics.LOSSES, metrics.METRICS):
        shutil.copyfile(run.folder / file, out / file)
    losses = [row["loss"] for row in metrics.read(out / metrics.LOSSES) if "loss" in row]
    notes = [
        f"{len(state.skipped)} of {run.steps} steps were skipped, since their loss or gradient was not finite: "
        f"{', '.join(map(str, state.skipped))} (their pairs are in losses.jsonl)."
    ]
    cut = pair_batches.report_notes(
        *run.cuts, run.settings.max_length, run.batches.template.cut, run.where, run.row_noun
    )
    changed = list(run.changed)
    manifest.summary = {
        "trained": True,
        "parameters": run.size,
        **({"trained_parameters": run.trained} if run.adapted else {}),
        **run.summary_facts(),
        **pair_batches.cuts_summary(*run.cuts),
        "steps": run.steps,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "skipped_steps": state.skipped,
        **loss_scale.metrics_row(run.engine.loss_scale(), state.overflows),
        "notes": [
            *(notes if state.skipped else []),
            *loss_scale.report_notes(run.engine.loss_scale(), state.overflows, run.steps),
            *cut,
            *mixture.report_notes(run.engine.model.config),
            *run.report_notes(),
            *checkpoint_folders.code_change_notes(changed),
        ],
        **({"other_code": changed} if changed else {}),
    }
    return [*files, out / metrics.LOSSES, *run.write_extra_files(out)]


def remove_checkpoints(args: argparse.Namespace) -> None:
    """Remove a finished run's checkpoints, but for those of `keep_every`, and what lies beside them but charts.

    Only once its manifest is written: a run that is killed before, or finds the disk full, resumes from them.
    """
    folder = command_line.checkpoint_folder(args)
    if not folder.is_dir():
        return
    try:
        with checkpoint_folders.hold_folder(folder):
            saved = checkpoint.complete_checkpoints(folder) if args.keep_every else []
            kept = [each.path for each in saved if each.step % args.keep_every == 0]
            for path in (*folder.glob("step-*"), *folder.glob(f"{checkpoint_integrity.DAMAGED_PREFIX}*")):
                if path not in kept:
                    shutil.rmtree(path, ignore_errors=True)
            for file in RUN_FILES:
                if not (kept and file in KEPT_FILES):
                    (folder / file).unlink(missing_ok=True)
            checkpoint_folders.remove_if_empty(folder)
    except (OSError, checkpoint_folders.FolderInUseError) as error:
        log.warning("the checkpoints in %s are not removed: %s", folder, error)


def pass_on_model(args: argparse.Namespace, source: Path, manifest: Manifest) -> list[Path]:
    """With too few pairs: copy the model that it is made from, and say so in the summary; returns the files.

    source: the folder of that model's weights.
    """
    out, pairs = model_folder(args.manifest), Manifest.read(args.pairs)
    out.mkdir(exist_ok=True)
    for folder in (model.FOLDER, adapters.FOLDER):
        shutil.rmtree(out / folder, ignore_errors=True)
    shutil.copytree(source, out / model.FOLDER)
    (out / metrics.LOSSES).write_bytes(b"")
    (out / metrics.METRICS).unlink(missing_ok=True)
    subject, few = task_of(args.manifest) or "The model", pairs.summary["train"]
    note = f"{subject} was not fine-tuned, it is the model {model_name(args.model)}: {few} training pairs are too few."
    manifest.summary = {
        "trained": False,
        "parameters": model.count_parameters(
            AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        ),
        "pairs": pairs.summary["train"],
        "heldout_pairs": pairs.summary["heldout"],
        "steps": 0,
        "notes": [note],
    }
    log.warning("%s", note)
    return [*sorted((out / model.FOLDER).iterdir()), out / metrics.LOSSES]
