"""Where variants that share a result ask for other placement than the one that makes it: the maker's holds, and a plan says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from scripts.models import registry
from scripts.workflow import options, steps
from scripts.workflow.project import Project
from scripts.workflow.trees import lookup

Differing = tuple[str, str, str]  # owner, key of the config, value of the owner in words


def differing(project: Project) -> dict[Differing, dict[str, str]]:
    """The variants, with their value in words, that ask for another placement of a step that they share, by owner, key and its value."""
    found: dict[Differing, dict[str, str]] = defaultdict(dict)
    keys = {step: [*options.of(step), *options.of(step, options.LAUNCHER)] for step in steps.STEPS}
    for variant, config in project.variants.items():
        for step in steps.used(config) if variant != "main" else []:
            for task in steps.models(step, config) if keys[step] else []:
                owner = project.folder(variant, step, task).split("/")[1]
                if owner == variant:
                    continue
                one, other = (registry.section(project.variants[name], step, task) for name in (owner, variant))
                for key in keys[step]:
                    mine, theirs = lookup(other, key), lookup(one, key)
                    if mine != theirs:
                        found[owner, f"{step}.{key}", options.word(theirs)][variant] = options.word(mine)
    return dict(found)


def lines(project: Project, most: int = 3) -> Iterator[str]:
    """A line for each key of which the owner's value holds, for people."""
    for (owner, key, value), others in differing(project).items():
        named = [f"{name} has {mine}" for name, mine in [*others.items()][:most]]
        more = [f"{len(others) - most} more have others"] if len(others) > most else []
        yield f"{key} is {value}, as {owner} has it, which makes the result: {', '.join([*named, *more])}"
