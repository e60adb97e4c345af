"""Where variants that share a result ask for other placement than the one that makes it: the maker's holds, and a plan says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from crawl2llm.chain import model_registry, placement_options, steps
from crawl2llm.chain.project import Project
from crawl2llm.core.nested_dicts import lookup

PlacementKey = tuple[str, str, str]  # owner, key of the config, value of the owner in words


def placement_differences(project: Project) -> dict[PlacementKey, dict[str, str]]:
    """The variants, with their value in words, that ask for another placement of a step that they share, by owner, key and its value."""
    differences: dict[PlacementKey, dict[str, str]] = defaultdict(dict)
    keys = {
        step: [
            *placement_options.placement_keys(step),
            *placement_options.placement_keys(step, placement_options.LAUNCHER),
        ]
        for step in steps.STEPS
    }
    for variant, config in project.variants.items():
        for step in steps.used_steps(config) if variant != "main" else []:
            for task in steps.task_models(step, config) if keys[step] else []:
                owner = project.step_folder(variant, step, task).split("/")[1]
                if owner == variant:
                    continue
                owner_section, variant_section = (
                    model_registry.section(project.variants[name], step, task) for name in (owner, variant)
                )
                for key in keys[step]:
                    mine, theirs = lookup(variant_section, key), lookup(owner_section, key)
                    if mine != theirs:
                        differences[owner, f"{step}.{key}", placement_options.option_text(theirs)][variant] = (
                            placement_options.option_text(mine)
                        )
    return dict(differences)


def difference_lines(project: Project, most: int = 3) -> Iterator[str]:
    """A line for each key of which the owner's value holds, for people."""
    for (owner, key, value), variants in placement_differences(project).items():
        listed_variants = [f"{name} has {mine}" for name, mine in [*variants.items()][:most]]
        more = [f"{len(variants) - most} more have others"] if len(variants) > most else []
        yield f"{key} is {value}, as {owner} has it, which makes the result: {', '.join([*listed_variants, *more])}"
