"""The graph of a plan: the boxes of all variants with state, reasons and estimate, from a dry run and what lies in the run's folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.freshness import ABOVE, difference
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan.dryrun import Task, folders
from crawl2llm.commands.plan.estimate import Work, by_rule
from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, UP_TO_DATE, Box, Edge, Graph
from crawl2llm.commands.plan.reasons import reasons
from crawl2llm.commands.plan.words import about, hours
from crawl2llm.core import record

Place = tuple[str, str]  # (variant in whose folder, step)


class Planned:
    """What is asked of a run's folder for the picture of a plan; to be used in that folder."""

    def __init__(self, tasks: list[Task], project: Project, work: Work, cores: int | None) -> None:
        self.project, self.work, self.cores = project, work, cores
        self.tasks: dict[Place, list[Task]] = {}
        for task in tasks:
            self.tasks.setdefault(folders(task.manifest), []).append(task)
        self.held: dict[Place, set[str]] = {}  # the tasks whose results lie there
        self.edges: dict[Edge, None] = {}
        for variant in project.variants:
            self.walk(variant)

    def walk(self, variant: str) -> None:
        """Find the places that a variant's report is made from, and what each reads from."""
        config = self.project.variants[variant]
        ends = {step for step in steps.APART if steps.is_used(step, config)}
        wanted = ends | {task.step for task in self.work_of(variant)}
        for step in reversed(steps.STEPS):
            if step not in wanted:
                continue
            for task in steps.models(step, config):
                place = self.place(variant, step, task)
                self.held.setdefault(place, set()).update([task] if task else steps.tasks(step, config))
                for near in steps.needs(step, config, task):
                    wanted.add(near)
                    for other in self.project.variants if step == steps.COMPARE_ALL else [variant]:
                        self.needs(other, near, place)
                for near in steps.common(step, config):
                    self.needs("main", near, place)

    def work_of(self, variant: str) -> Iterator[Task]:
        """The planned tasks of a variant's own."""
        return (task for (owner, _), held in self.tasks.items() if owner == variant for task in held)

    def needs(self, variant: str, near: str, place: Place) -> None:
        """Add the edges into a place from all folders that hold the results of a step."""
        config = self.project.variants[variant]
        for task in steps.models(near, config):
            self.edges["/".join(self.place(variant, near, task)), "/".join(place)] = None

    def place(self, variant: str, step: str, task: str = "") -> Place:
        """In whose folder a variant's results of a step lie, and the step."""
        return folders(Path(self.project.folder(variant, step, task)) / "manifest.json")[0], step

    def box(self, place: Place) -> Box:
        """The box of a place."""
        variant, step = place
        run, held = self.tasks.get(place, []), sorted(self.held[place])
        differs = tuple(self.differs(variant, step, held[0]))
        if not run:
            left = self.left(variant, step, held)
            words = ((left, 0),) if left else ()
            return Box(variant, step, LEFT_OUT if left else UP_TO_DATE, len(held), reasons=words, differs=differs)
        rule = run[0].rule
        cost = by_rule(run, self.work, self.cores)[rule]
        return Box(
            variant,
            step,
            RUNS if self.work.last.manifests(variant, step) else MISSING,
            max(len(held), len(run)),
            len(run),
            reasons=tuple(reasons(run, self.project.variants)[rule].most_common()),
            changes=tuple(self.changes(run[0])),
            differs=differs,
            about=about(cost),
            gpu_hours=hours(cost) if cost.gpu_hours else "",
        )

    def left(self, variant: str, step: str, held: list[str]) -> str | None:
        """Why results that no task of the plan makes are not up to date, in words; None where they are."""
        config = self.project.variants[variant]
        for task in held:
            if not Path(self.project.manifest(variant, step, task)).exists():
                return "not there, and nothing in this plan needs it"
            if stale := self.project.stale(variant, step, steps.owned(step, task, config)):
                return stale
        return None

    def changes(self, task: Task) -> list[str]:
        """Every key, module and file of a task's own that differs from what its result was made with."""
        before = record.read(Path(self.project.manifest(task.variant, task.step, task.id))).get("fingerprint")
        if not before:
            return []
        return own(before, self.project.fingerprint(task.variant, task.step, task.id))

    def differs(self, variant: str, step: str, task: str) -> list[str]:
        """Every key and file that a variant sets otherwise than main, in this step."""
        if variant == "main":
            return []
        if step not in steps.used(self.project.variants["main"]):
            return [f"main does not use {steps.stage_of(step)}"]
        return own(
            json.loads(self.project.fingerprint("main", step, task)), self.project.fingerprint(variant, step, task)
        )

    def graph(self) -> Graph:
        """All of it, in the order of the run and of the config's variants."""
        variants = list(self.project.variants)
        drawn = {step for _, step in self.held}
        order = {step: number for number, step in enumerate(ordered(self.project)) if step in drawn}
        places = sorted(self.held, key=lambda place: (variants.index(place[0]), order[place[1]]))
        boxes = [self.box(place) for place in places]
        shown = [name for name in variants if any(box.variant == name for box in boxes)]
        return Graph(tuple(order), tuple(shown), {box.key: box for box in boxes}, tuple(self.edges))


def ordered(project: Project) -> list[str]:
    """The steps in the order of the run: main's filters in theirs, and what a variant alone uses after what it comes after there."""
    filters = list(filter_order.filters(project.variants["main"]))
    for config in project.variants.values():
        own = filter_order.filters(config)
        for place, name in enumerate(own):
            if name not in filters:
                filters.insert(filters.index(own[place - 1]) + 1 if place else 0, name)
    kept = [step for step in steps.STEPS if steps.stage_of(step) not in filter_order.FILTERS]
    first = kept.index(filter_order.FIRST) + 1
    used = [step for name in filters for step in steps.STEPS if steps.stage_of(step) == name]
    return [*kept[:first], *used, *kept[first:]]


def own(before: dict[str, Any], now: str) -> list[str]:
    """What differs between two fingerprints, in full, without what only steps above say."""
    return [words for words in difference(before, json.loads(now), whole=True) if not words.startswith(ABOVE)]


def graph(tasks: list[Task], project: Project, work: Work, cores: int | None) -> Graph:
    """The graph of a plan of these tasks."""
    with contextlib.chdir(work.last.folder):
        return Planned(tasks, project, work, cores).graph()
