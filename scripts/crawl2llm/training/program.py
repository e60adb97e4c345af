"""The program of a training in each of its processes: process 0 is the step, with log and manifest, and the others work with it."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from transformers.utils import logging

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program, S
from crawl2llm.core.console import mask_stderr, print_line
from crawl2llm.core.manifest import Manifest, ManifestError, digest, task_of
from crawl2llm.training import checkpoint, group, heartbeat
from crawl2llm.training.processes import RESUBMIT, free_port, on_stop_signal

# The environment of a program that no launcher started.
NO_LAUNCHER = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def begin_training(device: str) -> list[int]:
    """What each process of a training does first. Returns a list, which the numbers of stopping signals are added to from now on.

    device: of the settings.
    """
    heartbeat.start_beats()
    # DeepSpeed's import, by transformers, asks for it, also before the processes have met.
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if on_cpu else "cuda")
    logging.disable_progress_bar()
    signals: list[int] = []
    on_stop_signal(lambda number, _: signals.append(number))
    return signals


def add_checkpoints(parser: argparse.ArgumentParser) -> None:
    """Add the option that every training has."""
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")


@dataclass(frozen=True)
class TrainingProgram(Program[S]):
    """A `Program` in each of the processes of a training.

    after: called by process 0 once the manifest stands, of this run or of an earlier one.
    """

    add_options: Callable[[argparse.ArgumentParser], None] = add_checkpoints
    after: Callable[[argparse.Namespace], None] | None = None

    def __call__(self, argv: list[str] | None = None) -> int:
        """Run the step, and end this process with its exit status. RESUBMIT: a signal stopped it after a checkpoint.

        An error is reported by one process.
        """
        parser = self.parser()
        mask_stderr()
        for name, value in {**NO_LAUNCHER, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}.items():
            os.environ.setdefault(name, value)
        try:
            if os.environ["RANK"] == "0":
                status = command_line.run_step(parser, self.run_task, argv)
                if status == 0 and self.after:
                    self.after(command_line.parse_arguments(parser, argv))
            else:  # process 0 alone writes the log and the manifest, and reports what is wrong with the input
                args = command_line.parse_arguments(parser, argv)
                settings, mark = command_line.verified_settings(args.step, args.config, task_of(args.manifest))
                if args.always or not command_line.is_done(args, mark, renews=False):  # which all processes find alike
                    self.run_task(args, settings, Manifest(args.step, digest(mark)))
                status = 0
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        except Exception as error:
            # Before the processes have met, process 0 finds the same fault and reports it, or it is this node's own.
            if isinstance(error, checkpoint.CollectiveError):
                pass
            elif not isinstance(error, command_line.InputError | ManifestError):
                print_line(traceback.format_exc().rstrip(), file=sys.stderr)
            elif dist.is_initialized() or os.environ["LOCAL_RANK"] == "0":
                print_line(f"error of process {os.environ['RANK']} on {socket.gethostname()}: {error}", file=sys.stderr)
            status = 1
        if status in (0, RESUBMIT):
            group.leave_and_exit(status)
        sys.stderr.flush()
        os._exit(status)
