"""What is known of a run while it works: its steps, tasks and documents, and about how long it will take still."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.chain.steps import STEPS
from crawl2llm.commands.log_tail import WARNING, Tail
from crawl2llm.commands.status import median_task_seconds

LATE_SECONDS = 10.0  # seconds after which a task that should be over is said to take longer
TARGET_RULE = "all"  # the rule that only asks for the others
# The steps whose counts are documents.
FURTHER_SHARDS = re.compile(r" --also((?: \d+)+)")  # in the command of a task of several shards


def counts_documents(step: str) -> bool:
    """Whether the tasks of a step count documents."""
    order = list(STEPS)
    return step in order[order.index("ingest.extract") : order.index("corpus.write") + 1]


def step_of(rule: str) -> str:
    """`language_score` → `language.score`; a rule of another workflow keeps its name."""
    step = steps.step_of(rule)
    return step if step in STEPS else rule


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
        manifest, shards_match = self.manifest, FURTHER_SHARDS.search(self.command)
        more = shards_match[1].split() if shards_match else []
        return [manifest, *(manifest.with_name(f"{shard}.manifest.json") for shard in more)] if manifest else []

    def __str__(self) -> str:
        return f"{self.step} {self.name}".rstrip()


@dataclass
class Step:
    """The tasks of a step in this run."""

    total: int
    done: int = 0
    running: dict[int, Task] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    seconds_before: float | None = None  # median seconds of a task, from the benchmark files of earlier runs
    widest: int = 1  # most tasks that ran at once
    began: float | None = None
    ended: float | None = None
    newest_stop: float | None = None  # when the newest of its tasks was over
    documents_read: int = 0  # documents, by the tasks of all variants
    documents_kept: int = 0
    main_documents: tuple[int, int] = (0, 0)  # (read, kept) by main's tasks alone
    unchanged: int = 0  # tasks that had nothing to do
    result: str = ""  # what a training or an evaluation has measured at last

    @property
    def seconds_per_task(self) -> float | None:
        """Seconds of a task: the median of those that are over; None before the first."""
        return statistics.median(self.seconds) if self.seconds else self.seconds_before


class Run:
    """The state of a run. Times are given by the caller: seconds of one monotonic clock."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder, self.began = folder, now
        self.steps: dict[str, Step] = {}
        self.shown_warnings: dict[str, None] = {}  # warnings that were shown, each once

    def set_plan(self, counts: dict[str, int]) -> None:
        """The tasks to do by rule, as Snakemake counts them."""
        order = list(STEPS)
        names = sorted(
            (rule for rule in counts if rule not in (TARGET_RULE, "total")),
            key=lambda rule: order.index(step_of(rule)) if step_of(rule) in order else len(order),
        )
        self.steps = {
            step_of(rule): Step(counts[rule], seconds_before=median_task_seconds(self.folder, rule)) for rule in names
        }

    def start_task(self, info: Any, now: float) -> Task | None:
        """A job is started (again); `info` holds the fields of the logger interface's JOB_INFO event."""
        if info.rule_name == TARGET_RULE:
            return None
        wildcards = {key: str(value) for key, value in dict(info.wildcards or {}).items()}
        variant = wildcards.pop("variant", "main")
        name = " ".join([*wildcards.values(), *([f"of {variant}"] if variant != "main" else [])])
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

    def stop_task(self, number: int, now: float, finished: bool) -> tuple[Task, Step] | None:
        """A job is over: (its task, its step); None for the target rule."""
        for step in self.steps.values():
            if (task := step.running.pop(number, None)) is None:
                continue
            step.newest_stop = now
            if finished:
                step.done += 1
                step.seconds.append(now - task.began)
                step.ended = now if step.done >= step.total else None
                self._add_documents(task, step)
            return task, step
        return None

    def mark_unchanged(self, number: int) -> None:
        """A job that was to start has nothing to do."""
        for step in self.steps.values():
            if task := step.running.get(number):
                step.unchanged += 1
                task.tail = None  # its log is of the start that did the work

    def _add_documents(self, task: Task, step: Step) -> None:
        if not counts_documents(task.step):
            return
        for path in task.manifests:
            try:
                counts = json.loads(path.read_text(encoding="utf-8"))["counts"]
                read, kept = int(counts["in"]), int(counts["kept"])
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not every task counts documents
            step.documents_read, step.documents_kept = step.documents_read + read, step.documents_kept + kept
            if task.variant == "main":
                step.main_documents = (step.main_documents[0] + read, step.main_documents[1] + kept)

    def read_logs(self) -> list[str]:
        """Read the logs of running tasks; returns warnings that were not shown yet."""
        warnings = []
        for step in self.steps.values():
            for task in list(step.running.values()):
                warnings += self.read_log(task, step)
        return warnings

    def read_log(self, task: Task, step: Step) -> list[str]:
        """Read what a task's log has got since the last look."""
        if task.tail is None:
            return []
        new = []
        for line in task.tail.read_warnings():
            # Several tasks may say the same: it is shown once, headed by the first of them.
            text = line.partition(": ")[2] if WARNING in line else line
            if text not in self.shown_warnings:
                self.shown_warnings[text] = None
                new.append(line)
        step.result = task.tail.result or step.result
        return new

    @property
    def total(self) -> int:
        return sum(step.total for step in self.steps.values())

    @property
    def tasks_done(self) -> int:
        return sum(step.done for step in self.steps.values())

    def kept_documents(self) -> tuple[str, int, int] | None:
        """(step, documents kept by it, documents that the run's first step read) of the newest step that is complete.

        Of main alone: variants judge the same documents again. None also where the first step ran for fewer shards than
        the newest, as after an edit.
        """
        counted = [
            (name, step.main_documents)
            for name, step in self.steps.items()
            if step.main_documents[0] and step.ended is not None
        ]
        if not counted or counted[-1][1][1] > counted[0][1][0]:
            return None
        return counted[-1][0], counted[-1][1][1], counted[0][1][0]

    def time_left(self, now: float, clock: float) -> tuple[float | None, list[str], list[str]]:
        """(about how many seconds are left, the steps of which no task was ever measured, those of which a task is late).

        None if nothing is known. `now` is of the run's clock, `clock` is time.time(), which files have. A step takes the
        median of its tasks, of this run or an earlier one, as often as its tasks that run at once leave some; a
        running task says itself how long it takes, where it can. Steps are taken to follow each other.
        """
        total, is_known, unknown, late = 0.0, False, list[str](), list[str]()
        for name, step in self.steps.items():
            waiting = step.total - step.done - len(step.running)
            estimates = [_seconds_left(task, step, now, clock) for task in step.running.values()]
            seconds_left = [
                max(0.0, estimate) for estimate in estimates if estimate is not None and estimate > -LATE_SECONDS
            ]
            if any(estimate is not None and estimate <= -LATE_SECONDS for estimate in estimates):
                late.append(name)
            is_known |= bool(seconds_left)
            total += max(seconds_left, default=0.0)
            if (waiting > 0 and step.seconds_per_task is None) or (estimates and set(estimates) == {None}):
                unknown.append(name)
            elif waiting > 0 and step.seconds_per_task is not None:
                is_known = True
                total += step.seconds_per_task * -(-waiting // step.widest)
        return (total if is_known or not (unknown or late) else None), unknown, late


def _seconds_left(task: Task, step: Step, now: float, clock: float) -> float | None:
    """Seconds that a running task still takes, by its own log or by the step's other tasks; below 0 if it should be over."""
    if task.tail and task.tail.time_left:
        seconds_left, written = task.tail.time_left
        return seconds_left - max(0.0, clock - written)
    return step.seconds_per_task - (now - task.began) if step.seconds_per_task is not None else None


def documents_text(counts: tuple[str, int, int] | None) -> str:
    """`807 of 1,810 documents kept after corpus.write`; "" where nothing was counted."""
    return f"{counts[1]:,} of {counts[2]:,} documents kept after {counts[0]}" if counts else ""


def loss_text(step: str, loss: float) -> str:
    """A training's loss with its unit; that of an alignment has none."""
    return f"loss {loss:.3f}" + ("" if steps.stage_of(step) == "align" else " nats a token")
