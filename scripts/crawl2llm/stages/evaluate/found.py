"""How much of each evaluation set was found in the text, and the models' accuracy on the items that were found and on those that were not.

Writes `found.jsonl`, a line for each item that was found: `set, item, documents, overlap, fate, urls`, and `found.json`, the numbers. What
was found is what decontaminate.select saw: documents that would have been trained on. Fate `removed`: every such document was dropped or
the item cut from it, so that no model has seen it. `left`: a document that holds it was kept, for its source skips the filter; these items
alone are contaminated.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, json_lines, pretty_json, task_of, write_atomically
from crawl2llm.filters.decontaminate import items
from crawl2llm.formats.documents import rows, shard_of
from crawl2llm.formats.public_tasks.measures import DIGITS, standard_error
from crawl2llm.stages.evaluate.settings import FoundSettings

REMOVED, LEFT = "removed", "left"
URLS, EXAMPLES = 3, 5  # of an item; of a set in the summary
SEED = 0  # of the bootstrap
Row = dict[str, Any]


@dataclass
class FoundItem:
    """An item in the documents of all shards."""

    documents: set[str] = field(default_factory=set)
    overlap: float = 0.0
    left: bool = False
    best: list[tuple[float, str, str]] = field(default_factory=list)  # (overlap, id of the document, its url)

    def add_row(self, row: Row) -> None:
        """Count a row of decontaminate.select's."""
        self.overlap = max(self.overlap, row["overlap"])
        self.left |= row["fate"] == LEFT
        if row["id"] not in self.documents:
            self.documents.add(row["id"])
            self.best = heapq.nlargest(URLS, [*self.best, (row["overlap"], row["id"], row["url"] or "")])

    def summary_row(self) -> Row:
        """What is told of it."""
        fate = LEFT if self.left else REMOVED
        urls = [url for _, _, url in self.best]
        return {"documents": len(self.documents), "overlap": self.overlap, "fate": fate, "urls": urls}


def collect_items(manifests: list[Path]) -> dict[tuple[str, str], FoundItem]:
    """(set, item) → what was found of it, in all shards. Memory: of each item that was found the ids of its documents."""
    items_by_name: dict[tuple[str, str], FoundItem] = {}
    for path in manifests:
        for row in rows(Manifest.read(path).file(f"found/{shard_of(path)}.parquet")):
            items_by_name.setdefault((row["set"], row["item"]), FoundItem()).add_row(row)
    return items_by_name


def set_numbers(sizes: dict[str, dict[str, int]], lines: list[Row]) -> dict[str, Row]:
    """Of each set: `items`, `short` (not searched for), `found`, `left` of these, `examples`. sizes: as the index has them."""
    lines_by_set: dict[str, list[Row]] = {name: [] for name in sizes}
    for line in lines:
        lines_by_set[line["set"]].append(line)
    return {
        name: {
            **sizes[name],
            "found": len(set_lines),
            LEFT: sum(entry["fate"] == LEFT for entry in set_lines),
            "examples": sorted(set_lines, key=lambda entry: (-entry["overlap"], entry["item"]))[:EXAMPLES],
        }
        for name, set_lines in lines_by_set.items()
    }


def accuracy_row(results: list[Row], task: str) -> Row:
    """`items`, `accuracy` and its standard error by bootstrap over items; None of no items."""
    if not results:
        return {"items": 0, "accuracy": None, "stderr": None}
    rights = [bool(row["right"]) for row in results]
    stderr = standard_error(rights, [row["id"] for row in results], SEED, task)
    measures = {"accuracy": round(sum(rights) / len(rights), DIGITS), "stderr": stderr and round(stderr, DIGITS)}
    return {"items": len(results), **measures}


def accuracy_by_fate(
    results: list[Row], fates: dict[tuple[str, str], str], short: set[tuple[str, str]]
) -> Iterator[tuple[str, Row]]:
    """(task, accuracy of one model on all items, those not found, those found: removed and left, and those too short to search for)."""
    tasks: dict[str, list[Row]] = {}
    for row in results:
        tasks.setdefault(row["task"], []).append(row)
    for task, task_rows in tasks.items():
        parts: dict[str, list[Row]] = {"all": task_rows, "not_found": [], REMOVED: [], LEFT: [], "short": []}
        for row in task_rows:
            key = (task, row["id"])
            parts[fates.get(key, "short" if key in short else "not_found")].append(row)
        yield task, {name: accuracy_row(part_rows, task) for name, part_rows in parts.items()}


def body(args: argparse.Namespace, settings: FoundSettings, manifest: Manifest) -> list[Path]:
    index_manifest = Manifest.read(args.index)
    found_items = collect_items(args.selected)
    lines = [
        {"set": set_name, "item": item, **found_items[set_name, item].summary_row()}
        for set_name, item in sorted(found_items)
    ]
    fates = {(line["set"], line["item"]): line["fate"] for line in lines}
    short = {(item.set, item.id) for item in items.read_items(args.index)[0] if item.short}
    tasks: dict[str, dict[str, Row]] = {}
    for path in args.public:
        model = Manifest.read(path)
        for task, parts in accuracy_by_fate(model.rows(f"{task_of(path)}.items.jsonl"), fates, short):
            tasks.setdefault(task, {})[task_of(path)] = parts
    sets = set_numbers(index_manifest.summary["sets"], lines)
    fate = Counter[str]()
    for path in args.selected:
        fate.update(Manifest.read(path).summary["fates"])
    result = {
        "sets": sets,
        "tasks": tasks,
        "not_searched": sorted(task for task in tasks if task not in sets),
        "documents": dict(fate),
        "overlap_max": next((Manifest.read(path).summary["overlap_max"] for path in args.selected), None),
        **index_manifest.summary["search"],
    }
    files = [args.manifest.with_name("found.json"), args.manifest.with_name("found.jsonl")]
    write_atomically(files[0], pretty_json(result))
    write_atomically(files[1], json_lines(lines))
    total = sum(set_row["items"] - set_row["short"] for set_row in sets.values())
    log.info("%s of %s items were found in the text", f"{len(lines):,}", f"{total:,}")
    manifest.counts = {"in": total, "kept": total - len(lines), "dropped": {"found": len(lines)} if lines else {}}
    notes = []
    if result["not_searched"]:
        notes.append(
            f"Evaluated, and not searched for in the training text: {', '.join(result['not_searched'])} "
            "(decontaminate.index.tasks does not name them)."
        )
    if fate["left"]:
        notes.append(
            f"{fate['left']:,} documents with items of evaluation sets are in the training text, for their sources skip decontaminate."
        )
    manifest.summary = {**result, "notes": notes}
    return files


main = Program("evaluate.found", __doc__, FoundSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
