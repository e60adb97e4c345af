"""The steps of the filter decontaminate."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Config, Filter, Step, pick_keys


def searched_tasks(config: Config) -> list[str]:
    """The public tasks that are searched for: those that are evaluated, or those that `decontaminate.index.tasks` names."""
    fixed = config["decontaminate"]["index"]["tasks"]
    return sorted(config["evaluate"]["public"]["presets"] if fixed is None else fixed)


def has_sets(config: Config) -> bool:
    """Whether there is something to search for."""
    return bool(searched_tasks(config) or config["decontaminate"]["index"]["files"])


def search_settings(config: Config) -> Config:
    """`tasks` and `data` of decontaminate.index; if they are null those of evaluate.public, so that to name these reruns nothing."""
    tasks, data = searched_tasks(config), config["decontaminate"]["index"]["data"]
    data = config["evaluate"]["public"]["data"] if data is None else data
    return {"tasks": tasks, "data": data if tasks else []}


def index_settings(config: Config, task: str) -> Config:
    """The items to search for, and the source of missing files."""
    return {**search_settings(config), **pick_keys(config, "evaluate.public", "hub")}


def searched_config(config: Config, task: str) -> Config:
    """The config with `tasks` and `data` filled in, which name files."""
    section = config["decontaminate"]
    return {**config, "decontaminate": {**section, "index": {**section["index"], **search_settings(config)}}}


FILTER = Filter(
    {
        "index": Step(extra_settings=index_settings, files_config=searched_config, environment="evaluate"),
        "score": Step(inputs={"index": ".index", **TEXT}, per="shard"),
        "select": SELECT,
    },
    edits="select",
    reads_masked=True,
    judges_curated=True,
    is_used=has_sets,
)
