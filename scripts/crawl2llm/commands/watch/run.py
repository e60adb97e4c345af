"""What is known of a run while it works: its steps, tasks and documents, and about how long it will take still."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.chain.steps import STEPS
from crawl2llm.commands.status import measured
from crawl2llm.commands.watch.tail import WARNING, Tail

LATE = 10.0  # seconds after which a task that should be over is said to take longer
TARGET = "all"  # the rule that only asks for the others
# The steps whose counts are documents.
DOCUMENTS = list(STEPS)[list(STEPS).index("ingest.extract") : list(STEPS).index("corpus.write") + 1]
ALSO = re.compile(r" --also((?: \d+)+)")  # in the command of a task of several shards


def step_of(rule: str) -> str:
    """`language_score` → `language.score`; a rule of another workflow keeps its name."""
    found = steps.step_of(rule)
    return found if found in STEPS else rule


@dataclass
class Task:
    """One of Snakemake's jobs, once it has been started or submitted. `began` is in seconds of the run's clock."""

    number: int
    step: str
    name: str  # shard, band or model, and the variant where it is not main
    log: Path | None
    manifest: Path | None
    began: float
    variant: str = "main"
    command: str = ""
    tail: Tail | None = None

    @property
    def manifests(self) -> list[Path]:
        """Its manifest, and those of the further shards that its command names."""
        own, named = self.manifest, ALSO.search(self.command)
        more = named[1].split() if named else []
        return [own, *(own.with_name(f"{shard}.manifest.json") for shard in more)] if own else []

    def __str__(self) -> str:
        return f"{self.step} {self.name}".rstrip()


@dataclass
class Step:
    """The tasks of a step in this run."""

    total: int
    done: int = 0
    running: dict[int, Task] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    earlier: float | None = None  # median seconds of a task, from the benchmark files of earlier runs
    widest: int = 1  # most tasks that ran at once
    began: float | None = None
    ended: float | None = None
    newest_stop: float | None = None  # when the newest of its tasks was over
    read: int = 0  # documents, by the tasks of all variants
    kept: int = 0
    of_main: tuple[int, int] = (0, 0)  # (read, kept) by main's tasks alone
    unchanged: int = 0  # tasks that had nothing to do
    result: str = ""  # what a training or an evaluation has measured at last

    @property
    def each(self) -> float | None:
        """Seconds of a task: the median of those that are over; None before the first."""
        return statistics.median(self.seconds) if self.seconds else self.earlier


class Run:
    """The state of a run. Times are given by the caller: seconds of one monotonic clock."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder, self.began = folder, now
        self.steps: dict[str, Step] = {}
        self.warned: dict[str, None] = {}  # warnings that were shown, each once

    def plan(self, counts: dict[str, int]) -> None:
        """The tasks to do by rule, as Snakemake counts them."""
        order = list(STEPS)
        names = sorted(
            (rule for rule in counts if rule not in (TARGET, "total")),
            key=lambda rule: order.index(step_of(rule)) if step_of(rule) in order else len(order),
        )
        self.steps = {step_of(rule): Step(counts[rule], earlier=measured(self.folder, rule)) for rule in names}

    def start(self, info: Any, now: float) -> Task | None:
        """A job is started (again); `info` holds the fields of the logger interface's JOB_INFO event."""
        if info.rule_name == TARGET:
            return None
        own = {key: str(value) for key, value in dict(info.wildcards or {}).items()}
        variant = own.pop("variant", "main")
        name = " ".join([*own.values(), *([f"of {variant}"] if variant != "main" else [])])
        logs = [self.folder / path for path in info.log or []]
        manifests = [self.folder / path for path in info.output or [] if path.endswith("manifest.json")]
        task = Task(
            number=info.jobid,
            step=step_of(info.rule_name),
            name=name,
            log=logs[0] if logs else None,
            manifest=manifests[0] if manifests else None,
            began=now,
            variant=variant,
            command=str(info.shellcmd or ""),
        )
        task.tail = Tail(task.log) if task.log else None
        step = self.steps.setdefault(task.step, Step(1))
        step.running[task.number] = task
        step.widest = max(step.widest, len(step.running))
        step.began = now if step.began is None else step.began
        step.ended = None
        return task

    def stop(self, number: int, now: float, finished: bool) -> tuple[Task, Step] | None:
        """A job is over: (its task, its step); None for the target rule."""
        for step in self.steps.values():
            if (task := step.running.pop(number, None)) is None:
                continue
            step.newest_stop = now
            if finished:
                step.done += 1
                step.seconds.append(now - task.began)
                step.ended = now if step.done >= step.total else None
                self._count(task, step)
            return task, step
        return None

    def unchanged(self, number: int) -> None:
        """A job that was to start has nothing to do."""
        for step in self.steps.values():
            if task := step.running.get(number):
                step.unchanged += 1
                task.tail = None  # its log is of the start that did the work

    def _count(self, task: Task, step: Step) -> None:
        if task.step not in DOCUMENTS:
            return
        for path in task.manifests:
            try:
                counts = json.loads(path.read_text(encoding="utf-8"))["counts"]
                read, kept = int(counts["in"]), int(counts["kept"])
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not every task counts documents
            step.read, step.kept = step.read + read, step.kept + kept
            if task.variant == "main":
                step.of_main = (step.of_main[0] + read, step.of_main[1] + kept)

    def look(self) -> list[str]:
        """Read the logs of running tasks; returns warnings that were not shown yet."""
        found = []
        for step in self.steps.values():
            for task in list(step.running.values()):
                found += self.look_at(task, step)
        return found

    def look_at(self, task: Task, step: Step) -> list[str]:
        """Read what a task's log has got since the last look."""
        if task.tail is None:
            return []
        new = []
        for line in task.tail.look():
            # Several tasks may say the same: it is shown once, headed by the first of them.
            said = line.partition(": ")[2] if WARNING in line else line
            if said not in self.warned:
                self.warned[said] = None
                new.append(line)
        step.result = task.tail.result or step.result
        return new

    @property
    def total(self) -> int:
        return sum(step.total for step in self.steps.values())

    @property
    def done(self) -> int:
        return sum(step.done for step in self.steps.values())

    def kept(self) -> tuple[str, int, int] | None:
        """(step, documents kept by it, documents that the run's first step read) of the newest step that is complete.

        Of main alone: variants judge the same documents again. None also where the first step ran for fewer shards than
        the newest, as after an edit.
        """
        counted = [
            (name, step.of_main) for name, step in self.steps.items() if step.of_main[0] and step.ended is not None
        ]
        if not counted or counted[-1][1][1] > counted[0][1][0]:
            return None
        return counted[-1][0], counted[-1][1][1], counted[0][1][0]

    def left(self, now: float, clock: float) -> tuple[float | None, list[str], list[str]]:
        """(about how many seconds are left, the steps of which no task was ever measured, those of which a task is late).

        None where nothing is known. `now` is of the run's clock, `clock` is time.time(), which files have. A step takes the
        median of its tasks, of this run or an earlier one, as often as its tasks that run at once leave some; a
        running task says itself how long it takes, where it can. Steps are taken to follow each other.
        """
        total, known, unknown, late = 0.0, False, list[str](), list[str]()
        for name, step in self.steps.items():
            waiting = step.total - step.done - len(step.running)
            estimates = [_estimate(task, step, now, clock) for task in step.running.values()]
            own = [max(0.0, found) for found in estimates if found is not None and found > -LATE]
            if any(found is not None and found <= -LATE for found in estimates):
                late.append(name)
            known |= bool(own)
            total += max(own, default=0.0)
            if (waiting > 0 and step.each is None) or (estimates and set(estimates) == {None}):
                unknown.append(name)
            elif waiting > 0 and step.each is not None:
                known = True
                total += step.each * -(-waiting // step.widest)
        return (total if known or not (unknown or late) else None), unknown, late


def _estimate(task: Task, step: Step, now: float, clock: float) -> float | None:
    """Seconds that a running task still takes, by its own log or by the step's other tasks; below 0 if it should be over."""
    if task.tail and task.tail.left:
        left, written = task.tail.left
        return left - max(0.0, clock - written)
    return step.each - (now - task.began) if step.each is not None else None


def documents(found: tuple[str, int, int] | None) -> str:
    """`807 of 1,810 documents kept after corpus.write`; "" where nothing was counted."""
    return f"{found[1]:,} of {found[2]:,} documents kept after {found[0]}" if found else ""


def lost(step: str, loss: float) -> str:
    """A training's loss with its unit; that of an alignment has none."""
    return f"loss {loss:.3f}" + ("" if steps.stage_of(step) == "align" else " nats a token")


def listed(names: Iterable[str], most: int = 3) -> str:
    """Names with commas, the first few of them."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
