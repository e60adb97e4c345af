"""The graph of a plan: the boxes of all variants with state, reasons and estimate, from a dry run and what lies in the run's folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.freshness import ABOVE_PREFIX, fingerprint_differences
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan.dryrun import Task, variant_and_step
from crawl2llm.commands.plan.estimate import Work, estimates_by_rule
from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, UP_TO_DATE, Box, Edge, Graph
from crawl2llm.commands.plan.reasons import reasons_by_rule
from crawl2llm.commands.plan.words import gpu_hours_text, time_text
from crawl2llm.core import record

Place = tuple[str, str]  # (variant in whose folder, step)


class GraphBuilder:
    """What is asked of a run's folder for the picture of a plan; to be used in that folder."""

    def __init__(self, tasks: list[Task], project: Project, work: Work, cores: int | None) -> None:
        self.project, self.work, self.cores = project, work, cores
        self.tasks: dict[Place, list[Task]] = {}
        for task in tasks:
            self.tasks.setdefault(variant_and_step(task.manifest), []).append(task)
        self.tasks_with_results: dict[Place, set[str]] = {}  # the tasks whose results lie there
        self.edges: dict[Edge, None] = {}
        for variant in project.variants:
            self.add_variant(variant)

    def add_variant(self, variant: str) -> None:
        """Find the places that a variant's report is made from, and what each reads from."""
        config = self.project.variants[variant]
        end_steps = {step for step in steps.NOT_IN_REPORT if steps.is_used(step, config)}
        needed_steps = end_steps | {task.step for task in self.tasks_of(variant)}
        for step in reversed(steps.STEPS):
            if step not in needed_steps:
                continue
            for task in steps.task_models(step, config):
                place = self.place_of(variant, step, task)
                self.tasks_with_results.setdefault(place, set()).update(
                    [task] if task else steps.task_ids(step, config)
                )
                for needed in steps.needed_steps(step, config, task):
                    needed_steps.add(needed)
                    for source_variant in self.project.variants if step == steps.COMPARE_ALL else [variant]:
                        self.add_edges(source_variant, needed, place)
                for needed in steps.needed_steps_of_main(step, config):
                    self.add_edges("main", needed, place)

    def tasks_of(self, variant: str) -> Iterator[Task]:
        """The planned tasks of a variant's own."""
        return (task for (owner, _), step_tasks in self.tasks.items() if owner == variant for task in step_tasks)

    def add_edges(self, variant: str, needed: str, place: Place) -> None:
        """Add the edges into a place from all folders that hold the results of a step."""
        config = self.project.variants[variant]
        for task in steps.task_models(needed, config):
            self.edges["/".join(self.place_of(variant, needed, task)), "/".join(place)] = None

    def place_of(self, variant: str, step: str, task: str = "") -> Place:
        """In whose folder a variant's results of a step lie, and the step."""
        return variant_and_step(Path(self.project.step_folder(variant, step, task)) / "manifest.json")[0], step

    def build_box(self, place: Place) -> Box:
        """The box of a place."""
        variant, step = place
        planned_tasks, task_names = self.tasks.get(place, []), sorted(self.tasks_with_results[place])
        differs = tuple(self.variant_changes(variant, step, task_names[0]))
        if not planned_tasks:
            stale_reason = self.stale_reason(variant, step, task_names)
            words = ((stale_reason, 0),) if stale_reason else ()
            return Box(
                variant, step, LEFT_OUT if stale_reason else UP_TO_DATE, len(task_names), reasons=words, differs=differs
            )
        rule = planned_tasks[0].rule
        cost = estimates_by_rule(planned_tasks, self.work, self.cores)[rule]
        return Box(
            variant,
            step,
            RUNS if self.work.last.manifests(variant, step) else MISSING,
            max(len(task_names), len(planned_tasks)),
            len(planned_tasks),
            reasons=tuple(reasons_by_rule(planned_tasks, self.project.variants)[rule].most_common()),
            changes=tuple(self.task_changes(planned_tasks[0])),
            differs=differs,
            about=time_text(cost),
            gpu_hours=gpu_hours_text(cost) if cost.gpu_hours else "",
        )

    def stale_reason(self, variant: str, step: str, task_names: list[str]) -> str | None:
        """Why results that no task of the plan makes are not up to date, in words; None if they are."""
        config = self.project.variants[variant]
        for task in task_names:
            if not Path(self.project.manifest_path(variant, step, task)).exists():
                return "not there, and nothing in this plan needs it"
            if stale := self.project.why_stale(variant, step, steps.result_ids_of_task(step, task, config)):
                return stale
        return None

    def task_changes(self, task: Task) -> list[str]:
        """Every key, module and file of a task's own that differs from what its result was made with."""
        before = record.read(Path(self.project.manifest_path(task.variant, task.step, task.id))).get("fingerprint")
        if not before:
            return []
        return own_differences(before, self.project.fingerprint(task.variant, task.step, task.id))

    def variant_changes(self, variant: str, step: str, task: str) -> list[str]:
        """Every key and file that a variant sets otherwise than main, in this step."""
        if variant == "main":
            return []
        if step not in steps.used_steps(self.project.variants["main"]):
            return [f"main does not use {steps.stage_of(step)}"]
        return own_differences(
            json.loads(self.project.fingerprint("main", step, task)), self.project.fingerprint(variant, step, task)
        )

    def to_graph(self) -> Graph:
        """All of it, in the order of the run and of the config's variants."""
        variants = list(self.project.variants)
        drawn = {step for _, step in self.tasks_with_results}
        order = {step: number for number, step in enumerate(steps_in_run_order(self.project)) if step in drawn}
        places = sorted(self.tasks_with_results, key=lambda place: (variants.index(place[0]), order[place[1]]))
        boxes = [self.build_box(place) for place in places]
        drawn_variants = [name for name in variants if any(box.variant == name for box in boxes)]
        return Graph(tuple(order), tuple(drawn_variants), {box.key: box for box in boxes}, tuple(self.edges))


def steps_in_run_order(project: Project) -> list[str]:
    """The steps in the order of the run: main's filters in theirs, and what a variant alone uses after what it comes after there."""
    filters = list(filter_order.used_filters(project.variants["main"]))
    for config in project.variants.values():
        own_filters = filter_order.used_filters(config)
        for place, name in enumerate(own_filters):
            if name not in filters:
                filters.insert(filters.index(own_filters[place - 1]) + 1 if place else 0, name)
    other_steps = [step for step in steps.STEPS if steps.stage_of(step) not in filter_order.FILTERS]
    first = other_steps.index(filter_order.FIRST_VERDICTS) + 1
    filter_steps = [step for name in filters for step in steps.STEPS if steps.stage_of(step) == name]
    return [*other_steps[:first], *filter_steps, *other_steps[first:]]


def own_differences(before: dict[str, Any], now: str) -> list[str]:
    """What differs between two fingerprints, in full, without what only steps above say."""
    return [
        words
        for words in fingerprint_differences(before, json.loads(now), whole=True)
        if not words.startswith(ABOVE_PREFIX)
    ]


def build_graph(tasks: list[Task], project: Project, work: Work, cores: int | None) -> Graph:
    """The graph of a plan of these tasks."""
    with contextlib.chdir(work.last.folder):
        return GraphBuilder(tasks, project, work, cores).to_graph()
