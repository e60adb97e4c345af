"""Pre-train a causal language model from scratch, by DeepSpeed or by torch alone; started by crawl2llm.training.launch.

Writes `model/` (safetensors and tokenizer, for transformers) and `losses.jsonl`, the loss of every step, both listed in
the manifest; `metrics.jsonl`, which also holds times, beside them. Everything that the run needs to resume lies in
`checkpoints/<digest of settings and inputs>/`, relative to the working directory: kill it and start it again, also with another
number of processes. The position in the data follows from the step, and from what a roll back left out, which the checkpoint has.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from crawl2llm.chain import command_line
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import (
    checkpoint,
    early_stopping,
    group,
    heartbeat,
    heldout,
    loss_scale,
    metrics,
    mix_reader,
    mixture,
    model,
    process_stats,
    program,
    rollback,
    skips,
    token_staging,
)
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.processes import RESUBMIT, on_stop_signal
from crawl2llm.training.progress import Clock, Pace
from crawl2llm.training.run import REMEDY, Run


def train_steps(run: Run, recorder: metrics.Recorder | None, stopping: list[int]) -> bool:
    """Train from the checkpoint's step to the last, or to an early stop; False where a signal ended it early, after a checkpoint."""
    while (finished := train_stretch(run, recorder, stopping)) is None:
        pass  # gone back
    if finished:
        early_stopping.load_best_weights(run)
        group.wait_at_most(group.LONGEST_WAIT)
        heartbeat.set_phase("writing the model")
    return finished


def train_stretch(run: Run, recorder: metrics.Recorder | None, stopping: list[int]) -> bool | None:
    """Train from `run.done` on: as `train_steps` returns, and None where the run has gone back and is to go on from there."""
    steps, settings, clock = run.plan.steps, run.settings, Clock()
    last = run.stopped or steps
    rollback.forget_undone_rows(run, recorder)
    group.begin_steps(settings.step_timeout)
    vital = process_stats.Vitals(
        run.engine.decoder_layers(), run.device, settings.log_every, steps, settings.straggler_threshold
    )
    with vital, ThreadPoolExecutor(1) as reader:  # reads a step ahead
        if run.done < last:
            with run.room("a validation, tried before the first step"):
                run.rehearse_validation()
        pace = Pace(run, recorder, clock, vital) if recorder else None
        following = reader.submit(run.read_batch, run.done + 1)
        for step in range(run.done + 1, last + 1):
            heartbeat.set_phase("reading tokens", step)
            with vital.timed_reading(step, early_stopping.may_stop_at(run, step)):
                batch, following = following.result(), reader.submit(run.read_batch, step + 1)
            with run.room(f"step {step:,}"):
                loss, stop = run.step(step, batch, bool(stopping))
            row: dict[str, Any] = {"step": step, "loss": loss} if math.isfinite(loss) else {"step": step}
            if run.mix:
                row |= run.mix.loss_row(run.step_windows(step))
            if not run.update.applied:
                row |= skips.skipped_row(run, step, loss)
            if recorder:
                recorder.write_loss(row)
            if back := rollback.target_step(run, step):
                rollback.go_back(run, recorder, step, back)
                if recorder:
                    recorder.add_seconds(clock.total_seconds)
                return None
            run.check_skipped(settings.max_skipped_steps)
            everyone = vital.gather_measures()
            if pace:
                pace.record_step(step, loss, everyone)
            validation, best, over = None, False, False
            if run.wants_validation(step):
                with clock.pause():
                    validation, best, over = validate_after(run, recorder, step)
                if over and pace:
                    pace.record_last_step(step, loss, everyone)
            if stop or best or over or run.wants_checkpoint(step):
                heartbeat.set_phase("checkpoint")
                with clock.pause():
                    if recorder:
                        recorder.sync()  # a complete checkpoint has all its rows
                    run.save(step, validation, end=stop or over or step == steps)
            if over:
                break
            if stop and step < steps:
                log.info("stopped by a signal after step %s; the checkpoint is in %s", f"{step:,}", run.folder)
                return False
    return True


def validate_after(run: Run, recorder: metrics.Recorder | None, step: int) -> tuple[float | None, bool, bool]:
    """Validate after a step: (its loss, whether it is to be kept as the best so far, whether the run ends with it). A collective call."""
    heartbeat.set_phase("validation")
    lowest = run.lowest
    validation = run.validate()
    best, over = run.keeps_best and run.lowest != lowest, early_stopping.should_stop(run, step)
    if recorder and validation:
        recorder.write_validation(step, run.plan.steps, validation, over)
    return validation["loss"] if validation else None, best, over


def train_to_end(
    run: Run, recorder: metrics.Recorder | None, stopping: list[int]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Train to the end: (weights, on process 0 alone; what the run trained on). A collective call.

    Ends this program with status RESUBMIT where a signal stopped it after a checkpoint.
    """
    finished = train_steps(run, recorder, stopping)
    weights = {name: value for name, value in run.weights() if recorder} if finished else {}
    made_on = run.machine_record()
    if not finished:
        raise SystemExit(RESUBMIT)
    return weights, made_on


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    heartbeat.start_beats()
    stopping: list[int] = []
    on_stop_signal(lambda number, _: stopping.append(number))
    folder = command_line.checkpoint_folder(args)
    args.tokens = token_staging.stage_tokens(args.tokens, settings.stage_to)
    if os.environ["RANK"] != "0":
        train_to_end(Run(args, settings, folder), None, stopping)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = Run(args, settings, folder)
        log_start(run)
        manifest.worked = run.done < run.plan.steps and not run.stopped
        with metrics.Recorder(
            folder,
            run.done,
            run.begun,
            tensorboard=settings.tensorboard,
            wandb=settings.wandb,
            project=settings.wandb_project,
            config=run.tracked,
            port=settings.prometheus_port,
        ) as recorder:
            weights, made_on = train_to_end(run, recorder, stopping)
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
    if run.done and (own_folder := run.folder / f"step-{run.done:06d}").is_dir():  # not where a branch begins
        log.info("%s", checkpoint_folders.resume_line(own_folder, run.done, plan.steps))
    if not run.validation_tokens:
        log.warning("the shards hold no validation documents: there will be no validation loss")
    for words in mixture.report_notes(run.engine.model.config):
        log.warning("%s", words)


def write_results(run: Run, weights: dict[str, torch.Tensor], manifest: Manifest, out: Path) -> list[Path]:
    """Write model/, losses.jsonl and metrics.jsonl into `out`, fill the manifest's summary; the files to list."""
    if bad := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise command_line.InputError(
            f"the weights are not finite ({bad[0]} and {len(bad) - 1} more). {REMEDY.capitalize()}"
        )
    settings, plan = run.settings, run.plan
    done = run.stopped or plan.steps
    tokens = plan.tokens_until(done) - plan.tokens_until(
        run.begun
    )  # without those of the run that this one is a branch of
    with checkpoint.detect_full_disk(out):
        tokenizer_files = model.companion_files(run.args.tokenizer)
        files = model.export(weights, run.engine.model.config, settings.save_dtype, tokenizer_files, out / model.FOLDER)
    for name in (metrics.LOSSES, metrics.METRICS):
        shutil.copyfile(run.folder / name, out / name)
    rows = metrics.read(out / metrics.LOSSES)
    losses, scores = [row for row in rows if "loss" in row], [row for row in rows if "bits_per_byte" in row]
    if run.best:  # whose weights these are
        losses = [row for row in losses if row["step"] == run.best and "bits_per_byte" not in row]
        scores = [row for row in scores if row["step"] == run.best]
    last = scores[-1].get("bits_per_byte_by_source", {}) if scores else {}
    by_source = {name: {"bits_per_byte": bits, **heldout.count_sizes(run.heldout, name)} for name, bits in last.items()}
    notes = []
    if settings.start_from is not None:
        after = f", after step {run.begun:,}" if run.begun else ""
        notes.append(f"Training began with the weights of {settings.start_from}{after}.")
    notes += (
        skips.report_notes(rows, done)
        + loss_scale.report_notes(run.engine.loss_scale(), run.overflows, done)
        + rollback.report_notes(run.rolled)
        + early_stopping.report_notes(run)
    )
    notes += mixture.report_notes(run.engine.model.config)
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
        "global_batch_tokens": plan.tokens_per_step,
        "learning_rate": settings.learning_rate,
        "loss": losses[-1]["loss"] if losses else None,
        "validation_loss": scores[-1]["validation_loss"] if scores else None,
        "bits_per_byte": scores[-1]["bits_per_byte"] if scores else None,
        **({"validation_by_source": by_source} if by_source else {}),
        "validation_tokens": run.validation_tokens,
        "validation_bytes": run.validation_bytes,
        "validation_documents": run.validation_documents,
        "skipped_steps": run.skipped,
        **loss_scale.metrics_row(run.engine.loss_scale(), run.overflows),
        **({"rolled_back": run.rolled} if run.rolled else {}),
        **early_stopping.manifest_summary(run),
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
