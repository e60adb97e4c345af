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

from crawl2llm.chain.command_line import described
from crawl2llm.chain.steps import STEPS, folder_of, step_of
from crawl2llm.commands.watch.tail import seconds_left
from crawl2llm.core import retries
from crawl2llm.core.console import duration, put, quantity
from crawl2llm.core.task_costs import counting, seconds
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


def tail(path: Path) -> list[str]:
    """The last lines of a file, without empty ones; none where it cannot be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - TAIL))
            return [line for line in handle.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []


def last_words(lines: list[str]) -> list[str]:
    """What the program and SLURM said at the end, without what Snakemake writes below every error."""
    cut = next((n for n, line in enumerate(lines) if line.startswith(("RuleException:", "Error in rule "))), len(lines))
    said = [line for line in lines[:cut] if not re.fullmatch(r"\[\w{3} \w{3} .*\]", line)]
    return said + [line for line in lines[cut:] if line.startswith(("slurmstepd: ", "srun: "))]


def places(rule: str, task: str) -> tuple[str, str, str]:
    """(variant, `stage/step`, `/shard` or "") of a job, from its rule and its wildcards joined by `_`.

    A variant's name may hold `_`; what follows the last one is the shard (band, model) where the step has several tasks. A model's name
    may hold it too, so that `a_b_c` has two places; this is one of them (see `log_of`).
    """
    below, known = str(folder_of(step_of(rule))), STEPS.get(step_of(rule))
    if known is None or known.per:
        variant, _, shard = task.rpartition("_")
        return variant, below, f"/{shard}"
    return task, below, ""


def log_of(folder: Path, rule: str, task: str) -> Path:
    """The log that the task's program writes; of several places that a name with `_` may stand for, the one that is there."""
    variant, step, shard = places(rule, task)
    found = folder / "logs" / variant / f"{step}{shard}.log"
    for cut in range(len(task)) if shard and not found.exists() else ():
        other = folder / "logs" / task[:cut] / step / f"{task[cut + 1 :]}.log"
        if task[cut] == "_" and other.exists():
            return other
    return found


def measured(folder: Path, rule: str) -> float | None:
    """The median seconds of the rule's finished tasks, from their benchmark files."""
    below = f"results/*/benchmarks/{folder_of(step_of(rule))}"
    files = counting([*folder.glob(f"{below}/*.tsv"), *folder.glob(f"{below}.tsv")])
    found = [spent for path in files if (spent := seconds(path)) is not None]
    return statistics.median(found) if found else None


def expected(folder: Path, job: queue.Job, now: float) -> tuple[float | None, str]:
    """(seconds left, how that is known) of a running job: its log's own rate, or the rule's finished tasks."""
    path = log_of(folder, job.rule, job.task)
    for line in reversed(tail(path)):
        if (left := seconds_left(line)) is not None:
            # What the line said, less the time since it was written.
            return max(0.0, left - (now - path.stat().st_mtime)), "its log's rate"
    if (median := measured(folder, job.rule)) is not None:
        return max(0.0, median - job.elapsed), "median of finished tasks"
    return None, ""


def driver_log(folder: Path) -> list[str]:
    """The newest log of Snakemake itself."""
    logs = sorted((folder / ".snakemake" / "log").glob("*.snakemake.log"), key=lambda path: path.stat().st_mtime)
    return logs[-1].read_text(encoding="utf-8", errors="replace").splitlines() if logs else []


def failures(lines: list[str]) -> list[Failure]:
    """The jobs that failed in Snakemake's log and have not succeeded since, the newest last."""
    found: dict[str, Failure] = {}
    rule = number = ""
    for line in lines:
        if match := ERROR.match(line):
            rule, number = match.group(1), ""
        elif rule and (match := re.match(r"^ {4}jobid: (\d+)$", line)):
            number = match.group(1)
        elif rule and (match := LOGS.match(line)):
            found.pop(number, None)
            found[number] = Failure(rule, number, [Path(name.strip()) for name in match.group(1).split(",")])
            rule = ""
        elif match := re.match(r"^Finished jobid: (\d+) ", line):
            found.pop(match.group(1), None)
    return list(found.values())


def hours_by_sacct(folder: Path, since: datetime) -> dict[str, float] | None:
    """GPU-hours by rule as SLURM accounts them, every start of a job counted; None where sacct does not answer in a minute."""
    fields = "JobIDRaw,JobName,ElapsedRaw,AllocTRES,Comment,WorkDir"
    start = f"--starttime={since:%Y-%m-%dT%H:%M}"
    try:
        text = retries.ask("sacct", "-X", "-D", "-n", "-P", start, f"--format={fields}", limit=60)
    except retries.SlurmError:
        return None
    rules = {path.stem: path.parts[-3].removeprefix("rule_") for path in folder.glob("logs/slurm/*/*/*.log")}
    found: Counter[str] = Counter()
    for line in text.splitlines():
        number, name, elapsed, tres, comment, where = line.split("|", 5)
        if not name.startswith(queue.PREFIX) or Path(where).resolve() != folder:
            continue
        gpus = re.search(r"gres/gpu=(\d+)", tres)
        match = queue.COMMENT.match(comment)
        rule = match["rule"] if match else rules.get(number, "unknown")
        if gpus:
            found[rule] += int(gpus.group(1)) * int(elapsed) / 3600  # type: ignore[assignment]
    return dict(found)


def hours_by_logs(folder: Path, running: set[str]) -> dict[str, float]:
    """GPU-hours by rule of jobs that are over, from their logs: GPUs × (last line written − start).

    A job that SLURM queued again counts from its first start, so its time in the queue in between is included.
    """
    found: Counter[str] = Counter()
    for path in folder.glob("logs/slurm/rule_*/*/*.log"):
        with path.open(encoding="utf-8", errors="replace") as handle:
            head = handle.read(TAIL)
        cards, begin = re.search(r"\bcard=(\d+)", head), re.search(r"^ +Date: (\S+ \S+)$", head, re.MULTILINE)
        if cards and begin and path.stem not in running:
            spent = path.stat().st_mtime - datetime.fromisoformat(begin.group(1)).timestamp()
            found[path.parts[-3].removeprefix("rule_")] += int(cards.group(1)) * max(0.0, spent) / 3600  # type: ignore[assignment]
    return dict(found)


def report(folder: Path, lines: int, now: float | None = None) -> Iterator[str]:
    """The status, line by line."""
    now = now or time.time()
    folder = folder.resolve()
    jobs = queue.jobs(folder)
    log = driver_log(folder)
    yield from head(folder, log, bool(jobs))

    running = [job for job in jobs if job.state == "RUNNING"]
    yield f"\nrunning: {quantity(len(running), 'job')}, {quantity(sum(job.gpus for job in running), 'GPU')}"
    if running:
        yield f"  {'rule':<20} {'task':<16} {'job':<9} {'GPUs':>4}  {'on':<12} {'for':>8} {'limit':>8}  expected end"
    for job in running:
        left, how = expected(folder, job, now)
        limit = duration(job.limit) if job.limit else "none"
        end = (
            "not known yet"
            if left is None
            else f"{datetime.fromtimestamp(now + left):%a %H:%M:%S}, in {duration(left)} ({how})"
        )
        if left is not None and job.limit and job.elapsed + left > job.limit:
            end += ": AFTER its time limit"
        yield (
            f"  {job.rule:<20} {job.task:<16} {job.id:<9} {job.gpus:>4}  {job.where:<12} "
            f"{duration(job.elapsed):>8} {limit:>8}  {end}"
        )

    waiting = [job for job in jobs if job.state != "RUNNING"]
    yield f"\nwaiting: {quantity(len(waiting), 'job')}"
    groups = Counter((job.rule, job.state.lower(), job.reason, job.started) for job in waiting)
    for (rule, state, reason, start), count in groups.most_common():
        when = f", expected to start {start}" if start not in ("N/A", "") and state == "pending" else ""
        yield f"  {rule:<20} {count:>5,}  {state}: {reason}{when}"

    failed = failures(log)
    yield f"\nfailed, and not yet made good: {quantity(len(failed), 'job')}"
    for failure in failed[-5:]:
        yield f"  {failure.rule}"
        for path in failure.logs:
            path = path if path.is_absolute() else folder / path
            yield f"    {path}"
            yield from (f"      {line}" for line in last_words(tail(path))[-lines:])

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


def head(folder: Path, log: list[str], jobs: bool) -> Iterator[str]:
    """How far the run is, and whether Snakemake lives."""
    done = next(
        (match for line in reversed(log) if (match := re.match(r"(\d+) of (\d+) steps \((\d+)%\) done", line))), None
    )
    if done:
        yield f"{done.group(1)} of {done.group(2)} tasks of the newest run are done ({done.group(3)} %)"
    lease = folder / guard.DRIVER
    if not lease.exists():
        yield "no run of Snakemake under SLURM was ever started here"
        return
    owner, silent = json.loads(lease.read_text(encoding="utf-8")), guard.age(lease)
    who = f"Snakemake (process {owner['pid']} on {owner['host']})"
    if silent < guard.DEAD:
        yield f"{who} gave a sign of life {duration(silent)} ago"
    elif jobs:
        yield f"{who} is dead since {duration(silent)}, and its jobs are still there: start it again, it clears them"
    else:
        yield f"{who} ended {duration(silent)} ago"


def main(argv: list[str] | None = None) -> int:
    parser = described("crawl2llm status", __doc__, "--directory /scratch/me/run")
    parser.add_argument("--directory", type=Path, default=Path(), help="the folder that Snakemake was started in")
    parser.add_argument("--lines", type=int, default=5, help="last lines of a failing log to show")
    args = parser.parse_args(argv)
    try:
        for line in report(args.directory, args.lines):
            put(line)
    except retries.SlurmError as error:
        put(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
