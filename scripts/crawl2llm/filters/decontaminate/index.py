"""Collect the items of the evaluation sets that decontamination searches for: public tasks, by default those that the run evaluates on, and
local files.

Writes `items.parquet`: `set, id, questions` (the words in each form), `answer, whole, short`. The rows of a task are all of its data, not
only those that evaluate.public.limit takes, and have the ids that evaluate.stage gives them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import setting
from crawl2llm.filters.decontaminate import items, sets
from crawl2llm.filters.decontaminate.settings import IndexFile, IndexSettings

DEFAULT_WORDS = {"ngram": 13, "idf": 5}  # of a stretch, where `words` is null: GPT-3's and decon's


class Task(IndexSettings):
    """The arguments of the program: `tasks` and `data` are filled in."""

    hub: bool = setting(..., "As evaluate.public.hub.")


def collect_items(
    tasks: list[str], data: list[str], hub: bool, files: Sequence[IndexFile]
) -> Iterator[tuple[str, str, items.QuestionAndAnswer]]:
    """(set, id, what is asked) of public tasks and of files. Raises InputError for data that is missing or wrong, or a set named twice.

    data: where the tasks' data are. hub: whether what these lack is fetched.
    """
    if tasks:
        yield from sets.task_items(tasks, data, hub)
    names = set(tasks)
    for number, entry in enumerate(files):
        key = f"decontaminate.index.files[{number}]"
        name = entry.name or sets.default_set_name(entry.path)
        if name in names:
            raise InputError(f"{key} is the set {name!r}, and there is another of that name: give it another `name`")
        names.add(name)
        yield from sets.file_items(entry, key)


def search_settings(method: str, words: int | None, short_words: int) -> dict[str, Any]:
    """The settings of the search, as `search.build_index` takes them."""
    return {"method": method, "words": words or DEFAULT_WORDS[method], "short_words": short_words}


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    search, tasks = search_settings(settings.method, settings.words, settings.short_words), [*(settings.tasks or ())]
    collected_items = collect_items(tasks, settings.data or [], settings.hub, settings.files)
    searched_items = items.build_items(collected_items, search["words"], search["short_words"])
    if not searched_items:
        raise InputError("decontaminate.index: no items in the tasks and files that it names")
    out = args.manifest.with_name(items.FILE)
    items.write_items(out, searched_items)
    counts_by_set: dict[str, dict[str, int]] = {}
    for item in searched_items:
        set_counts = counts_by_set.setdefault(item.set, {"items": 0, "short": 0})
        set_counts["items"] += 1
        set_counts["short"] += item.short
    short = sum(counts["short"] for counts in counts_by_set.values())
    log.info(
        "%s items of %d sets; %s are too short to search for",
        f"{len(searched_items):,}",
        len(counts_by_set),
        f"{short:,}",
    )
    manifest.counts = {
        "in": len(searched_items),
        "kept": len(searched_items) - short,
        "dropped": {"short": short} if short else {},
    }
    manifest.summary = {"sets": counts_by_set, "search": search, "tasks": tasks}
    return [out]


main = Program("decontaminate.index", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
