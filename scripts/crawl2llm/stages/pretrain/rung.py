"""Train a variant of a sweep up to a rung, a share of its steps, and measure its loss there; where it was stopped before, do nothing.

It trains by the schedule of the whole training, from its own checkpoint of the rung before, and the next start goes on from here:
stages/pretrain/halving/contender.py. Whether it goes on is decided by the losses of all contenders at the rung before.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.halving import TRAIN, parse_task
from crawl2llm.chain.step_program import task_settings
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, pretty_json, task_of, write_atomically
from crawl2llm.core.settings import Number, setting
from crawl2llm.stages.pretrain import train
from crawl2llm.stages.pretrain.halving import contender, judging
from crawl2llm.stages.pretrain.settings import RungSettings
from crawl2llm.training import program, token_staging
from crawl2llm.training.pretraining_settings import TrainSettings


class Task(RungSettings):
    """What the program is given. train: of pretrain.train, whose placement keys are options of this program.

    settings: contender → the setting that it is judged with.
    """

    train: dict[str, Any]
    rung: int
    rungs: list[Number]
    settings: dict[str, str] = setting({})
    keep: Number = setting(1)


def body(args: argparse.Namespace, task: Task, manifest: Manifest) -> list[Path]:
    name, rung = parse_task(task_of(args.manifest))
    out = args.manifest.with_name(f"{task_of(args.manifest)}.json")
    if args.before and name not in contenders_going_on(args.before, task):
        if os.environ["RANK"] != "0":
            return []
        log.info("%s was stopped at an earlier rung", name)
        return write_result(out, {"contender": name, "rung": rung, "in": False}, manifest)
    settings = task_settings(TrainSettings, args, task.train, TRAIN)
    signals = program.begin_training(settings.device)
    folder = contender.folder_of(args, settings, task.rungs)
    token_staging.stage_inputs(args, settings.stage_to)
    if os.environ["RANK"] != "0":
        contender.train_to_rung(contender.Contender(args, settings, folder, task.rungs, rung), signals)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = contender.Contender(args, settings, folder, task.rungs, rung)
        train.log_start(run)
        manifest.worked = not run.is_over
        bits, made_on = contender.train_to_rung(run, signals)
        manifest.run |= made_on
    step = run.state.stopped or run.limit
    log.info("rung %d, step %s of %s: %s bits per byte", rung, f"{step:,}", f"{run.plan.steps:,}", bits)
    result = {"contender": name, "rung": rung, "in": True, "step": step, "steps": run.plan.steps, "bits_per_byte": bits}
    return write_result(out, result, manifest)


def contenders_going_on(before: list[Path], task: Task) -> set[str]:
    """The contenders that go on after the rung before."""
    losses = judging.loss_by_contender(judging.read_rungs(before))
    return judging.staying_contenders(judging.rank_settings(losses, task.settings, task.keep))


def write_result(path: Path, result: dict[str, Any], manifest: Manifest) -> list[Path]:
    """Write what was found; the manifest's files."""
    write_atomically(path, pretty_json(result))
    manifest.summary = result
    return [path]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what a training has, and the rung before."""
    program.add_checkpoints(parser)
    parser.add_argument(
        "--before",
        type=Path,
        nargs="*",
        default=[],
        help="manifests of pretrain.rung of all contenders at the rung before",
    )
    parser.set_defaults(mix=[])
    command_line.add_placement_options(parser, TRAIN)


main = program.TrainingProgram("pretrain.rung", __doc__, Task, body, add_options)


if __name__ == "__main__":
    raise SystemExit(main())
