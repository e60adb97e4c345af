"""Checks the GPUs of this machine, or of nodes of a SLURM cluster, before a training spends hours on them: speed against the data sheet and
the other GPUs, numerics against a CPU, steps of a model of 1B parameters, save and load, the folder of checkpoints. At most ten minutes.

Prints a line for each thing that is looked at, with a verdict: ok, slow, wrong, or skipped with the reason. It needs torch 2.11 and
transformers 5.17, or later ones, and nothing else: a copy of scripts/ does, by `python -m crawl2llm gpu-check` in it.
Exit status: 1 if something is slow or wrong, 2 for options that cannot be, else 0. docs/commands/gpu-check.md
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.commands.gpu_check import lines, node, slurm
from crawl2llm.commands.gpu_check.checks import CHECKS, PACKAGE
from crawl2llm.commands.gpu_check.lines import SKIPPED, WRONG, Line
from crawl2llm.core import devices
from crawl2llm.core.console import format_duration, format_quantity, print_line
from crawl2llm.core.errors import InputError
from crawl2llm.training.processes import environments, free_port

POLL = 0.1  # seconds
START_SECONDS = 300  # in which a process begins its first check, and ends after its last
GRACE = 20.0  # seconds for processes that are told to end


@dataclass
class Group:
    """The processes of one start, one for each GPU."""

    processes: list[subprocess.Popen[bytes]]
    logs: list[Path]
    events: Path
    read: int = 0  # bytes of the events so far
    open_check: str = ""  # that has begun and not ended
    began: float = field(default_factory=time.monotonic)

    def is_alive(self) -> bool:
        """Whether a process runs."""
        return any(process.poll() is None for process in self.processes)

    def has_failure(self) -> bool:
        """Whether one ended and not by itself: the others would wait for it."""
        return any(process.poll() not in (None, 0) for process in self.processes)

    def kill(self) -> None:
        """End all, whatever they do."""
        for process in self.processes:
            process.terminate()  # srun passes it on to other nodes
        end = time.monotonic() + GRACE
        while self.is_alive() and time.monotonic() < end:
            time.sleep(POLL)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def new_events(self) -> Iterator[dict[str, Any]]:
        """What process 0 has written since."""
        with self.events.open("rb") as handle:
            handle.seek(self.read)
            for raw in handle:
                if not raw.endswith(b"\n"):
                    return
                self.read += len(raw)
                yield json.loads(raw)

    def last_words(self) -> str:
        """How the first process that failed ended, and the last line that it printed."""
        for process, log in zip(self.processes, self.logs, strict=True):
            if process.poll() not in (None, 0):
                text = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
                text = [line for line in text if not line.startswith(("srun: ", "slurmstepd: "))] or text
                code = process.returncode
                how = signal.Signals(-code).name if code < 0 else f"status {code}"
                return f"a process ended with {how}: {text[-1][:300] if text else ''}"
        return ""


@dataclass(frozen=True)
class Start:
    """Where the processes of a group are started: `processes` on this machine, or by srun on each node of this job."""

    processes: int
    nodes: int = 1

    def commands(self, scratch: Path, options: list[str]) -> list[tuple[list[str], dict[str, str]]]:
        """What to start here, with further variables. options: of the workers."""
        if self.nodes > 1:
            place = ["--nodes", str(self.nodes), "--ntasks", str(self.nodes), "--ntasks-per-node", "1"]
            # One process starts all of a node, so that a task of srun has all of the node's GPUs, whatever the site binds.
            srun = ["srun", *place, "--cpu-bind=none", "--kill-on-bad-exit=1", sys.executable, "-m", f"{PACKAGE}.node"]
            job_node = os.environ["SLURMD_NODENAME"]
            return [
                ([*srun, str(self.nodes), str(self.processes), job_node, str(free_port()), str(scratch), *options], {})
            ]
        places = environments(0, 1, self.processes, "127.0.0.1", free_port())
        places[0] |= node.nccl_variables(scratch)
        return [([*node.WORKER, *options], place) for place in places]


def start_group(args: argparse.Namespace, scratch: Path, names: list[str], start: Start) -> Group:
    """Start the workers for these checks."""
    events = scratch / "events.jsonl"
    events.write_text("")
    place = {
        "tiny": args.tiny,
        "folder": str(args.folder.resolve()),
        "scratch": str(scratch.resolve()),
        "peers": peers_of(args),
    }
    options = [str(events), json.dumps(place), *names]
    group = Group([], [], events)
    path = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
    for number, (command, variables) in enumerate(start.commands(scratch, options)):
        log = scratch / f"worker-{number}.log"
        with log.open("wb") as stream:
            group.processes.append(
                subprocess.Popen(
                    command,
                    env=os.environ | variables | {"PYTHONPATH": path},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                )
            )
        group.logs.append(log)
    return group


def run_group(group: Group, left: list[str], deadline: float, log: Path | None) -> Iterator[Line]:
    """The lines of the checks `left`, from which each is taken when it has begun; ends when the processes have."""
    why = ""
    while True:
        running = group.is_alive() and not group.has_failure()
        for event in group.new_events():
            if "begin" in event:
                group.open_check, group.began = event["begin"], time.monotonic()
                left.remove(group.open_check)
            elif "line" in event:
                yield Line(**event["line"])
            else:
                group.open_check, group.began = "", time.monotonic()
        if not running:
            break
        limit = CHECKS[group.open_check].seconds if group.open_check else START_SECONDS
        if time.monotonic() > min(deadline, group.began + limit):
            why = "no time is left (--minutes)" if time.monotonic() > deadline else f"it hangs: more than {limit} s"
            break
        time.sleep(POLL)
    expected = bool(group.open_check) and CHECKS[group.open_check].dies
    is_failure = group.has_failure()
    words = group.last_words()
    group.kill()
    if log:
        with log.open("ab") as handle:
            handle.writelines(path.read_bytes() for path in group.logs)
    if why or (is_failure and not expected):
        late = why.startswith("no time")
        yield Line(
            group.open_check or "start", "the check itself", verdict=SKIPPED if late else WRONG, note=why or words
        )
        if not group.open_check and not late:
            left.clear()  # it would not start the next time either


def check_machine(args: argparse.Namespace, names: list[str], start: Start) -> Iterator[Line]:
    """The lines of all checks; processes that died in one are started again for the next."""
    deadline, left = time.monotonic() + 60 * args.minutes, list(names)
    with tempfile.TemporaryDirectory(prefix=".gpu-check-", dir=args.folder) as scratch:
        while left and time.monotonic() < deadline:
            yield from run_group(start_group(args, Path(scratch), left, start), left, deadline, args.log)
    for name in left:
        yield Line(name, CHECKS[name].what, verdict=SKIPPED, note="no time is left (--minutes)")


def argument_parser() -> argparse.ArgumentParser:
    """The command's options; no short forms of them, which a job's command would not be rid of (`slurm.job_command`)."""
    parser = argparse.ArgumentParser(
        prog="crawl2llm gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        epilog="examples:\n  crawl2llm gpu-check --folder /scratch/me/checkpoints --json gpu.json\n"
        "  crawl2llm gpu-check --slurm --nodes 2 --profile profiles/mysite --folder /scratch/me/checkpoints\n\nchecks:\n"
        + "\n".join(f"  {name:11}{check.what}" for name, check in CHECKS.items()),
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path(), help="where checkpoints will be written (default: here)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that was measured, as JSON")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="also keep what the processes print: warnings, tracebacks"
    )
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help="these checks alone")
    parser.add_argument(
        "--minutes", type=float, default=10, help="after these no check begins or goes on (default: 10)"
    )
    parser.add_argument(
        "--processes", type=slurm.positive_number, help="of a node (default: one for each GPU, one on a CPU)"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="sizes that a CPU can do, and no GPU needed: shows that it works"
    )
    parser.add_argument(
        "--nanogpt", type=Path, help="a copy of github.com/karpathy/nanoGPT, to measure beside this engine"
    )
    parser.add_argument(
        "--torchtitan", type=Path, help="a copy of github.com/pytorch/torchtitan, with what it needs installed"
    )
    slurm.add_options(parser)
    return parser


def peers_of(args: argparse.Namespace) -> dict[str, str]:
    """The copies of other trainers' repositories that the options name. Raises InputError for a folder that is none."""
    marks = {"nanogpt": "train.py", "torchtitan": "torchtitan/train.py"}
    peers = {name: Path(path) for name in marks if (path := getattr(args, name))}
    for name, path in peers.items():
        if not (path / marks[name]).is_file():
            raise InputError(
                f"--{name} {path}: there is no {path / marks[name]}; name the folder of a copy of its repository"
            )
    return {name: str(path.resolve()) for name, path in peers.items()}


def check_paths(args: argparse.Namespace) -> None:
    """Raises InputError for a path that cannot be written: minutes later the result would be lost."""
    if not (args.folder.is_dir() and os.access(args.folder, os.W_OK | os.X_OK)):
        raise InputError(f"--folder {args.folder} is no folder that you can write to; name the one of checkpoints")
    for option, file in (("--json", args.json), ("--log", args.log)):
        if file and not (
            os.access(file, os.W_OK) and not file.is_dir()
            if file.exists()
            else file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)
        ):
            raise InputError(f"{option} {file} is no file that you can write; name one in a folder that is there")


def job_nodes() -> int:
    """The nodes of the SLURM job whose script this is; 1 outside of a job, and in a step of one."""
    in_script = "SLURMD_NODENAME" in os.environ and "SLURM_STEP_ID" not in os.environ
    return int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if in_script else 1


def run_checks(args: argparse.Namespace, names: list[str], start: Start) -> list[Line]:
    """All lines, each printed as it comes; on a terminal also how much time is spent: elsewhere it would cut the table apart."""
    begin, every = time.monotonic(), list[Line]()
    print_line(lines.HEADER, flush=True)
    for line in check_machine(args, names, start):
        every.append(line)
        print_line(lines.row_text(line), flush=True)
        spent = time.monotonic() - begin
        if sys.stderr.isatty():
            count = format_quantity(len(every), "line")
            progress = f"{spent:4.0f} s of at most {60 * args.minutes:.0f}, {count}, {len(every) / spent:.1f}/s"
            print_line(progress, file=sys.stderr)
    seconds = time.monotonic() - begin
    print_line(f"\n{lines.summary_text(every)}, in {format_duration(seconds)}", flush=True)
    if args.json:
        body = {
            "seconds": round(seconds, 1),
            "processes": start.processes * start.nodes,
            "nodes": start.nodes,
            "tiny": args.tiny,
        }
        args.json.write_text(json.dumps(body | {"lines": [line.as_json() for line in every]}, indent=1) + "\n")
    return every


def main(argv: list[str] | None = None) -> int:
    """Run the checks and print the table; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argument_parser()
    args = parser.parse_args(argv)
    if not args.slurm and args.nodes != parser.get_default("nodes"):
        parser.error(
            "--nodes is of the job that --slurm submits; without --slurm all nodes of the job that this is in are checked"
        )
    try:
        peers_of(args)
        check_paths(args)
    except InputError as error:
        print_line(f"error: {error}", file=sys.stderr)
        return 2
    try:
        if args.slurm and slurm.JOB_VARIABLE not in os.environ:  # a job never submits another
            return slurm.run_as_job(args, argv)
    except InputError as error:
        print_line(f"error: {error}", file=sys.stderr)
        return 1
    gpu_names = devices.visible_gpus()
    if not gpu_names and not args.tiny:
        print_line("error: no GPU is here; --tiny shows on a CPU what can be looked at there", file=sys.stderr)
        return 1
    wanted = set(args.only or CHECKS)
    wanted |= {CHECKS[name].before for name in wanted} - {""}
    names = [name for name in CHECKS if name in wanted]
    cut = any(gpu.slices for gpu in devices.installed_gpus())
    processes = args.processes or (1 if cut else len(gpu_names) or 1)  # a process sees one MIG slice
    return lines.exit_status(run_checks(args, names, Start(processes, job_nodes())))


if __name__ == "__main__":
    raise SystemExit(main())
