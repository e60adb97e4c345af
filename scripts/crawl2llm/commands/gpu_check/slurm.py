"""gpu-check as a SLURM job on one node or several: submits itself by the profile's values, and shows what it prints until it ends."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.retries import NoAnswerError, SlurmError, ask_once, ask_slurm
from crawl2llm.core.root import ROOT

JOB_VARIABLE = "CRAWL2LLM_GPU_CHECK_JOB"  # set in the job that this module submits
MORE_MINUTES = 5  # of the job, for the start of its processes
POLL, ASK = 1.0, 15.0  # seconds between two looks at the log, and between two questions to SLURM
LATE = 60.0  # seconds after which a file that another node wrote is here
ENDED = re.compile(r"^gpu-check ended with status (\d+)$", re.MULTILINE)
NEEDED = ("gpu", "gpus", "cores_by_gpu", "memory_by_gpu")  # values of the profile


def positive_number(text: str) -> int:
    """The value of an option that takes a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of a job."""
    group = parser.add_argument_group("on a SLURM cluster")
    group.add_argument("--slurm", action="store_true", help="submit this as a job, wait for it and show what it prints")
    group.add_argument("--nodes", type=positive_number, default=1, help="nodes of the job (default: 1)")
    group.add_argument(
        "--profile", type=Path, default=Path("profiles/slurm"),
        help="whose account, GPUs, cores, memory and partitions.yaml the job asks by (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help="further options of sbatch, which come last: --sbatch='--qos=debug'",
    )


def read_profile(profile: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the values on top of its config.yaml, its partitions by name). Raises InputError if there is no profile, or a value is missing."""
    import yaml  # transformers needs it too

    folder = profile if (profile / "config.yaml").exists() else ROOT / profile
    path = folder / "config.yaml"
    if not path.exists():
        raise InputError(
            f"--profile {profile}: {path} does not exist; name the folder of your site's profile (docs/slurm.md)"
        )
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    values = config.get("__variables__") or {}
    if missing := [name for name in NEEDED if name not in values]:
        raise InputError(
            f"--profile {profile}: {path} has no {', '.join(missing)} under __variables__ (profiles/slurm/config.yaml has)"
        )
    named = config.get("slurm-partition-config")
    partitions = yaml.safe_load((folder / named).read_text(encoding="utf-8"))["partitions"] if named else {}
    return values, partitions


def choose_partition(partitions: dict[str, Any], gpu: str, gpus: int, nodes: int) -> str:
    """The first partition that has such GPUs; gpus: of a node, 0 for a partition without. "" lets SLURM choose.

    Raises InputError if there are partitions and none has them.
    """
    for name, limits in partitions.items():
        has = (limits or {}).get("max_gpu") or 0
        fits = has >= gpus if gpus else not has
        if fits and gpu in limits.get("available_gpu_models", [gpu]) and nodes <= (limits.get("max_nodes") or nodes):
            return str(name)
    if partitions:
        wanted = f"{gpus} GPUs {gpu} on each of {nodes} nodes" if gpus else f"{nodes} nodes without GPUs"
        raise InputError(f"no partition of the profile's partitions.yaml ({', '.join(partitions)}) has {wanted}")
    return ""


def sbatch_options(args: argparse.Namespace) -> list[str]:
    """What the job asks for; a tiny one for no GPU."""
    values, partitions = read_profile(args.profile)
    gpus = 0 if args.tiny else args.processes or int(values["gpus"])
    options = {
        "partition": choose_partition(partitions, values["gpu"], gpus, args.nodes),
        "account": values.get("account") or "",
        "nodes": args.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": gpus * int(values["cores_by_gpu"]) or args.processes or 1,
        "mem": f"{gpus * int(values['memory_by_gpu']) or 4000}M",
        "time": round(args.minutes) + MORE_MINUTES,
        "gres": f"gpu:{values['gpu']}:{gpus}" if gpus else "",
        "job-name": "gpu-check",
    }
    return [*(f"--{name}={value}" for name, value in options.items() if value), *shlex.split(args.sbatch)]


def job_command(argv: list[str]) -> str:
    """The line that the job runs: this command, without what submits it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser)
    _, rest = parser.parse_known_args(argv)
    words = [sys.executable, "-m", "crawl2llm.commands.gpu_check.command", *rest]
    return f"{JOB_VARIABLE}=1 {shlex.join(words)}; echo gpu-check ended with status $?"


def run_as_job(args: argparse.Namespace, argv: list[str]) -> int:
    """Submit, print what the job's log gets, and return the status that it ends with. Ctrl-C cancels the job.

    Raises InputError if SLURM refuses the job, or it ends without a result.
    """
    log = Path(f"gpu-check-{time.strftime('%Y%m%d-%H%M%S')}.log").resolve()
    path = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTHONPATH"] = path  # sbatch passes it on
    command = ["sbatch", "--parsable", f"--output={log}", *sbatch_options(args), f"--wrap={job_command(argv)}"]
    try:
        job = ask_once(*command).strip().split(";")[0]  # once: a second time there might be two
    except (SlurmError, NoAnswerError) as error:
        raise InputError(f"SLURM does not take the job: {error}") from None
    print_line(f"job {job} is submitted; its log: {log}. Ctrl-C cancels it", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return follow(job, log)
    except KeyboardInterrupt:
        ask_slurm("scancel", job)
        print_line(f"job {job} is cancelled", file=sys.stderr)
        return 130


def is_in_queue(job: str) -> bool:
    """Whether SLURM has the job, waiting or at work."""
    try:
        return bool(ask_slurm("squeue", "-h", "-j", job, "-o", "%T").strip())
    except SlurmError:  # `Invalid job id`: it is forgotten
        return False


def follow(job: str, log: Path) -> int:
    """Print the log as it grows; the status on its last line. Raises InputError if the job is gone and there is none."""
    shown, last_question, gone = 0, time.monotonic(), 0.0
    while True:
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        end = ENDED.search(text)
        ready = text[: end.start()] if end else text[: text.rfind("\n") + 1]
        for line in ready[shown:].splitlines():
            print_line(line, flush=True)
        shown = max(shown, len(ready))
        if end:
            return int(end[1])
        now = time.monotonic()
        if gone and now - gone > LATE:
            raise InputError(f"job {job} has ended without a result; its log is {log}")
        if not gone and now - last_question > ASK:
            last_question, gone = now, 0.0 if is_in_queue(job) else now
        time.sleep(POLL)
