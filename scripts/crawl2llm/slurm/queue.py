"""The user's jobs as squeue shows them, with the workflow's names: rule and task instead of a run's UUID."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crawl2llm.core.retries import ask_slurm

PREFIX = "crawl2llm_"  # slurm-jobname-prefix in profiles/slurm/config.yaml, and the executor's underscore
FIELDS = "%i|%T|%P|%D|%C|%b|%V|%S|%M|%l|%N|%j|%k|%r|%Z"
# As the executor writes it, and the mark of one submission (slurm/executor.py).
COMMENT = re.compile(r"rule_(?P<rule>.+?)(?:_wildcards_(?P<task>.+?))?(?: #\w+)?$")
ENDED_STATES = (
    "CANCELLED",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
)


@dataclass(frozen=True)
class Job:
    """One job of this workflow. Times are as SLURM writes them (local time); `elapsed` and `limit` are seconds."""

    id: str
    state: str
    partition: str
    nodes: int
    cpus: int
    gpus: int
    submitted: str
    started: str
    elapsed: int
    limit: int | None
    where: str
    run: str
    rule: str
    task: str
    reason: str
    folder: Path

    @property
    def has_ended(self) -> bool:
        """Whether the job is over (squeue shows such jobs for MinJobAge seconds)."""
        return self.state.split()[0] in ENDED_STATES


def parse_seconds(text: str) -> int | None:
    """SLURM's `[days-][hours:]minutes:seconds` or `days-hours…` in seconds; None for UNLIMITED, INVALID, N/A."""
    match = re.fullmatch(r"(?:(\d+)-)?((?:\d+:){0,2}\d+)", text.strip())
    if not match:
        return None
    parts = [int(part) for part in match.group(2).split(":")]
    if match.group(1):  # days-hours[:minutes[:seconds]]
        parts += [0] * (3 - len(parts))
    elif len(parts) == 1:  # minutes
        parts = [0, *parts, 0]
    parts = [0] * (3 - len(parts)) + parts
    return int(match.group(1) or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def count_gpus(gres: str) -> int:
    """GPUs in a GRES or TRES string: `gres:gpu:h100:4` → 4, `gpu:2` → 2, `gpu` → 1, `N/A` → 0."""
    total = 0
    for part in gres.split(","):
        if match := re.search(r"\bgpu(?::[A-Za-z][\w.-]*)?(?:[:=](\d+))?(?:\(|$)", part):
            total += int(match.group(1) or 1)
    return total


def parse_jobs(lines: Iterable[str]) -> list[Job]:
    """Jobs from squeue lines in the format FIELDS, only those whose name has the workflow's prefix."""
    jobs = []
    for line in lines:
        cells = line.rstrip("\n").split("|", 14)
        if len(cells) != 15 or not cells[11].startswith(PREFIX):
            continue
        match = COMMENT.match(cells[12])
        nodes = int(cells[3]) if cells[3].isdigit() else 1
        jobs.append(
            Job(
                id=cells[0],
                state=cells[1],
                partition=cells[2],
                nodes=nodes,
                cpus=int(cells[4]) if cells[4].isdigit() else 0,
                gpus=count_gpus(cells[5]) * nodes,
                submitted=cells[6],
                started=cells[7],
                elapsed=parse_seconds(cells[8]) or 0,
                limit=parse_seconds(cells[9]),
                where=cells[10],
                run=cells[11],
                rule=match["rule"] if match else cells[12],
                task=(match["task"] or "") if match else "",
                reason=cells[13],
                folder=Path(cells[14]),
            )
        )
    return jobs


def read_jobs(folder: Path | None = None, ended: bool = False, limit: float | None = None) -> list[Job]:
    """The user's jobs of this workflow, those of one working directory if given; `ended`: also those just over.

    limit: seconds for which SLURM is asked, see retries.ask.
    """
    states = ["--states=all"] if ended else []
    command = ("squeue", "--noheader", f"--user={getpass.getuser()}", *states, f"--format={FIELDS}")
    lines = ask_slurm(*command, limit=limit).splitlines()
    jobs = parse_jobs(lines)
    if folder is not None:
        jobs = [job for job in jobs if job.folder.resolve() == folder.resolve()]
    return jobs


def min_job_age() -> int | None:
    """Seconds for which squeue remembers a job that has ended; None if SLURM does not say."""
    match = re.search(r"MinJobAge\s*=\s*(\d+)", ask_slurm("scontrol", "show", "config"))
    return int(match.group(1)) if match else None
