"""Where variants that share a result ask for other placement than the one that makes it: the maker's holds, and a plan says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from crawl2llm.chain import model_registry, placement_options, steps
from crawl2llm.chain.project import Project
from crawl2llm.core.nested_dicts import lookup

Differing = tuple[str, str, str]  # owner, key of the config, value of the owner in words


def differing(project: Project) -> dict[Differing, dict[str, str]]:
    """The variants, with their value in words, that ask for another placement of a step that they share, by owner, key and its value."""
    found: dict[Differing, dict[str, str]] = defaultdict(dict)
    keys = {
        step: [*placement_options.of(step), *placement_options.of(step, placement_options.LAUNCHER)]
        for step in steps.STEPS
    }
    for variant, config in project.variants.items():
        for step in steps.used(config) if variant != "main" else []:
            for task in steps.models(step, config) if keys[step] else []:
                owner = project.folder(variant, step, task).split("/")[1]
                if owner == variant:
                    continue
                one, other = (model_registry.section(project.variants[name], step, task) for name in (owner, variant))
                for key in keys[step]:
                    mine, theirs = lookup(other, key), lookup(one, key)
                    if mine != theirs:
                        found[owner, f"{step}.{key}", placement_options.word(theirs)][variant] = placement_options.word(
                            mine
                        )
    return dict(found)


def lines(project: Project, most: int = 3) -> Iterator[str]:
    """A line for each key of which the owner's value holds, for people."""
    for (owner, key, value), others in differing(project).items():
        named = [f"{name} has {mine}" for name, mine in [*others.items()][:most]]
        more = [f"{len(others) - most} more have others"] if len(others) > most else []
        yield f"{key} is {value}, as {owner} has it, which makes the result: {', '.join([*named, *more])}"
