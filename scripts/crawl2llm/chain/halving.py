"""Successive halving over variants: who takes part, which settings are judged together, and what each rung is called.

The trainings of all variants go to a rung, a share of their steps, and are judged there; the best go on (Jamieson and Talwalkar 2016,
arXiv:1502.07943). A rung is a task of `pretrain.rung` for each contender, all of them in `main`, so that what is judged together lies in
one place and each variant reads the same judgement. A config says who takes part in `sweep.halving.contenders`, which is filled in here:
a variant's own config would not know of the others.
"""

from __future__ import annotations

from typing import Any

from crawl2llm.core.nested_dicts import has_path, lookup, merge_dicts

TRAIN = "pretrain.train"
MAIN = "main"
Config = dict[str, Any]


def contender_overlays(config: Config) -> dict[str, Config] | None:
    """What `sweep.halving.contenders` is for a complete config: by variant its own keys of pretrain.train, of main all.

    None without rungs.
    """
    if not config["sweep"]["halving"]["rungs"]:
        return None
    overlays = {MAIN: dict(lookup(config, TRAIN))}
    for name, overlay in config["variants"].items():
        overlays[name] = dict(lookup(overlay, TRAIN)) if has_path(overlay, TRAIN) else {}
    return overlays


def is_used(config: Config) -> bool:
    """Whether trainings are judged: there are rungs, and another setting than that of main."""
    halving = config["sweep"]["halving"]
    return (
        bool(halving["rungs"])
        and len(halving["contenders"] or ()) > 1
        and len(set(setting_by_contender(config).values())) > 1
    )


def contender_section(config: Config, contender: str) -> Config:
    """The section pretrain.train of a contender, complete."""
    overlays = config["sweep"]["halving"]["contenders"]
    train = merge_dicts(overlays[MAIN], overlays[contender])
    if train["start_from"]:
        train["start_from"] = train["start_from"].replace("{data}", config["data"].rstrip("/") or "/")
    return train


def setting_by_contender(config: Config) -> dict[str, str]:
    """contender → the setting that it is judged with, by the name of its first contender.

    Trainings that differ in seeds alone are one setting. Of variants whose trainings are the same the first alone is a contender.
    """
    # Here: what starts processes imports this module too, in environments without the libraries that these need.
    from crawl2llm.chain.config_schema import prune_settings
    from crawl2llm.core.manifest import canonical_json

    seeds = {key.removeprefix(f"{TRAIN}.") for key in config["sweep"]["seed_keys"]}
    contenders = config["sweep"]["halving"]["contenders"] or {}
    cached = _GROUPS_CACHE.get(id(contenders))
    if cached and cached[0] is contenders and cached[1] == seeds:
        return cached[2]
    groups: dict[str, str] = {}
    trainings, settings = set[str](), dict[str, str]()
    for name in contenders:
        train = prune_settings(TRAIN, contender_section(config, name))
        if (mark := canonical_json(train)) in trainings:
            continue
        trainings.add(mark)
        groups[name] = settings.setdefault(canonical_json({key: train[key] for key in train if key not in seeds}), name)
    _GROUPS_CACHE[id(contenders)] = contenders, seeds, groups
    return groups


_GROUPS_CACHE: dict[int, tuple[Any, set[str], dict[str, str]]] = {}  # a plan asks thousands of times


def rung_tasks(config: Config) -> list[str]:
    """The tasks of pretrain.rung: each contender at each rung, `main-rung1`."""
    if not is_used(config):
        return []
    number = len(config["sweep"]["halving"]["rungs"])
    return [f"{name}-rung{rung}" for rung in range(1, number + 1) for name in setting_by_contender(config)]


def parse_task(task: str) -> tuple[str, int]:
    """(contender, rung from 1) of a task."""
    name, _, rung = task.rpartition("-rung")
    return name, int(rung)


def tasks_before(task: str, config: Config) -> list[str]:
    """The tasks whose losses decide whether a task trains: of all contenders at the rung before; none at the first."""
    rung = parse_task(task)[1] if task else 1
    return [f"{name}-rung{rung - 1}" for name in setting_by_contender(config)] if rung > 1 else []


def rung_settings(task: str, config: Config) -> Config:
    """What decides a task of pretrain.rung beside its input."""
    from crawl2llm.chain.config_schema import prune_settings

    name, rung = parse_task(task)
    settings = {
        "train": prune_settings(TRAIN, contender_section(config, name)),
        "rung": rung,
        "rungs": config["sweep"]["halving"]["rungs"],
    }
    return settings | (judging_settings(config) if rung > 1 else {})


def judging_settings(config: Config) -> Config:
    """What decides a judgement beside the losses."""
    halving = config["sweep"]["halving"]
    return {"rungs": halving["rungs"], "keep": halving["keep"], "settings": setting_by_contender(config)}
