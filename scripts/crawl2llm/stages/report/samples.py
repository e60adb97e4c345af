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

from crawl2llm.chain.filter_order import FIRST_VERDICTS
from crawl2llm.formats import documents
from crawl2llm.formats.documents import rows, uniform_hash
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.text.opcodes import opcodes

SALT = "report.samples"
# Characters that a browser does not show as they are, or that turn the direction of the text around them.
UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
DROPPED_COLUMNS = ("id", "stage", "rule", "value", "detail", "duplicate_of", "similarity", "source", "url")
LIMIT_COLUMNS = ("threshold", "rules")  # stand in the verdicts alone
RECORD_COLUMNS = ("record_id", "url", "file", "reason", "detail")
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
        entry = (-uniform_hash(self.seed, key, SALT), key)
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


def rows_with_columns(path: Path, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file with `columns`, None for those that it lacks."""
    names = set(pq.read_schema(path).names)
    for row in rows(path, [name for name in columns if name in names]):
        yield dict.fromkeys(columns) | row


def pick_documents(
    run: Run, size: int, seed: int
) -> tuple[list[dict[str, Any]], dict[tuple[str, ...], list[dict[str, Any]]]]:
    """Ids to show: kept documents, and dropped ones by (stage, reason), `size` of each."""
    kept, dropped = Pick(size, seed), Pick(size, seed)
    for path in run.files("corpus.write", ".parquet"):
        with run.guard_reading(path):
            if path.parent.name == "train":
                for row in rows_with_columns(path, ("id", "source", "url")):
                    kept.add((), row["id"], row)
            elif path.parent.name == "dropped":
                for row in rows_with_columns(path, DROPPED_COLUMNS):
                    dropped.add((str(row.get("stage")), str(row.get("rule"))), row["id"], row | {"shard": path.stem})
    return kept.groups().get((), []), dropped.groups()


def add_limits(run: Run, dropped: dict[tuple[str, ...], list[dict[str, Any]]]) -> None:
    """Give each dropped document that is shown its verdict's threshold and rules (LIMIT_COLUMNS), None if there is no verdict."""
    near = run.fact("corpus.split", "near_duplicates", "similarity")
    for (stage, _), dropped_rows in dropped.items():
        step = {"ingest": FIRST_VERDICTS, "corpus": "corpus.heldout"}.get(stage, f"{stage}.select")
        for shard in {row["shard"] for row in dropped_rows}:
            rows_by_id = {row["id"]: row for row in dropped_rows if row["shard"] == shard}
            for row in rows_by_id.values():
                row |= {**dict.fromkeys(LIMIT_COLUMNS), "threshold": near if stage == "corpus" else None}
            if (path := table_of(run, step, shard)) is None:
                continue
            with run.guard_reading(path), documents.open_parquet(path) as file:
                table = file.read(["id", *LIMIT_COLUMNS])
                is_wanted = pc.is_in(table["id"], value_set=pa.array(sorted(rows_by_id), pa.string()))
                for verdict in table.filter(is_wanted).to_pylist():
                    if verdict["rules"]:
                        rows_by_id[verdict["id"]] |= verdict


def dropped_records(run: Run, size: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Records that extraction dropped, by reason, `size` of each: they have no text, but a place and a detail."""
    picked = Pick(size, seed)
    for path in run.files("ingest.extract", ".dropped.parquet"):
        with run.guard_reading(path):
            for row in rows_with_columns(path, RECORD_COLUMNS):
                picked.add((str(row.get("reason")),), f"{row.get('record_id')} {row.get('url')}", row)
    return {reason: rows for (reason,), rows in picked.groups().items()}


def texts_by_id(run: Run, ids: set[str]) -> dict[str, str]:
    """The texts of the wanted ids, read from the row groups of `ingest.extract` that hold them."""
    text_by_id: dict[str, str] = {}
    wanted_ids = pa.array(sorted(ids), pa.string())
    for path in run.files("ingest.extract", ".parquet"):
        if len(text_by_id) < len(ids) and not path.name.endswith(".dropped.parquet"):
            with run.guard_reading(path):
                text_by_id |= documents.texts_of_ids(path, wanted_ids)
    return text_by_id


def cut_text(text: str | None, limit: int) -> dict[str, Any]:
    """A text cut at `limit` characters: `text`, `characters` of the whole, `cut`."""
    whole = text or ""
    return {
        "text": UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", whole[:limit]),
        "characters": len(whole),
        "cut": len(whole) > limit,
        "missing": text is None,
    }


def side_by_side(dropped: str, kept: str, limit: int) -> dict[str, Any]:
    """Two near-duplicates side by side, `limit` characters of each: from just before their first difference, or where they begin with
    other words, from just before the first STRETCH words that they share.

    Returns `dropped` and `kept`, lists of (text, differs), `skipped`, the words left out before, equal on both sides, `before`, the words
    left out before on each side, which are not all the same, and `equal` where the two are the same word for word.
    """
    dropped_words, kept_words = dropped.split(), kept.split()
    prefix = next(
        (i for i, (x, y) in enumerate(zip(dropped_words, kept_words, strict=False)) if x != y),
        min(len(dropped_words), len(kept_words)),
    )
    equal = dropped_words == kept_words
    start = 0 if equal else max(0, prefix - NEAR_WORDS)
    starts = (start, start)
    if not start and not equal:
        first_dropped, first_kept = first_shared_words(dropped_words, kept_words)
        starts = max(0, first_dropped - NEAR_WORDS), max(0, first_kept - NEAR_WORDS)
    # More words than are shown, so that the cut does not look like a difference at the end of one side.
    first, second = starts
    dropped_words, kept_words = dropped_words[first : first + limit], kept_words[second : second + limit]
    sides: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    room = [limit, limit]
    for kind, a1, a2, b1, b2 in opcodes(dropped_words, kept_words):
        for side, words in enumerate((dropped_words[a1:a2], kept_words[b1:b2])):
            text = words_within(words, room[side])
            room[side] -= len(text) + 1
            if text:
                sides[side].append((UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text), kind != "equal"))
        if min(room) <= 0:
            break
    return {
        "dropped": sides[0],
        "kept": sides[1],
        "skipped": start,
        "before": (first - start, second - start),
        "equal": equal,
    }


def first_shared_words(first_words: Sequence[str], second_words: Sequence[str]) -> tuple[int, int]:
    """Where the first STRETCH words that two texts share begin in each; (0, 0) where they share none."""
    places: dict[tuple[str, ...], int] = {}
    for at in range(len(second_words) - STRETCH + 1):
        places.setdefault(tuple(second_words[at : at + STRETCH]), at)
    matches = ((at, places.get(tuple(first_words[at : at + STRETCH]))) for at in range(len(first_words) - STRETCH + 1))
    return next(((at, place) for at, place in matches if place is not None), (0, 0))


def words_within(words: list[str], limit: int) -> str:
    """The words, as text of at most `limit` characters, cut at a word if there is more than one."""
    text = " ".join(words)
    if len(text) <= limit:
        return text
    return text[: max(limit, 0)].rpartition(" ")[0] or text[: max(limit, 0)]


def question_pairs(run: Run, size: int) -> list[dict[str, Any]]:
    """Question and answer pairs by what they are from: `name`, numbers `train` and `heldout`, and the first `rows` that are trained on."""
    numbers, examples = (run.fact("finetune.pairs", key) or {} for key in ("by_source", "examples"))
    sources = [
        {"name": name, **source, "rows": [row for row in examples if row["of"] == name][:size]}
        for name, source in numbers.items()
    ]
    return [each for each in sources if each["rows"]]


def gather_samples(run: Run, size: int, limit: int, seed: int) -> dict[str, Any]:
    """Everything that the page shows of texts: `kept`; `dropped`, a stage's reasons with their rows;
    `records` by reason; `pairs`."""
    kept, dropped = pick_documents(run, size, seed)
    add_limits(run, dropped)
    shown_rows = [*kept, *(row for rows in dropped.values() for row in rows)]
    wanted_ids = {row["id"] for row in shown_rows} | {
        row["duplicate_of"] for row in shown_rows if row.get("duplicate_of")
    }
    text_by_id = texts_by_id(run, wanted_ids)
    for row in shown_rows:
        row |= cut_text(text_by_id.get(row["id"]), limit)
        keeper = row.get("duplicate_of") or ""
        has_both = keeper in text_by_id and row["id"] in text_by_id
        row["compared"] = side_by_side(text_by_id[row["id"]], text_by_id[keeper], limit) if has_both else None
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for (stage, reason), dropped_rows in dropped.items():
        by_stage.setdefault(stage, []).append({"reason": reason, "rows": dropped_rows})
    return {
        "kept": kept,
        "dropped": by_stage,
        "records": dropped_records(run, size, seed),
        "pairs": question_pairs(run, size),
    }
