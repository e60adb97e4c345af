"""What a run on SLURM is doing: what runs where and until when, what waits and why, what failed, GPU-hours by rule.

Needs squeue alone. Where sacct answers, GPU-hours are SLURM's own; otherwise they are counted from the jobs' logs.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from crawl2llm.chain.command_line import command_parser
from crawl2llm.chain.steps import STEPS, folder_of, step_of
from crawl2llm.commands.log_tail import seconds_left
from crawl2llm.core import retries
from crawl2llm.core.console import format_duration, format_quantity, print_line
from crawl2llm.core.task_costs import read_seconds, work_benchmarks
from crawl2llm.slurm import guard, queue

ERROR = re.compile(r"^Error in rule (\w+):$")
LOGS = re.compile(r"^ {4}log: (.*?)(?: \(check log file\(s\).*)?$")
TAIL = 64_000  # bytes of a log that are looked at


@dataclass
class Failure:
    """The newest failure of one of Snakemake's jobs."""

    rule: str
    number: str
    logs: list[Path]


def last_lines(path: Path) -> list[str]:
    """The last lines of a file, without empty ones; none if it cannot be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - TAIL))
            return [line for line in handle.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []


def last_words(lines: list[str]) -> list[str]:
    """What the program and SLURM said at the end, without what Snakemake writes below every error."""
    cut = next((n for n, line in enumerate(lines) if line.startswith(("RuleException:", "Error in rule "))), len(lines))
    last = [line for line in lines[:cut] if not re.fullmatch(r"\[\w{3} \w{3} .*\]", line)]
    return last + [line for line in lines[cut:] if line.startswith(("slurmstepd: ", "srun: "))]


def task_place(rule: str, task: str) -> tuple[str, str, str]:
    """(variant, `stage/step`, `/shard` or "") of a job, from its rule and its wildcards joined by `_`.

    A variant's name may hold `_`; what follows the last one is the shard (band, model) where the step has several tasks. A model's name
    may hold it too, so that `a_b_c` has two places; this is one of them (see `log_of`).
    """
    below, step = str(folder_of(step_of(rule))), STEPS.get(step_of(rule))
    if step is None or step.per:
        variant, _, shard = task.rpartition("_")
        return variant, below, f"/{shard}"
    return task, below, ""


def log_of(folder: Path, rule: str, task: str) -> Path:
    """The log that the task's program writes; of several places that a name with `_` may stand for, the one that is there."""
    variant, step, shard = task_place(rule, task)
    log = folder / "logs" / variant / f"{step}{shard}.log"
    for cut in range(len(task)) if shard and not log.exists() else ():
        candidate = folder / "logs" / task[:cut] / step / f"{task[cut + 1 :]}.log"
        if task[cut] == "_" and candidate.exists():
            return candidate
    return log


def median_task_seconds(folder: Path, rule: str) -> float | None:
    """The median seconds of the rule's finished tasks, from their benchmark files."""
    below = f"results/*/benchmarks/{folder_of(step_of(rule))}"
    files = work_benchmarks([*folder.glob(f"{below}/*.tsv"), *folder.glob(f"{below}.tsv")])
    task_seconds = [spent for path in files if (spent := read_seconds(path)) is not None]
    return statistics.median(task_seconds) if task_seconds else None


def expected_seconds_left(folder: Path, job: queue.Job, now: float) -> tuple[float | None, str]:
    """(seconds left, how that is known) of a running job: its log's own rate, or the rule's finished tasks."""
    path = log_of(folder, job.rule, job.task)
    for line in reversed(last_lines(path)):
        if (left := seconds_left(line)) is not None:
            # What the line said, less the time since it was written.
            return max(0.0, left - (now - path.stat().st_mtime)), "its log's rate"
    if (median := median_task_seconds(folder, job.rule)) is not None:
        return max(0.0, median - job.elapsed), "median of finished tasks"
    return None, ""


def driver_log(folder: Path) -> list[str]:
    """The newest log of Snakemake itself."""
    logs = sorted((folder / ".snakemake" / "log").glob("*.snakemake.log"), key=lambda path: path.stat().st_mtime)
    return logs[-1].read_text(encoding="utf-8", errors="replace").splitlines() if logs else []


def failed_jobs(lines: list[str]) -> list[Failure]:
    """The jobs that failed in Snakemake's log and have not succeeded since, the newest last."""
    failures: dict[str, Failure] = {}
    rule = number = ""
    for line in lines:
        if match := ERROR.match(line):
            rule, number = match.group(1), ""
        elif rule and (match := re.match(r"^ {4}jobid: (\d+)$", line)):
            number = match.group(1)
        elif rule and (match := LOGS.match(line)):
            failures.pop(number, None)
            failures[number] = Failure(rule, number, [Path(name.strip()) for name in match.group(1).split(",")])
            rule = ""
        elif match := re.match(r"^Finished jobid: (\d+) ", line):
            failures.pop(match.group(1), None)
    return list(failures.values())


def hours_by_sacct(folder: Path, since: datetime) -> dict[str, float] | None:
    """GPU-hours by rule as SLURM accounts them, every start of a job counted; None if sacct does not answer in a minute."""
    fields = "JobIDRaw,JobName,ElapsedRaw,AllocTRES,Comment,WorkDir"
    start = f"--starttime={since:%Y-%m-%dT%H:%M}"
    try:
        text = retries.ask_slurm("sacct", "-X", "-D", "-n", "-P", start, f"--format={fields}", limit=60)
    except retries.SlurmError:
        return None
    rules = {path.stem: path.parts[-3].removeprefix("rule_") for path in folder.glob("logs/slurm/*/*/*.log")}
    hours: Counter[str] = Counter()
    for line in text.splitlines():
        number, name, elapsed, tres, comment, where = line.split("|", 5)
        if not name.startswith(queue.PREFIX) or Path(where).resolve() != folder:
            continue
        gpus = re.search(r"gres/gpu=(\d+)", tres)
        match = queue.COMMENT.match(comment)
        rule = match["rule"] if match else rules.get(number, "unknown")
        if gpus:
            hours[rule] += int(gpus.group(1)) * int(elapsed) / 3600  # type: ignore[assignment]
    return dict(hours)


def hours_by_logs(folder: Path, running: set[str]) -> dict[str, float]:
    """GPU-hours by rule of jobs that are over, from their logs: GPUs × (last line written − start).

    A job that SLURM queued again counts from its first start, so its time in the queue in between is included.
    """
    hours: Counter[str] = Counter()
    for path in folder.glob("logs/slurm/rule_*/*/*.log"):
        with path.open(encoding="utf-8", errors="replace") as handle:
            head = handle.read(TAIL)
        cards, begin = re.search(r"\bcard=(\d+)", head), re.search(r"^ +Date: (\S+ \S+)$", head, re.MULTILINE)
        if cards and begin and path.stem not in running:
            spent = path.stat().st_mtime - datetime.fromisoformat(begin.group(1)).timestamp()
            hours[path.parts[-3].removeprefix("rule_")] += int(cards.group(1)) * max(0.0, spent) / 3600  # type: ignore[assignment]
    return dict(hours)


def status_lines(folder: Path, lines: int, now: float | None = None) -> Iterator[str]:
    """The status, line by line."""
    now = now or time.time()
    folder = folder.resolve()
    jobs = queue.read_jobs(folder)
    log = driver_log(folder)
    yield from head_lines(folder, log, bool(jobs))

    running = [job for job in jobs if job.state == "RUNNING"]
    yield f"\nrunning: {format_quantity(len(running), 'job')}, {format_quantity(sum(job.gpus for job in running), 'GPU')}"
    if running:
        yield f"  {'rule':<20} {'task':<16} {'job':<9} {'GPUs':>4}  {'on':<12} {'for':>8} {'limit':>8}  expected end"
    for job in running:
        left, how = expected_seconds_left(folder, job, now)
        limit = format_duration(job.limit) if job.limit else "none"
        end = (
            "not known yet"
            if left is None
            else f"{datetime.fromtimestamp(now + left):%a %H:%M:%S}, in {format_duration(left)} ({how})"
        )
        if left is not None and job.limit and job.elapsed + left > job.limit:
            end += ": AFTER its time limit"
        yield (
            f"  {job.rule:<20} {job.task:<16} {job.id:<9} {job.gpus:>4}  {job.where:<12} "
            f"{format_duration(job.elapsed):>8} {limit:>8}  {end}"
        )

    waiting = [job for job in jobs if job.state != "RUNNING"]
    yield f"\nwaiting: {format_quantity(len(waiting), 'job')}"
    groups = Counter((job.rule, job.state.lower(), job.reason, job.started) for job in waiting)
    for (rule, state, reason, start), count in groups.most_common():
        when = f", expected to start {start}" if start not in ("N/A", "") and state == "pending" else ""
        yield f"  {rule:<20} {count:>5,}  {state}: {reason}{when}"

    failed = failed_jobs(log)
    yield f"\nfailed, and not yet made good: {format_quantity(len(failed), 'job')}"
    for failure in failed[-5:]:
        yield f"  {failure.rule}"
        for path in failure.logs:
            path = path if path.is_absolute() else folder / path
            yield f"    {path}"
            yield from (f"      {line}" for line in last_words(last_lines(path))[-lines:])

    first = min((path.stat().st_mtime for path in folder.glob("logs/slurm/*/*/*.log")), default=now)
    hours = hours_by_sacct(folder, datetime.fromtimestamp(first) - timedelta(days=7))
    source = "sacct"
    if hours is None:
        source = "the jobs' logs; sacct does not answer"
        spent = Counter(hours_by_logs(folder, {job.id for job in jobs}))
        for job in running:
            spent[job.rule] += job.gpus * job.elapsed / 3600  # type: ignore[assignment]
        hours = dict(spent)
    hours = {rule: value for rule, value in hours.items() if value}
    yield f"\nGPU-hours: {sum(hours.values()):.2f} (from {source})"
    for rule, value in sorted(hours.items(), key=lambda item: -item[1]):
        yield f"  {rule:<20} {value:>9.2f}"


def head_lines(folder: Path, log: list[str], jobs: bool) -> Iterator[str]:
    """How far the run is, and whether Snakemake lives."""
    done = next(
        (match for line in reversed(log) if (match := re.match(r"(\d+) of (\d+) steps \((\d+)%\) done", line))), None
    )
    if done:
        yield f"{done.group(1)} of {done.group(2)} tasks of the newest run are done ({done.group(3)} %)"
    lease = folder / guard.DRIVER_FILE
    if not lease.exists():
        yield "no run of Snakemake under SLURM was ever started here"
        return
    owner, silent = json.loads(lease.read_text(encoding="utf-8")), guard.seconds_since_written(lease)
    driver = f"Snakemake (process {owner['pid']} on {owner['host']})"
    if silent < guard.DEAD_SECONDS:
        yield f"{driver} gave a sign of life {format_duration(silent)} ago"
    elif jobs:
        yield f"{driver} is dead since {format_duration(silent)}, and its jobs are still there: start it again, it clears them"
    else:
        yield f"{driver} ended {format_duration(silent)} ago"


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm status", __doc__, "--directory /scratch/me/run")
    parser.add_argument("--directory", type=Path, default=Path(), help="the folder that Snakemake was started in")
    parser.add_argument("--lines", type=int, default=5, help="last lines of a failing log to show")
    args = parser.parse_args(argv)
    try:
        for line in status_lines(args.directory, args.lines):
            print_line(line)
    except retries.SlurmError as error:
        print_line(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
