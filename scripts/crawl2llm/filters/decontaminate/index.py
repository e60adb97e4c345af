"""Collect the items of the evaluation sets that decontamination searches for: public tasks, by default those that the run evaluates on, and
local files.

Writes `items.parquet`: `set, id, questions` (the words in each form), `answer, whole, short`. The rows of a task are all of its data, not
only those that evaluate.public.limit takes, and have the ids that evaluate.stage gives them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program, Untyped
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.decontaminate import items, sets

DEFAULT_WORDS = {"ngram": 13, "idf": 5}  # of a stretch, where `words` is null: GPT-3's and decon's


def collect_items(settings: dict[str, Any]) -> Iterator[tuple[str, str, items.QuestionAndAnswer]]:
    """(set, id, what is asked) of all that the settings name. Raises InputError for data that is missing or wrong, or a set named twice."""
    if settings["tasks"]:
        yield from sets.task_items(settings["tasks"], settings["data"], settings["hub"])
    names = set(settings["tasks"])
    for number, entry in enumerate(settings["files"]):
        key = f"decontaminate.index.files[{number}]"
        name = entry.get("name") or sets.default_set_name(entry["path"])
        if name in names:
            raise InputError(f"{key} is the set {name!r}, and there is another of that name: give it another `name`")
        names.add(name)
        yield from sets.file_items(entry, key)


def search_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """`method`, `words` of a stretch and `short_words`, as `search.build_index` takes them."""
    words = settings["words"] or DEFAULT_WORDS[settings["method"]]
    return {"method": settings["method"], "words": words, "short_words": settings["short_words"]}


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    search = search_settings(settings)
    searched_items = items.build_items(collect_items(settings), search["words"], search["short_words"])
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
    manifest.summary = {"sets": counts_by_set, "search": search, "tasks": settings["tasks"]}
    return [out]


main = Program("decontaminate.index", __doc__, Untyped, body)


if __name__ == "__main__":
    raise SystemExit(main())
