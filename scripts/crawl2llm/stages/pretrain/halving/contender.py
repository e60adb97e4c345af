"""Pre-train a model in a sweep whose trainings are judged at rungs: pretrain.train where sweep.halving is used.

A training that goes on writes the model that crawl2llm.stages.pretrain.train writes, byte by byte. One that was stopped ends with the model
of its last rung. Checkpoints of rungs stay, so that another judgement finds them: when a variant is added, one that was stopped may go on,
and one that went on may stop.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from crawl2llm.chain import command_line
from crawl2llm.chain.config_schema import given_settings
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.stages.pretrain import train
from crawl2llm.stages.pretrain.halving.judging import FATES_FILE, step_of
from crawl2llm.training import auto, checkpoint, data, metrics, program, token_staging
from crawl2llm.training.callback import Callback
from crawl2llm.training.packed_windows import packing_files
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.processes import RESUBMIT
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState

PACK = "pretrain.pack"
# What decides the weights: not the losses of others, by which a training is stopped.
WEIGHT_INPUTS = ("tokenize.train", "tokenize.encode", PACK)


@dataclass(frozen=True)
class RungKeepPolicy(checkpoint.KeepPolicy):
    """As the training's own, and those of the rungs."""

    rungs: frozenset[int] = frozenset()

    def checkpoints_to_keep(self, checkpoints: list[checkpoint.Checkpoint]) -> list[checkpoint.Checkpoint]:
        stay = {kept.step for kept in super().checkpoints_to_keep(checkpoints)} | self.rungs
        return [candidate for candidate in checkpoints if candidate.step in stay]


class Contender(Run):
    """A run with rungs at these shares of its steps. rung: the number of the one at which this start ends; 0: at the end of the run.

    Where the run was farther than that, it is at the rung's checkpoint again. A collective call.
    """

    def __init__(
        self, args: argparse.Namespace, settings: TrainSettings, folder: Path, rungs: list[float], rung: int = 0
    ) -> None:
        super().__init__(args, settings, folder)
        self.rungs = frozenset(step_of(share, self.plan.steps) for share in rungs)
        self.limit = step_of(rungs[rung - 1], self.plan.steps) if rung else self.plan.steps
        self.reached = self.state.done
        if self.state.done > self.limit:
            self.restore(self.at_rung())
            self.reached = self.state.done
        self.extra_callbacks = [EndAtRung(self)]

    def at_rung(self) -> checkpoint.Checkpoint:
        """The checkpoint of the rung. A collective call; raises CollectiveError if it is gone."""
        box: list[Any] = [None]
        if self.rank == 0:
            box[0] = next(
                (
                    candidate
                    for candidate in checkpoint.complete_checkpoints(self.folder)
                    if candidate.step == self.limit
                ),
                None,
            )
        dist.broadcast_object_list(box, device=self.device)
        if box[0] is None:
            raise checkpoint.CollectiveError(
                f"{self.folder} has no checkpoint of step {self.limit}, a rung of sweep.halving, and has later ones: remove the "
                "folder, and the training begins again"
            )
        checkpoint.check_digests(box[0], self.folder)
        return box[0]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to train in this start: the rung was reached, or the run ended before it (early_stop)."""
        return self.reached >= self.limit or bool(self.state.stopped)

    def wants_checkpoint(self, step: int) -> bool:
        return step in self.rungs or super().wants_checkpoint(step)

    def keep_policy(self) -> checkpoint.KeepPolicy:
        policy = super().keep_policy()
        return RungKeepPolicy(policy.newest, policy.interval, policy.best, policy.points, self.rungs)

    def validation_bits(self) -> float | None:
        """Bits per byte of the validation documents with the weights as they are; None if the loss is not finite. A collective call.

        No row of the training's own files says so, and no checkpoint: it ends as if it had not been asked.
        """
        try:
            validation = self.validate()
        except checkpoint.CollectiveError as error:
            log.warning("%s", error)
            return None
        if validation is None:
            raise checkpoint.CollectiveError(
                "the corpus has no validation documents, by which sweep.halving judges: raise corpus.split's share"
            )
        return validation["bits_per_byte"]


class EndAtRung(Callback):
    """Ends a training at its rung as a signal would: after a checkpoint, from which the next start goes on."""

    def __init__(self, run: Contender) -> None:
        self.run = run

    def after_step(self, state: RunState) -> None:
        self.run.reached = state.step
        state.stop = state.stop or (state.step == self.run.limit and state.step < self.run.last_step)


def folder_of(args: argparse.Namespace, train: TrainSettings, rungs: list[float]) -> Path:
    """The folder of a contender's checkpoints: the same at every rung and to the end, whatever contexts other contenders have."""
    inputs = {
        key: manifest for key, manifest in command_line.input_manifests(args).items() if key.startswith(WEIGHT_INPUTS)
    }
    if packs := inputs.get(PACK):  # with the windows of all contenders
        context = train.model.context
        if not isinstance(context, int):
            context = auto.resolve_context(len(data.open_split(args.tokens, "train")), train.global_batch_tokens)
        own_files = packing_files(context)
        inputs[PACK] = replace(packs, files={name: facts for name, facts in packs.files.items() if name in own_files})
    _, mark = command_line.parse_settings(args.step, args.config, task_of(args.manifest))
    return checkpoint_folders.training_folder(
        args.checkpoints,
        {**given_settings("pretrain.train", train), "rungs": rungs},
        inputs,
        json.loads(mark).get("files", {}),
    )


def recorder_of(run: Contender) -> metrics.Recorder:
    """What records a run's rows from where it is."""
    settings = run.settings
    return metrics.Recorder(
        run.folder, run.state.done, run.begun,
        tensorboard=settings.tensorboard, wandb=settings.wandb, project=settings.wandb_project, config=run.tracked,
        port=settings.prometheus_port,
    )  # fmt: skip


def train_to_rung(run: Contender, signals: list[int]) -> tuple[float | None, dict[str, Any]]:
    """Train up to the rung: (the loss there, what it was trained on). A collective call.

    Ends this program with RESUBMIT where a signal stopped it before.
    """
    if run.is_over and not run.state.stopped:
        return run.validation_bits(), run.machine_record()
    if run.rank:
        finished = train.train_steps(run, None, signals)
    else:
        with recorder_of(run) as recorder:
            finished = train.train_steps(run, recorder, signals)
    if not finished and run.reached < run.limit:
        raise SystemExit(RESUBMIT)
    return run.validation_bits(), run.machine_record()


def finish_at_rung(run: Contender, recorder: metrics.Recorder | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(weights, on process 0 alone; what it was trained on) of a run that was stopped at the rung where it is. A collective call."""
    step = run.limit
    try:
        validation = run.validate()
    except checkpoint.CollectiveError:
        validation = None
    if recorder and validation:
        rows = metrics.read(run.folder / metrics.LOSSES)
        if not any(row["step"] == step and "bits_per_byte" in row for row in rows):
            recorder.write_validation(step, run.plan.steps, validation)
    weights = {name: value for name, value in run.weights() if recorder}
    run.state.stopped = step
    return weights, run.machine_record()


def forget_later(folder: Path, step: int) -> None:
    """Remove checkpoints after `step`, of a run that went on under another judgement: its rows are cut where it ends now."""
    for saved in checkpoint.complete_checkpoints(folder):
        if saved.step > step:
            shutil.rmtree(saved.path.rename(folder / f".{saved.path.name}.old"))


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    """As crawl2llm.stages.pretrain.train; ends with the model of a rung where the training was stopped there."""
    signals = program.begin_training(settings.device)
    judged = Manifest.read(args.halving)
    rungs = judged.summary_part("rungs")
    fate = json.loads(judged.file(FATES_FILE).read_text(encoding="utf-8"))["stopped"].get(args.contender)
    rung, folder = fate["rung"] if fate else 0, folder_of(args, settings, rungs)
    token_staging.stage_inputs(args, settings.stage_to)
    if os.environ["RANK"] != "0":
        run = Contender(args, settings, folder, rungs, rung)
        if fate and not return_to_rung(run, signals):
            finish_at_rung(run, None)
        else:
            train.train_to_end(run, None, signals)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = Contender(args, settings, folder, rungs, rung)
        train.log_start(run)
        manifest.worked = not run.is_over
        if fate and not return_to_rung(run, signals):
            forget_later(folder, run.limit)
            run.state.done = run.limit
            with recorder_of(run) as recorder:
                weights, made_on = finish_at_rung(run, recorder)
        else:
            with recorder_of(run) as recorder:
                weights, made_on = train.train_to_end(run, recorder, signals)
        manifest.run |= made_on
        files = train.write_results(run, weights, manifest, args.manifest.parent)
        if fate:
            manifest.summary["stopped"] = fate
            words = f"Stopped at rung {fate['rung']}, after step {fate['step']:,} of {run.plan.steps:,}: {fate['why']}."
            manifest.summary["notes"].insert(0, words)
        return files


def return_to_rung(run: Contender, signals: list[int]) -> bool:
    """Be at the rung where the run was stopped, also where its checkpoints are gone; whether it ended before by itself (early_stop)."""
    if not run.is_over:
        train_to_rung(run, signals)
    return bool(run.state.stopped)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which training it is, and how it was judged."""
    program.add_checkpoints(parser)
    parser.add_argument("--halving", required=True, type=Path, help="manifest of pretrain.halve")
    parser.add_argument("--contender", required=True, help="the variant whose training it is")


main = program.TrainingProgram(
    "pretrain.train",
    __doc__,
    TrainSettings,
    body,
    add_options,
    example="--halving results/main/pretrain/halve/manifest.json --contender main",
    always=True,
)


if __name__ == "__main__":
    raise SystemExit(main())
