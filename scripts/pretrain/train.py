"""Pre-train a causal language model from scratch, by DeepSpeed or by torch alone; started by scripts.training.launch.

Writes `model/` (safetensors and tokenizer, for transformers) and `losses.jsonl`, the loss of every step, both listed in
the manifest; `metrics.jsonl`, which also holds times, beside them. Everything that the run needs to resume lies in
`checkpoints/<digest of settings and inputs>/`, relative to the working directory: kill it and start it again, also with another
number of processes. The position in the data is the step, and nothing else is random after the weights' start.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from scripts.pretrain import (
    checkpoint,
    early,
    group,
    heldout,
    measures,
    metrics,
    model,
    rollback,
    schedule,
    skips,
    vitals,
)
from scripts.pretrain.run import REMEDY, Run
from scripts.training import alive, program, runs, staging
from scripts.training.processes import RESUBMIT, listen
from scripts.workflow import cli
from scripts.workflow.console import duration, log
from scripts.workflow.manifest import Manifest

TIMED = 10  # steps after which the rest is foretold
DAY = 86_400.0  # seconds


class Clock:
    """Time of training alone: what stands in `paused`, validations and checkpoints, does not count."""

    def __init__(self) -> None:
        self.begun = self.shown = time.monotonic()
        self.pauses = 0.0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A part of the loop that is no training."""
        before = time.monotonic()
        yield
        pause = time.monotonic() - before
        self.begun, self.shown, self.pauses = self.begun + pause, self.shown + pause, self.pauses + pause

    @property
    def trained(self) -> float:
        """Seconds of training."""
        return time.monotonic() - self.begun

    @property
    def whole(self) -> float:
        """Seconds, pauses among them."""
        return self.trained + self.pauses

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        now = time.monotonic()
        since, self.shown = now - self.shown, now
        return since


def train(run: Run, recorder: metrics.Recorder | None, stopping: list[int]) -> bool:
    """Train from the checkpoint's step to the last, or to an early stop; False where a signal ended it early, after a checkpoint."""
    while (finished := stretch(run, recorder, stopping)) is None:
        pass  # gone back
    if finished:
        early.choose(run)
        group.wait_at_most(group.ALONE)
        alive.at("writing the model")
    return finished


def stretch(run: Run, recorder: metrics.Recorder | None, stopping: list[int]) -> bool | None:
    """Train from `run.done` on: as `train` returns, and None where the run has gone back and is to go on from there."""
    steps, tokens, args = run.plan.steps, run.plan.tokens, run.args
    points = rollback.point_every(run.settings)
    clock, shown = Clock(), run.done
    rollback.settle(run, recorder)
    group.begin_steps(args.step_timeout)
    vital = vitals.Vitals(run.engine.blocks(), run.device, args.log_every, steps, args.straggler_threshold)
    last = run.stopped or steps
    if run.done < last:
        with run.room("a validation, tried before the first step"):
            run.rehearse()
    with ThreadPoolExecutor(1) as reader:  # reads a step ahead
        following = reader.submit(run.batch, run.done + 1)
        for step in range(run.done + 1, last + 1):
            alive.at("reading tokens", step)
            with vital.reading(step):
                batch, following = following.result(), reader.submit(run.batch, step + 1)
            with run.room(f"step {step:,}"):
                loss, stop = run.step(step, batch, bool(stopping))
            row: dict[str, Any] = {"step": step, "loss": loss} if math.isfinite(loss) else {"step": step}
            if not run.update.applied:
                row |= skips.row(run, step, loss)
            if recorder:
                recorder.loss(row)
            if back := rollback.point(run, step):
                rollback.go(run, recorder, step, back)
                if recorder:
                    recorder.seconds += clock.whole
                vital.close()
                return None
            run.check_skipped(args.max_skipped_steps)
            everyone = vital.shared()
            if recorder and (step % args.log_every == 0 or step == steps):
                progress(run, recorder, clock, vital, everyone, step, shown, loss)
                shown = step
            if recorder and step == run.done + TIMED and step < steps:
                spent = tokens(step) - tokens(run.done)
                foretell((tokens(steps) - tokens(step)) * clock.trained / spent, run.device.type)
            every = run.settings["validate_every"]
            found, best, over = None, False, False
            if step == steps or (every and step % every == 0):
                alive.at("validation")
                lowest = run.lowest
                with clock.paused():
                    found = run.validate()
                best = run.keeps_best and run.lowest != lowest
                over = early.over(run, step)
                if recorder and found:
                    recorder.validation(step, steps, found, over)
            wanted = (step % every == 0 for every in (args.checkpoint_every, args.keep_every, points) if every)
            if stop or best or over or step == steps or any(wanted):
                alive.at("checkpoint")
                with clock.paused():
                    if recorder:
                        recorder.sync()  # a complete checkpoint has all its rows
                    run.save(step, found["loss"] if found else None, stop or over or step == steps)
            if over:
                break
            if stop and step < steps:
                log.info("stopped by a signal after step %s; the checkpoint is in %s", f"{step:,}", run.folder)
                return False
    return True


def progress(
    run: Run,
    recorder: metrics.Recorder,
    clock: Clock,
    vital: vitals.Vitals,
    everyone: list[dict[str, float]],
    step: int,
    shown: int,
    loss: float,
) -> None:
    """A row of metrics.jsonl and a line of the log on the steps from `shown`, exclusive, to `step`.

    everyone: what `vital.shared` returned. loss: of `step`, in nats a token; one that is not finite is in the line alone.
    """
    steps, tokens = run.plan.steps, run.plan.tokens
    seconds, since = clock.lap(), tokens(step) - tokens(shown)
    rate, rate_so_far = since / seconds, (tokens(step) - tokens(run.done)) / clock.trained
    each = step - shown
    product = torch.cuda.get_device_name() if run.device.type == "cuda" else ""
    used = measures.mfu(rate, run.flops, measures.peak_of(product, run.settings["precision"]), run.processes)
    row = {
        "step": step,
        "tokens": tokens(step),
        "loss": loss if math.isfinite(loss) else None,
        "learning_rate": schedule.learning_rate(step, steps, run.settings),
        "grad_norm": run.update.norm if run.update.applied else None,
        **({} if run.update.balance is None else {"router_loss": float(run.update.balance)}),
        "tokens_per_second": round(rate, 1),
        "mfu": used,
        "seconds": round(recorder.seconds + clock.whole, 3),
        "skipped_steps": len(run.skipped),
        **vitals.per_device(rate, run.flops, run.processes, since // each),
        **vital.row(step, everyone, seconds / each),
    }
    recorder.metrics(row, vital.labelled(everyone))
    log.info(
        "step %s/%s, loss %.4f, learning rate %.2e, %s tokens/s%s, %s left",
        f"{step:,}", f"{steps:,}", loss, row["learning_rate"], f"{rate:,.0f}",
        f", MFU {used:.1%}" if used else "", duration((tokens(steps) - tokens(step)) / rate_so_far),
    )  # fmt: skip
    if used and used > measures.MFU_ALARM:
        log.warning("an MFU of %.0f %% is not to be believed: check the peak in measures.py", 100 * used)


def foretell(left: float, device: str) -> None:
    """Say how long the rest takes, in seconds as the first steps go; more than a day on a CPU is a warning."""
    log.info("about %s left by the first %d steps, validation not counted", duration(left), TIMED)
    if device == "cpu" and left > DAY:
        log.warning(
            "THIS TRAINING TAKES %.1f DAYS on this CPU. Stop it (Ctrl-C; it resumes from its checkpoint) or lower "
            "pretrain.train.steps, .tokens or .epochs, make pretrain.train.model smaller, or train on a GPU "
            "(pretrain.train.device: cuda)", left / DAY,
        )  # fmt: skip


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    alive.begin()
    stopping: list[int] = []
    listen(lambda number, _: stopping.append(number))
    folder = cli.checkpoints(args, settings)
    args.tokens = staging.staged(args.tokens, args.stage_to)
    if os.environ["RANK"] != "0":
        run = Run(args, settings, folder)
        finished = train(run, None, stopping)
        for _ in run.weights() if finished else ():
            pass
        run.machine()
        if not finished:
            raise SystemExit(RESUBMIT)
        return []
    with runs.locked(folder):
        runs.announce(folder, args.manifest, manifest.fingerprint)
        run = Run(args, settings, folder)
        settings, made, sizes = run.settings, run.plan, run.parameters
        if run.resolved:
            chosen = ", ".join(f"{key} {value:,}" for key, value in run.resolved.items())
            log.info("auto, by %s training tokens: %s", f"{len(run.stream):,}", chosen)
        log.info(
            "%s parameters (%s without embeddings), %s steps of %s tokens = %.2f epochs, %d × %s, %s, ZeRO %d, %s",
            f"{sizes['total']:,}", f"{sizes['non_embedding']:,}", f"{made.steps:,}", f"{made.tokens_per_step:,}",
            made.epochs, run.processes, run.device.type, run.kind, settings["zero_stage"], settings["precision"],
        )  # fmt: skip
        if run.done:
            log.info("resuming after step %s of %s", f"{run.done:,}", folder)
        if not run.validation_tokens:
            log.warning("the shards hold no validation documents: there will be no validation loss")
        manifest.worked = run.done < made.steps and not run.stopped
        recorder = metrics.Recorder(
            folder,
            run.done,
            run.begun,
            args.tensorboard,
            args.wandb,
            args.wandb_project,
            run.tracked,
            args.prometheus_port,
        )
        finished = train(run, recorder, stopping)
        recorder.close()
        weights = dict(run.weights()) if finished else {}
        manifest.run |= run.machine()
        if not finished:
            raise SystemExit(RESUBMIT)
        return results(run, weights, manifest, args.manifest.parent)


def results(run: Run, weights: dict[str, torch.Tensor], manifest: Manifest, out: Path) -> list[Path]:
    """Write model/, losses.jsonl and metrics.jsonl into `out`, fill the manifest's summary; the files to list."""
    if bad := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise cli.InputError(f"the weights are not finite ({bad[0]} and {len(bad) - 1} more). {REMEDY.capitalize()}")
    settings, made = run.settings, run.plan
    trained = run.stopped or made.steps
    tokens = made.tokens(trained) - made.tokens(run.begun)  # without those of the run that this one is a branch of
    with checkpoint.writing(out):
        beside = model.companions(run.args.tokenizer)
        files = model.export(weights, run.engine.model.config, settings["save_dtype"], beside, out / model.FOLDER)
    for name in (metrics.LOSSES, metrics.METRICS):
        shutil.copyfile(run.folder / name, out / name)
    rows = metrics.read(out / metrics.LOSSES)
    losses, scores = [row for row in rows if "loss" in row], [row for row in rows if "bits_per_byte" in row]
    if run.best:  # whose weights these are
        losses = [row for row in losses if row["step"] == run.best and "bits_per_byte" not in row]
        scores = [row for row in scores if row["step"] == run.best]
    last = scores[-1].get("bits_per_byte_by_source", {}) if scores else {}
    by_source = {name: {"bits_per_byte": bits, **heldout.sizes(run.heldout, name)} for name, bits in last.items()}
    notes = []
    if settings["start_from"] is not None:
        after = f", after step {run.begun:,}" if run.begun else ""
        notes.append(f"Training began with the weights of {settings['start_from']}{after}.")
    notes += skips.note(rows, trained) + rollback.note(run.rolled) + early.note(run)
    if not scores:
        notes.append("The corpus has no validation documents: there is no validation loss.")
    notes += runs.note(list(run.changed))
    manifest.summary = {
        "start_from": settings["start_from"],
        "parameters": {key: run.parameters[key] for key in ("total", "non_embedding")},
        "shape": {**run.tracked["model"], "vocabulary": run.vocabulary},
        "auto": run.resolved,
        "tokens": tokens,
        "steps": trained,
        "epochs": tokens / made.context / made.windows,
        "global_batch_tokens": made.tokens_per_step,
        "learning_rate": settings["learning_rate"],
        "loss": losses[-1]["loss"] if losses else None,
        "validation_loss": scores[-1]["validation_loss"] if scores else None,
        "bits_per_byte": scores[-1]["bits_per_byte"] if scores else None,
        **({"validation_by_source": by_source} if by_source else {}),
        "validation_tokens": run.validation_tokens,
        "validation_bytes": run.validation_bytes,
        "validation_documents": run.validation_documents,
        "skipped_steps": run.skipped,
        **({"rolled_back": run.rolled} if run.rolled else {}),
        **early.summary(run),
        "notes": notes,
        **({"other_code": list(run.changed)} if run.changed else {}),
    }
    return [*files, out / metrics.LOSSES]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "pretrain.train",
        __doc__,
        "--config config.yaml --tokens results/main/tokenize/encode/*.manifest.json "
        "--tokenizer results/main/tokenize/train/manifest.json --manifest /tmp/pretrain/manifest.json",
        always=True,  # its processes all start, and the newest checkpoint says what is to be done
    )
    parser.add_argument("--tokens", required=True, type=Path, nargs="+", help="manifests of tokenize.encode")
    parser.add_argument("--tokenizer", required=True, type=Path, help="manifest of tokenize.train")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")
    cli.placement(parser, "pretrain.train")
    return program.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
