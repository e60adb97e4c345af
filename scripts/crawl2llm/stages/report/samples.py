"""A few texts of each kind for people to read: kept, dropped by each stage and reason, duplicates beside what stayed.

Which texts are shown is a hash of (seed, id), so a rerun shows the same ones. Memory holds only the texts shown: ids are
streamed first, then the row groups that hold a wanted id are read.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl2llm.chain.filter_order import FIRST
from crawl2llm.chain.steps import HELDOUT
from crawl2llm.formats import documents
from crawl2llm.formats.documents import rows, uniform
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.text.opcodes import opcodes

SALT = "report.samples"
# Characters that a browser does not show as they are, or that turn the direction of the text around them.
UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
DROPPED = (
    "id",
    "stage",
    "rule",
    "value",
    "detail",
    "duplicate_of",
    "similarity",
    "source",
    "url",
)
LIMITS = ("threshold", "rules")  # stand in the verdicts alone
RECORD = ("record_id", "url", "file", "reason", "detail")
STRETCH = 8  # words in a row that two texts share by no chance
NEAR_WORDS = 8  # words shown before the first difference of two near-duplicates


class Pick:
    """Keeps, for each group, the rows of the `size` keys with the smallest hashes; of a key given twice, the first row."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self.heaps: dict[tuple[str, ...], list[tuple[float, str]]] = {}
        self.rows: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}

    def add(self, group: tuple[str, ...], key: str, row: dict[str, Any]) -> None:
        """Offer one row of a group; `key` is its id."""
        heap, rows = self.heaps.setdefault(group, []), self.rows.setdefault(group, {})
        entry = (-uniform(self.seed, key, SALT), key)
        if key in rows or (len(heap) >= self.size and (not heap or entry < heap[0])):
            return
        heapq.heappush(heap, entry)
        rows[key] = row
        if len(heap) > self.size:
            del rows[heapq.heappop(heap)[1]]

    def groups(self) -> dict[tuple[str, ...], list[dict[str, Any]]]:
        """The rows picked, by group, in the order of their hashes."""
        return {
            group: [self.rows[group][key] for _, key in sorted(heap, reverse=True)]
            for group, heap in sorted(self.heaps.items())
        }


def present(path: Path, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file with `columns`, None for those that it lacks."""
    names = set(pq.read_schema(path).names)
    for row in rows(path, [name for name in columns if name in names]):
        yield dict.fromkeys(columns) | row


def pick(run: Run, size: int, seed: int) -> tuple[list[dict[str, Any]], dict[tuple[str, ...], list[dict[str, Any]]]]:
    """Ids to show: kept documents, and dropped ones by (stage, reason), `size` of each."""
    kept, dropped = Pick(size, seed), Pick(size, seed)
    for path in run.files("corpus.write", ".parquet"):
        with run.reading(path):
            if path.parent.name == "train":
                for row in present(path, ("id", "source", "url")):
                    kept.add((), row["id"], row)
            elif path.parent.name == "dropped":
                for row in present(path, DROPPED):
                    dropped.add((str(row.get("stage")), str(row.get("rule"))), row["id"], row | {"shard": path.stem})
    return kept.groups().get((), []), dropped.groups()


def add_limits(run: Run, dropped: dict[tuple[str, ...], list[dict[str, Any]]]) -> None:
    """Give each dropped document that is shown the threshold and all rules of its verdict (LIMITS), None where there is no verdict."""
    near = run.fact("corpus.split", "near_duplicates", "similarity")
    for (stage, _), found in dropped.items():
        step = {"ingest": FIRST, "corpus": HELDOUT}.get(stage, f"{stage}.select")
        for shard in {row["shard"] for row in found}:
            here = {row["id"]: row for row in found if row["shard"] == shard}
            for row in here.values():
                row |= {**dict.fromkeys(LIMITS), "threshold": near if stage == "corpus" else None}
            if (path := table_of(run, step, shard)) is None:
                continue
            with run.reading(path), documents.opened(path) as file:
                table = file.read(["id", *LIMITS])
                of = pc.is_in(table["id"], value_set=pa.array(sorted(here), pa.string()))
                for verdict in table.filter(of).to_pylist():
                    if verdict["rules"]:
                        here[verdict["id"]] |= verdict


def records(run: Run, size: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Records that extraction dropped, by reason, `size` of each: they have no text, but a place and a detail."""
    chosen = Pick(size, seed)
    for path in run.files("ingest.extract", ".dropped.parquet"):
        with run.reading(path):
            for row in present(path, RECORD):
                chosen.add((str(row.get("reason")),), f"{row.get('record_id')} {row.get('url')}", row)
    return {reason: found for (reason,), found in chosen.groups().items()}


def texts(run: Run, ids: set[str]) -> dict[str, str]:
    """The texts of the wanted ids, read from the row groups of `ingest.extract` that hold them."""
    found: dict[str, str] = {}
    wanted = pa.array(sorted(ids), pa.string())
    for path in run.files("ingest.extract", ".parquet"):
        if len(found) < len(ids) and not path.name.endswith(".dropped.parquet"):
            with run.reading(path):
                found |= documents.texts(path, wanted)
    return found


def shown(text: str | None, limit: int) -> dict[str, Any]:
    """A text cut at `limit` characters: `text`, `characters` of the whole, `cut`."""
    whole = text or ""
    return {
        "text": UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", whole[:limit]),
        "characters": len(whole),
        "cut": len(whole) > limit,
        "missing": text is None,
    }


def compared(dropped: str, kept: str, limit: int) -> dict[str, Any]:
    """Two near-duplicates side by side, `limit` characters of each: from just before their first difference, or where they begin with
    other words, from just before the first STRETCH words that they share.

    Returns `dropped` and `kept`, lists of (text, differs), `skipped`, the words left out before, equal on both sides, `before`, the words
    left out before on each side, which are not all the same, and `equal` where the two are the same word for word.
    """
    a, b = dropped.split(), kept.split()
    prefix = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    equal = a == b
    start = 0 if equal else max(0, prefix - NEAR_WORDS)
    starts = (start, start)
    if not start and not equal:
        mine, its = shared(a, b)
        starts = max(0, mine - NEAR_WORDS), max(0, its - NEAR_WORDS)
    # More words than are shown, so that the cut does not look like a difference at the end of one side.
    first, second = starts
    a, b = a[first : first + limit], b[second : second + limit]
    sides: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    left = [limit, limit]
    for kind, a1, a2, b1, b2 in opcodes(a, b):
        for side, words in enumerate((a[a1:a2], b[b1:b2])):
            text = within(words, left[side])
            left[side] -= len(text) + 1
            if text:
                sides[side].append((UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text), kind != "equal"))
        if min(left) <= 0:
            break
    return {
        "dropped": sides[0],
        "kept": sides[1],
        "skipped": start,
        "before": (first - start, second - start),
        "equal": equal,
    }


def shared(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """Where the first STRETCH words that two texts share begin in each; (0, 0) where they share none."""
    places: dict[tuple[str, ...], int] = {}
    for at in range(len(b) - STRETCH + 1):
        places.setdefault(tuple(b[at : at + STRETCH]), at)
    found = ((at, places.get(tuple(a[at : at + STRETCH]))) for at in range(len(a) - STRETCH + 1))
    return next(((at, other) for at, other in found if other is not None), (0, 0))


def within(words: list[str], limit: int) -> str:
    """The words, as text of at most `limit` characters, cut at a word where there is more than one."""
    text = " ".join(words)
    if len(text) <= limit:
        return text
    return text[: max(limit, 0)].rpartition(" ")[0] or text[: max(limit, 0)]


def pairs(run: Run, size: int) -> list[dict[str, Any]]:
    """Question and answer pairs by what they are from: `name`, numbers `train` and `heldout`, and the first `rows` that are trained on."""
    numbers, examples = (run.fact("finetune.pairs", key) or {} for key in ("by_source", "examples"))
    found = [
        {"name": name, **each, "rows": [row for row in examples if row["of"] == name][:size]}
        for name, each in numbers.items()
    ]
    return [each for each in found if each["rows"]]


def gather(run: Run, size: int, limit: int, seed: int) -> dict[str, Any]:
    """Everything that the page shows of texts: `kept`; `dropped`, a stage's reasons with their rows;
    `records` by reason; `pairs`."""
    kept, dropped = pick(run, size, seed)
    add_limits(run, dropped)
    chosen = [*kept, *(row for found in dropped.values() for row in found)]
    wanted = {row["id"] for row in chosen} | {row["duplicate_of"] for row in chosen if row.get("duplicate_of")}
    text = texts(run, wanted)
    for row in chosen:
        row |= shown(text.get(row["id"]), limit)
        other = row.get("duplicate_of") or ""
        both = other in text and row["id"] in text
        row["compared"] = compared(text[row["id"]], text[other], limit) if both else None
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for (stage, reason), found in dropped.items():
        by_stage.setdefault(stage, []).append({"reason": reason, "rows": found})
    return {"kept": kept, "dropped": by_stage, "records": records(run, size, seed), "pairs": pairs(run, size)}
