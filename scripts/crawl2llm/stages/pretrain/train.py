"""Pre-train a causal language model from scratch, by DeepSpeed or by torch alone; started by crawl2llm.training.launch.

Writes `model/` (safetensors and tokenizer, for transformers) and `losses.jsonl`, the loss of every step, both listed in
the manifest; `metrics.jsonl`, which also holds times, beside them. Everything that the run needs to resume is in
`checkpoints/<digest of settings and inputs>/`, relative to the working directory: kill it and start it again, also with another
number of processes. The position in the data follows from the step and from what roll backs left out, which the checkpoint records.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from crawl2llm.chain import command_line
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import (
    checkpoint,
    heldout,
    loop,
    loss_scale,
    metrics,
    mix_reader,
    mixture,
    model,
    packed_windows,
    program,
    token_staging,
)
from crawl2llm.training.callback import Callback
from crawl2llm.training.callbacks import early_stop, roll_back, skipped_steps
from crawl2llm.training.callbacks.async_failures import AsyncFailures
from crawl2llm.training.callbacks.checkpoints import Checkpoints
from crawl2llm.training.callbacks.early_stop import EarlyStop
from crawl2llm.training.callbacks.ema import UpdateEma
from crawl2llm.training.callbacks.expert_load import ExpertLoad
from crawl2llm.training.callbacks.loss_rows import LossRows, SyncRows
from crawl2llm.training.callbacks.memory_rehearsal import MemoryRehearsal
from crawl2llm.training.callbacks.phases import Phases
from crawl2llm.training.callbacks.process_stats import ProcessStats
from crawl2llm.training.callbacks.roll_back import RollBack
from crawl2llm.training.callbacks.skip_limit import SkipLimit
from crawl2llm.training.callbacks.skipped_steps import SkippedSteps
from crawl2llm.training.callbacks.speed import Speed
from crawl2llm.training.callbacks.validation import Validation, ValidationRows
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.processes import RESUBMIT
from crawl2llm.training.run import REMEDY, Run


def train_steps(run: Run, recorder: metrics.Recorder | None, signals: list[int]) -> bool:
    """Train from the checkpoint's step to the last, or to an early stop; False if a signal ended it early, after a checkpoint."""
    run.state.signals = signals
    return loop.train(run, callbacks_of(run, recorder))


def callbacks_of(run: Run, recorder: metrics.Recorder | None) -> list[Callback]:
    """What happens around the steps of a run, in this order. recorder: on process 0, which alone writes rows."""
    settings, steps = run.settings, run.plan.steps
    stopper = EarlyStop(run, settings.early_stop) if settings.early_stop else None
    may_end = stopper.may_stop_after if stopper else lambda _: False
    stats = ProcessStats(
        run.engine.decoder_layers, run.device, settings.log_every, steps, settings.straggler_threshold, may_end
    )
    callbacks = [
        AsyncFailures(run.checkpoint_writer) if run.checkpoint_writer else None,
        UpdateEma(run.engine, run.ema, run.room) if run.ema else None,
        SkippedSteps(run),
        LossRows(recorder) if recorder else None,
        RollBack(run, recorder) if run.rollback_interval else None,
        SkipLimit(settings.max_skipped_steps, run.skip_error),
        Phases(
            "reading tokens", settings.step_timeout
        ),  # after the roll back's rows, which may take longer than a step
        stats,
        MemoryRehearsal(run),
        ExpertLoad(run.engine.routers, recorder, settings.log_every, steps, run.wants_validation, may_end)
        if run.engine.routers
        else None,
        Speed(run, recorder, stats) if recorder else None,
        Validation(run.wants_validation, run.validate, run.keeps_best),
        stopper,
        ValidationRows(recorder, steps) if recorder else None,
        *run.extra_callbacks,
        Checkpoints(run.wants_checkpoint),
        SyncRows(recorder) if recorder else None,
    ]
    return [callback for callback in callbacks if callback]


def train_to_end(
    run: Run, recorder: metrics.Recorder | None, signals: list[int]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Train to the end: (weights, on process 0 alone; what the run trained on). A collective call.

    Ends this program with status RESUBMIT if a signal stopped it, after a checkpoint.
    """
    finished = train_steps(run, recorder, signals)
    weights = {name: value for name, value in run.weights() if recorder} if finished else {}
    made_on = run.machine_record()
    if not finished:
        raise SystemExit(RESUBMIT)
    return weights, made_on


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    signals = program.begin_training(settings.device)
    folder = command_line.checkpoint_folder(args)
    token_staging.stage_inputs(args, settings.stage_to)
    if os.environ["RANK"] != "0":
        train_to_end(Run(args, settings, folder), None, signals)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = Run(args, settings, folder)
        log_start(run)
        manifest.worked = run.state.done < run.plan.steps and not run.state.stopped
        with metrics.Recorder(
            folder,
            run.state.done,
            run.begun,
            tensorboard=settings.tensorboard,
            wandb=settings.wandb,
            project=settings.wandb_project,
            config=run.tracked,
            port=settings.prometheus_port,
        ) as recorder:
            weights, made_on = train_to_end(run, recorder, signals)
        manifest.run |= made_on
        return write_results(run, weights, manifest, args.manifest.parent)


def log_start(run: Run) -> None:
    """Log what is going to be trained, and from where."""
    plan, sizes = run.plan, run.parameters
    if run.resolved:
        resolved_text = ", ".join(f"{key} {value:,}" for key, value in run.resolved.items())
        log.info("auto, by %s training tokens: %s", f"{len(run.stream):,}", resolved_text)
    log.info(
        "%s parameters (%s without embeddings), %s steps of %s tokens = %.2f epochs, %d × %s, %s, ZeRO %d, %s",
        f"{sizes['total']:,}", f"{sizes['non_embedding']:,}", f"{plan.steps:,}", f"{plan.tokens_per_step:,}",
        plan.epochs, run.processes, run.device.type, run.kind, run.settings.zero_stage, run.settings.precision,
    )  # fmt: skip
    if run.packed:
        log.info("%s", packed_windows.totals_text(run.packed))
    done = run.state.done
    if done and (own_folder := run.folder / f"step-{done:06d}").is_dir():  # not at the beginning of a branch
        log.info("%s", checkpoint_folders.resume_line(own_folder, done, plan.steps))
    if not run.heldout_sizes["tokens"]:
        log.warning("the shards hold no validation documents: there will be no validation loss")
    for words in mixture.report_notes(run.engine.model.config, run.settings.router_bias_rate):
        log.warning("%s", words)


def write_results(run: Run, weights: dict[str, torch.Tensor], manifest: Manifest, out: Path) -> list[Path]:
    """Write model/, losses.jsonl and metrics.jsonl into `out`, fill the manifest's summary; the files to list."""
    if bad := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise command_line.InputError(
            f"the weights are not finite ({bad[0]} and {len(bad) - 1} more). {REMEDY.capitalize()}"
        )
    settings, plan, state = run.settings, run.plan, run.state
    done = state.stopped or plan.steps
    # Without those of the run that this one is a branch of.
    tokens = plan.tokens_until(done) - plan.tokens_until(run.begun)
    with checkpoint.detect_full_disk(out):
        tokenizer_files = model.companion_files(run.args.tokenizer)
        files = model.export(weights, run.engine.model.config, settings.save_dtype, tokenizer_files, out / model.FOLDER)
    for name in (metrics.LOSSES, metrics.METRICS):
        shutil.copyfile(run.folder / name, out / name)
    rows = metrics.read(out / metrics.LOSSES)
    losses, scores = [row for row in rows if "loss" in row], [row for row in rows if "bits_per_byte" in row]
    if state.best:  # whose weights these are
        losses = [row for row in losses if row["step"] == state.best and "bits_per_byte" not in row]
        scores = [row for row in scores if row["step"] == state.best]
    last = scores[-1].get("bits_per_byte_by_source", {}) if scores else {}
    by_source = {name: {"bits_per_byte": bits, **heldout.count_sizes(run.heldout, name)} for name, bits in last.items()}
    notes = []
    if settings.start_from is not None:
        after = f", after step {run.begun:,}" if run.begun else ""
        notes.append(f"Training began with the weights of {settings.start_from}{after}.")
    notes += (
        skipped_steps.report_notes(rows, done)
        + loss_scale.report_notes(run.engine.loss_scale(), state.overflows, done)
        + roll_back.report_notes(state.rolled)
        + early_stop.report_notes(state, plan.steps)
    )
    notes += mixture.report_notes(run.engine.model.config, run.settings.router_bias_rate)
    if run.packed:
        notes.append(packed_windows.totals_text(run.packed))
    if not scores:
        notes.append("The corpus has no validation documents: there is no validation loss.")
    notes += checkpoint_folders.code_change_notes(list(run.changed))
    manifest.summary = {
        "start_from": settings.start_from,
        **({"after_step": run.begun} if run.begun else {}),  # a step of the run that it is a branch of
        "parameters": {key: run.parameters[key] for key in ("total", "non_embedding")},
        "shape": {**run.tracked["model"], "vocabulary": run.vocabulary},
        "auto": run.resolved,
        "tokens": tokens,
        "steps": done,
        "epochs": tokens / plan.context / plan.windows,
        **mix_reader.manifest_summary(run.mix, rows, done),
        **({packed_windows.PACKING: run.packed} if run.packed else {}),
        "global_batch_tokens": plan.tokens_per_step,
        "learning_rate": settings.learning_rate,
        "loss": losses[-1]["loss"] if losses else None,
        "validation_loss": scores[-1]["validation_loss"] if scores else None,
        "bits_per_byte": scores[-1]["bits_per_byte"] if scores else None,
        **({"validation_by_source": by_source} if by_source else {}),
        "validation_tokens": run.heldout_sizes["tokens"],
        "validation_bytes": run.heldout_sizes["bytes"],
        "validation_documents": run.heldout_sizes["documents"],
        "skipped_steps": state.skipped,
        **loss_scale.metrics_row(run.engine.loss_scale(), state.overflows),
        **({"rolled_back": state.rolled} if state.rolled else {}),
        **early_stop.manifest_summary(state),
        "notes": notes,
        **({"other_code": list(run.changed)} if run.changed else {}),
    }
    return [*files, out / metrics.LOSSES]


main = program.TrainingProgram(
    "pretrain.train",
    __doc__,
    TrainSettings,
    body,
    always=True,  # its processes all start, and the newest checkpoint says what is to be done
)


if __name__ == "__main__":
    raise SystemExit(main())
