"""Successive halving over variants: who takes part, which settings are judged together, and what each rung is called.

The trainings of all variants go to a rung, a share of their steps, and are judged there; the best go on (Jamieson and Talwalkar 2016,
arXiv:1502.07943). A rung is a task of `pretrain.rung` for each contender, all of them in `main`, so that what is judged together lies in
one place and each variant reads the same judgement. A config says who takes part in `sweep.halving.contenders`, which is filled in here:
a variant's own config would not know of the others.
"""

from __future__ import annotations

from typing import Any

from crawl2llm.core.nested_dicts import has, lookup, merged

TRAIN = "pretrain.train"
MAIN = "main"
Config = dict[str, Any]


def filled(config: Config) -> dict[str, Config] | None:
    """What `sweep.halving.contenders` is for a complete config: by variant its own keys of pretrain.train, of main all.

    None without rungs.
    """
    if not config["sweep"]["halving"]["rungs"]:
        return None
    found = {MAIN: dict(lookup(config, TRAIN))}
    for name, overlay in config["variants"].items():
        found[name] = dict(lookup(overlay, TRAIN)) if has(overlay, TRAIN) else {}
    return found


def is_used(config: Config) -> bool:
    """Whether trainings are judged: there are rungs, and another setting than that of main."""
    halving = config["sweep"]["halving"]
    return bool(halving["rungs"]) and len(halving["contenders"] or ()) > 1 and len(set(groups(config).values())) > 1


def section(config: Config, contender: str) -> Config:
    """The section pretrain.train of a contender, complete."""
    every = config["sweep"]["halving"]["contenders"]
    own = merged(every[MAIN], every[contender])
    if own["start_from"]:
        own["start_from"] = own["start_from"].replace("{data}", config["data"].rstrip("/") or "/")
    return own


def groups(config: Config) -> dict[str, str]:
    """contender → the setting that it is judged with, by the name of its first contender.

    Trainings that differ in seeds alone are one setting. Of variants whose trainings are the same the first alone is a contender.
    """
    # Here: what starts processes imports this module too, in environments without the libraries that these need.
    from crawl2llm.chain.config_schema import pruned
    from crawl2llm.core.manifest import canonical

    seeds = {key.removeprefix(f"{TRAIN}.") for key in config["sweep"]["seed_keys"]}
    contenders = config["sweep"]["halving"]["contenders"] or {}
    known = _KNOWN.get(id(contenders))
    if known and known[0] is contenders and known[1] == seeds:
        return known[2]
    found: dict[str, str] = {}
    trainings, settings = set[str](), dict[str, str]()
    for name in contenders:
        own = pruned(TRAIN, section(config, name))
        if (mark := canonical(own)) in trainings:
            continue
        trainings.add(mark)
        found[name] = settings.setdefault(canonical({key: own[key] for key in own if key not in seeds}), name)
    _KNOWN[id(contenders)] = contenders, seeds, found
    return found


_KNOWN: dict[int, tuple[Any, set[str], dict[str, str]]] = {}  # a plan asks thousands of times


def tasks(config: Config) -> list[str]:
    """The tasks of pretrain.rung: each contender at each rung, `main-rung1`."""
    if not is_used(config):
        return []
    number = len(config["sweep"]["halving"]["rungs"])
    return [f"{name}-rung{rung}" for rung in range(1, number + 1) for name in groups(config)]


def parsed(task: str) -> tuple[str, int]:
    """(contender, rung from 1) of a task."""
    name, _, rung = task.rpartition("-rung")
    return name, int(rung)


def before(task: str, config: Config) -> list[str]:
    """The tasks whose losses decide whether a task trains: of all contenders at the rung before; none at the first."""
    rung = parsed(task)[1] if task else 1
    return [f"{name}-rung{rung - 1}" for name in groups(config)] if rung > 1 else []


def settings(task: str, config: Config) -> Config:
    """What decides a task of pretrain.rung beside its input."""
    from crawl2llm.chain.config_schema import pruned

    name, rung = parsed(task)
    found = {"train": pruned(TRAIN, section(config, name)), "rung": rung, "rungs": config["sweep"]["halving"]["rungs"]}
    return found | (judging(config) if rung > 1 else {})


def judging(config: Config) -> Config:
    """What decides a judgement beside the losses."""
    halving = config["sweep"]["halving"]
    return {"rungs": halving["rungs"], "keep": halving["keep"], "settings": groups(config)}
