"""What each variant of a plan shares with others, what it runs itself, and about how long that takes: a line for each."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crawl2llm.chain import steps
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan.estimate import Estimate, estimates_by_rule
from crawl2llm.commands.plan.words import gpu_column, gpu_hours_text, time_text
from crawl2llm.core.phrases import and_more, join_with_and

if TYPE_CHECKING:
    from crawl2llm.commands.plan.complete import Plan

MOST_NAMES = 3  # steps, or variants, that a line names


def owners_by_step(project: Project, variant: str) -> dict[str, list[str]]:
    """step → the variants whose folders hold its results as this variant reads them; of a step that makes models there may be several."""
    config = project.variants[variant]
    return {
        step: list(
            dict.fromkeys(
                project.step_folder(variant, step, task).split("/")[1] for task in steps.task_models(step, config)
            )
        )
        for step in steps.used_steps(config)
    }


def sharing_text(owners: dict[str, list[str]], variant: str) -> str:
    """How many steps of a variant have the results of others, and of which: `19 of 27 steps with main, 2 with seed-1`."""
    owner_counts = Counter(owner for names in owners.values() for owner in names if owner != variant)
    if not owner_counts:
        return "nothing"
    whole = "all" if all(variant not in names for names in owners.values()) else ""
    (first, number), *rest = owner_counts.most_common()
    words = [f"{whole or f'{number} of {len(owners)} steps'} with {first}"]
    words = [f"all {len(owners)} steps: {number} with {first}"] if whole and rest else words
    more = len(rest) - MOST_NAMES
    words += [f"{count} with {name}" for name, count in rest[:MOST_NAMES]]
    if more > 0:
        words.append(f"{more} variants more")
    return ", ".join(words)


def steps_text(names: list[str]) -> str:
    """Steps in words, the first of many: `pretrain.plan, pretrain.train, finetune.train and 4 more`."""
    few = len(names) <= MOST_NAMES + 1
    return join_with_and(names) if few else and_more(names, MOST_NAMES)


def variant_lines(plan: Plan, width: int) -> Iterator[str]:
    """A line for each variant, in the order of the config, at most `width` columns wide; none if there is main alone.

    A line that would say the same of steps as the one before says `as above`, so that fifty variants stay readable.
    """
    project = plan.project
    if project is None or len(project.variants) < 2:
        return
    longest = max(map(len, ("variant", *project.variants)))
    yield f"{'variant':<{longest}} {'tasks':>6} {'about':>8} {gpu_column('GPU-h', plan.uses_gpus)} shares; runs"
    before = ""
    for variant in project.variants:
        tasks = [task for task in plan.tasks if task.variant == variant]
        cost = sum(estimates_by_rule(tasks, plan.work, plan.cores).values(), Estimate())
        running = {task.step for task in tasks}
        names = [step for step in steps.STEPS if step in running]
        owners = owners_by_step(project, variant)
        words = (
            f"{sharing_text(owners, variant)}; {steps_text(names) or 'nothing'}"
            if variant != "main"
            else f"–; {steps_text(names) or 'nothing'}"
        )
        about, gpu_hours = (time_text(cost), gpu_hours_text(cost)) if tasks else ("", "")
        head = f"{variant:<{longest}} {len(tasks):>6,} {about:>8} {gpu_column(gpu_hours, plan.uses_gpus)} "
        shown_words = "as above" if words == before and len(words) > len("as above") else words
        yield from textwrap.wrap(
            shown_words,
            max(width, len(head) + 24),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        )
        before = words
