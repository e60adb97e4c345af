"""Checks the GPUs of this machine before a training spends hours on them: speed against the data sheet, numerics against a CPU, steps of
a model of 1B parameters, save and load, the folder of checkpoints. At most ten minutes.

Prints a line for each thing that is looked at, with a verdict: ok, slow, wrong, or skipped with the reason. It needs torch 2.11 and
transformers 5.17, or later ones, and nothing else: a copy of
scripts/ does, by `python -m crawl2llm gpu-check` in it.
Exit status: 1 if something is slow or wrong, else 0. docs/commands/gpu-check.md
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

from crawl2llm.commands.gpu_check import lines
from crawl2llm.commands.gpu_check.checks import CHECKS, PACKAGE
from crawl2llm.commands.gpu_check.lines import SKIPPED, WRONG, Line
from crawl2llm.core import devices
from crawl2llm.core.console import format_duration, print_line
from crawl2llm.training.processes import environments, free_port

POLL = 0.1  # seconds


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
                code = process.returncode
                how = signal.Signals(-code).name if code < 0 else f"status {code}"
                return f"a process ended with {how}: {text[-1][:300] if text else ''}"
        return ""


def start_group(args: argparse.Namespace, scratch: Path, names: list[str], processes: int) -> Group:
    """Start the workers for these checks."""
    command = [sys.executable, "-m", f"{PACKAGE}.worker"]
    events = scratch / "events.jsonl"
    events.write_text("")
    options = [str(events), str(args.folder.resolve()), str(scratch), str(args.tiny), *names]
    group = Group([], [], events)
    for rank, variables in enumerate(environments(0, 1, processes, "127.0.0.1", free_port())):
        log = scratch / f"worker-{rank}.log"
        more = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(scratch / "nccl.log")} if rank == 0 else {}
        path = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
        with log.open("wb") as stream:
            group.processes.append(
                subprocess.Popen(
                    [*command, *options],
                    env=os.environ | variables | more | {"PYTHONPATH": path},
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
                group.open_check = ""
        if not running:
            break
        limit = CHECKS[group.open_check].seconds if group.open_check else 120
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


def check_machine(args: argparse.Namespace, names: list[str], processes: int) -> Iterator[Line]:
    """The lines of all checks; processes that died in one are started again for the next."""
    deadline, left = time.monotonic() + 60 * args.minutes, list(names)
    with tempfile.TemporaryDirectory(prefix=".gpu-check-", dir=args.folder) as scratch:
        while left and time.monotonic() < deadline:
            yield from run_group(start_group(args, Path(scratch), left, processes), left, deadline, args.log)
    for name in left:
        yield Line(name, CHECKS[name].what, verdict=SKIPPED, note="no time is left (--minutes)")


def argument_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="crawl2llm gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  crawl2llm gpu-check --folder /scratch/me/checkpoints --json gpu.json\n\nchecks:\n"
        + "\n".join(f"  {name:10}{check.what}" for name, check in CHECKS.items()),
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
    parser.add_argument("--processes", type=int, help="default: one for each GPU, one on a CPU")
    parser.add_argument(
        "--tiny", action="store_true", help="sizes that a CPU can do, and no GPU needed: shows that it works"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the checks and print the table; the exit status."""
    args = argument_parser().parse_args(argv)
    gpu_names = devices.visible_gpus()
    if not gpu_names and not args.tiny:
        print_line("error: no GPU is here; --tiny shows on a CPU what can be looked at there", file=sys.stderr)
        return 1
    wanted = set(args.only or CHECKS)
    wanted |= {CHECKS[name].before for name in wanted} - {""}
    names = [name for name in CHECKS if name in wanted]
    cut = any(gpu.slices for gpu in devices.installed_gpus())
    processes = args.processes or (1 if cut else len(gpu_names) or 1)  # a process sees one MIG slice
    start, every = time.monotonic(), list[Line]()
    print_line(lines.HEADER, flush=True)
    for line in check_machine(args, names, processes):
        every.append(line)
        print_line(lines.row_text(line), flush=True)
        spent = time.monotonic() - start
        print_line(
            f"{spent:4.0f} s of at most {60 * args.minutes:.0f}, {len(every)} lines, {len(every) / spent:.1f}/s",
            file=sys.stderr,
        )
    print_line(f"\n{lines.summary_text(every)}, in {format_duration(time.monotonic() - start)}", flush=True)
    if args.json:
        body = {"seconds": round(time.monotonic() - start, 1), "processes": processes, "tiny": args.tiny}
        args.json.write_text(json.dumps(body | {"lines": [line.as_json() for line in every]}, indent=1) + "\n")
    return lines.exit_status(every)


if __name__ == "__main__":
    raise SystemExit(main())
