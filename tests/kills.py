"""Kills trainings with SIGKILL at random moments and starts them again: they end with the results of one that was not killed.

    python -m tests.kills --engine torch --zero-stage 3 --async-checkpoints --kills 30

Real processes of the training program on a tiny model. A kill hits one rank, the launcher or all of them: while they start, in a step, or
where a checkpoint is being written. Weights, losses and manifest are compared byte by byte. Prints a row of the table in docs/resume.md.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from crawl2llm.core.root import ROOT
from tests.unit.stages.pretrain.conftest import launching, write_shards, write_tokenizer

HEAD = """\
| engine | `zero_stage` | precision | checkpoints | kills | while written | rank 0, rank 1, launcher, all | resumed | trainings | results |
|---|---|---|---|---|---|---|---|---|---|"""
PROCESSES = 2
STARTING = 6.0  # seconds in which the processes start, at most
STEPPING = 0.4  # seconds of steps before a kill, at most
WRITING = 0.03  # seconds from the first sign of a checkpoint that is being written to a kill, at most
ENDS = 60.0  # seconds for all processes to end after one was killed; the launcher waits 15 s for the others
VICTIMS = ("rank 0", "rank 1", "launcher", "all")


@dataclass(frozen=True)
class Case:
    """What trains. steps: of the whole training, with a checkpoint after every fifth."""

    engine: str = "deepspeed"
    zero_stage: int = 1
    precision: str = "fp32"
    beside: bool = False  # async_checkpoints
    steps: int = 200


@dataclass
class Tally:
    """What was done to a case."""

    kills: Counter[str] = field(default_factory=Counter)  # by the victim
    writing: int = 0  # kills that left a checkpoint half-written
    resumed: int = 0  # starts that went on from a checkpoint
    trainings: int = 0  # that ended, with the results of the unbroken one

    def row(self, case: Case) -> str:
        """A row of the table under HEAD."""
        victims = ", ".join(str(self.kills[victim]) for victim in VICTIMS)
        cells = [case.engine, case.zero_stage, case.precision, "asynchronous" if case.beside else "synchronous"]
        cells += [self.kills.total(), self.writing, victims, self.resumed, self.trainings, "equal, byte by byte"]
        return f"| {' | '.join(map(str, cells))} |"


class Program:
    """Starts the training of a case."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.tokenizer = write_tokenizer(folder / "tokenizer")
        self.shards = write_shards(self.tokenizer, folder / "encode")

    def start(self, into: Path) -> subprocess.Popen[str]:
        """The launcher, in a process group of its own."""
        case = self.case
        changes = {
            "engine": case.engine,
            "zero_stage": case.zero_stage,
            "precision": case.precision,
            "steps": case.steps,
        }
        options = ("--async-checkpoints", "true") if case.beside else ()
        into.mkdir(exist_ok=True)
        command = launching(into, self.tokenizer, self.shards, PROCESSES, {**changes, "validate_every": 50}, options)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, cwd=into, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def finish(self, into: Path) -> None:
        """Train to the end."""
        process = self.start(into)
        _, errors = process.communicate(timeout=600)
        if process.returncode:
            raise RuntimeError(f"the training failed:\n{errors}")


def paths(into: Path, pattern: str) -> set[Path]:
    """Paths in the folders of checkpoints. Looks again where a folder, such as one of beats, is removed meanwhile."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return set(into.glob(f"checkpoints/*/{pattern}"))


def until(process: subprocess.Popen[str], sign: Callable[[], bool]) -> None:
    """Wait until `sign`, or the end of the process."""
    while process.poll() is None and not sign():
        time.sleep(0.001)


def moment(process: subprocess.Popen[str], into: Path, chance: random.Random) -> None:
    """Wait for the moment of a kill, or the end of the process."""
    kind = chance.choices(("starting", "stepping", "writing"), (1, 2, 5))[0]
    if kind == "starting":
        end = time.monotonic() + chance.uniform(0, STARTING)
        return until(process, lambda: time.monotonic() > end)
    before = paths(into, "step-*")
    if kind == "stepping":
        until(process, lambda: paths(into, "step-*") > before)
        end = time.monotonic() + chance.uniform(0, STEPPING)
        return until(process, lambda: time.monotonic() > end)
    passed = chance.choice((0, 1, 1, 2))  # checkpoints that are written in peace, so that the run gets on
    until(process, lambda: len(paths(into, "step-*") - before) >= passed)
    until(process, lambda: bool(paths(into, ".step-*.partial")))
    time.sleep(chance.uniform(0, WRITING))


def kill(process: subprocess.Popen[str], victim: str) -> str:
    """Kill a victim, or the launcher where that rank has not begun, and wait for all to end; who it was, "" where the training was done.

    Raises RuntimeError where they do not end.
    """
    try:
        launcher = psutil.Process(process.pid)
        ranks = {child.environ().get("RANK", ""): child for child in launcher.children()}
    except psutil.Error:  # at its end
        ranks = {}
    own = ranks.get(victim.removeprefix("rank "))
    victim = victim if own or not victim.startswith("rank") else "launcher"
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        if own:
            own.kill()
        elif victim == "launcher":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=ENDS)
    _, left = psutil.wait_procs(ranks.values(), timeout=ENDS)
    if left:
        raise RuntimeError(f"{left} did not end after {victim} was killed")
    return victim if process.returncode else ""


def half_written(into: Path) -> set[tuple[str, int]]:
    """Checkpoints that were being written: their folders, and when these last changed."""
    return {(path.name, path.stat().st_ctime_ns) for path in paths(into, ".step-*.partial")}


def differences(one: Path, other: Path) -> list[str]:
    """Names of results that are not the same bytes."""
    names = {path.relative_to(at / "out") for at in (one, other) for path in (at / "out/model").iterdir()}
    names |= {Path("losses.jsonl"), Path("manifest.json")}
    return sorted(str(name) for name in names if not _same(one / "out" / name, other / "out" / name))


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def broken(program: Program, tally: Tally, kills: int, chance: random.Random, end: float) -> None:
    """One training, killed until `kills` are done in all, it is at its end, or the time is over: `end`, of time.monotonic."""
    whole, into = program.folder / "whole", program.folder / f"broken-{tally.trainings}"
    while not (into / "out/manifest.json").exists():
        tally.resumed += bool(paths(into, "step-*"))
        if tally.kills.total() >= kills or time.monotonic() > end:
            program.finish(into)
            break
        before = half_written(into)
        process = program.start(into)
        try:
            moment(process, into, chance)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.poll() is None:
            if victim := kill(process, chance.choice(VICTIMS)):
                tally.kills[victim] += 1
                tally.writing += not half_written(into) <= before
                said = f"{time.strftime('%H:%M:%S')} {tally.kills.total()} of {kills} kills: {victim}"
                print(said, file=sys.stderr, flush=True)
        elif process.returncode:
            raise RuntimeError(f"it failed by itself:\n{process.communicate()[1]}")
    if found := differences(whole, into):
        raise RuntimeError(f"{into} differs from {whole}: {', '.join(found)}")
    tally.trainings += 1


def run(case: Case, folder: Path, kills: int, seed: int, minutes: float = math.inf) -> Tally:
    """Kill trainings of a case `kills` times, fewer where that takes longer than `minutes`, and let the last one end.

    Raises RuntimeError where one fails by itself, or ends with other results than the one that was not killed.
    """
    program, tally, chance = Program(case, folder), Tally(), random.Random(seed)  # noqa: S311
    end = time.monotonic() + 60 * minutes
    program.finish(folder / "whole")
    while tally.kills.total() < kills and time.monotonic() < end:
        broken(program, tally, kills, chance, end)
    return tally


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--engine", choices=("deepspeed", "torch"), default="deepspeed")
    made.add_argument("--zero-stage", type=int, choices=range(4), default=1)
    made.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    made.add_argument("--async-checkpoints", action="store_true")
    made.add_argument("--steps", type=int, default=200)
    made.add_argument("--kills", type=int, default=30)
    made.add_argument("--minutes", type=float, default=math.inf, help="begin no further kill after so long")
    made.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    made.add_argument("--folder", type=Path, help="an empty folder to train in, which stays; else one that is removed")
    return made


def main(argv: list[str] | None = None) -> int:
    args: Any = parser().parse_args(argv)
    case = Case(args.engine, args.zero_stage, args.precision, args.async_checkpoints, args.steps)
    with tempfile.TemporaryDirectory() as made:
        tally = run(case, args.folder or Path(made), args.kills, args.seed, args.minutes)
    print(f"{HEAD}\n{tally.row(case)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
