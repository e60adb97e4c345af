"""Sources, and hosts with many pages, that lose a large share of their documents to one filter.

Counted from the tables of corpus.write, which have the source and the URL of every document that is in the corpus or was dropped, a batch
in memory at a time; hosts are counted as hashes, in parts that fit into memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import xxhash

from crawl2llm.chain.steps import INSPECT
from crawl2llm.core.console import quantity
from crawl2llm.core.manifest import scratch
from crawl2llm.formats.documents import SPLITS, batches, count
from crawl2llm.formats.external_partition import Spill, by_hash, ranges
from crawl2llm.formats.run_records import Run
from crawl2llm.text.group_split import host

LEAST = 100  # pages of a host, from which on it is looked at
SHOWN = 20  # hosts that are named
HELD_PAGES = 1 << 23  # counted at a time: about 0.5 GB
BATCH = 65_536  # rows read at a time
PAGE = np.dtype([("host", "u8"), ("stage", "i4")])  # stage: the number of the filter that drops it, 0 for none
Row = dict[str, Any]
# What to do about a filter that the config asks for by what it keeps; of all others a source can be left out.
ADVICE = {
    "language": "if a language that it drops is wanted, add it to `language.select.languages`",
    "licence": "if a licence that it drops is wanted, add it to `licence.select.allowed`",
}


def find(run: Run, share: float | None, folder: Path) -> Row:
    """`rows`: `kind` (source or host), `name`, `stage`, `documents` (all that were read of it) and `dropped` (by that stage) of what loses
    more than `share` of its documents there, sources first, then the SHOWN hosts that lose most; `more`: how many further hosts do;
    `shares`: of all documents, what each filter drops; `pages`: whether report.inspect made pages of what filters drop.

    share None: nothing is looked for. folder: for the parts, which is removed.
    """
    if share is None:
        return {"share": None, "rows": [], "more": 0}
    sources, stages = Counter[tuple[str, str]](), {"": 0}
    with scratch(folder) as place:
        spilled = Spill(place, ranges(sum(_size(run, path) for path in _tables(run)), HELD_PAGES), PAGE)
        for stage_names, source_names, urls in _documents(run):
            sources.update(zip(source_names, stage_names, strict=True))
            pages = [
                (hashed(name), stages.setdefault(stage, len(stages)))
                for stage, url in zip(stage_names, urls, strict=True)
                if (name := host_of(url or ""))
            ]
            some = np.array(pages, PAGE)
            spilled.add(by_hash(some["host"], spilled.parts), some)
        alarming, more = _hosts(spilled, share, len(stages))
    names = _names(run, {number for number, *_ in alarming})
    of_stage = list(stages)
    hosts = [_row("host", names[number], of_stage[stage], total, gone) for number, stage, total, gone in alarming]
    rows = [*_sources(sources, share), *sorted(hosts, key=lambda row: (-row["dropped"], row["name"], row["stage"]))]
    dropped = Counter[str]()
    for (_, stage), number in sources.items():
        dropped[stage] += number
    shares = {stage: number / dropped.total() for stage, number in sorted(dropped.items()) if stage}
    return {"share": share, "rows": rows, "more": more, "shares": shares, "pages": bool(run.of(INSPECT))}


def in_words(row: Row) -> str:
    """A row as a sentence."""
    return (
        f"{row['kind']} {row['name']} loses {row['dropped'] / row['documents']:.0%} of its documents to {row['stage']}: "
        f"{row['dropped']:,} of {row['documents']:,}"
    )


def _rows_of(alarms: Row | None, kind: str) -> list[Row]:
    return [row for row in alarms["rows"] if row["kind"] == kind] if alarms else []


def of_sources(alarms: Row | None) -> list[str]:
    """A sentence for each source among the rows."""
    return [in_words(row) for row in _rows_of(alarms, "source")]


def of_hosts(alarms: Row | None) -> list[str]:
    """A sentence for each host among the rows, beside what the filter drops of all documents, and how many more there are."""
    if not alarms:
        return []
    sentences = [
        f"{in_words(row)} (of all documents {row['stage']} drops {alarms['shares'].get(row['stage'], 0):.0%})"
        for row in _rows_of(alarms, "host")
    ]
    more = f"{quantity(alarms['more'], 'more host loses', 'more hosts lose')} as much of theirs"
    return [*sentences, *([more] if alarms["more"] else [])]


def to_do(alarms: Row | None) -> list[str]:
    """A sentence for each source among the rows, with what to do. Hosts are on the page alone: a filter is there to drop some of them."""
    pages = bool(alarms and alarms.get("pages"))
    return [f"{in_words(row)}; {advice(row['stage'], pages)}" for row in _rows_of(alarms, "source")]


def advice(stage: str, pages: bool) -> str:
    """What to do where a filter drops much of a source. pages: whether the report has a link to pages of what filters drop."""
    place = "under “Pages of every filter” in the report" if pages else "among the samples of the report"
    wanted = ADVICE.get(stage, "if it should be kept, `skip_filters` of the source keeps it out of that filter")
    return f"see what it drops {place}; {wanted}"


def hashed(name: str) -> int:
    """A host's hash."""
    return xxhash.xxh3_64_intdigest(name.encode())


def host_of(url: str) -> str | None:
    """The host of a URL; many pages of one follow each other."""
    scheme, mark, rest = url.partition("://")
    return _host(f"{scheme}://{rest.partition('/')[0]}") if mark else host(url)


_host = lru_cache(1 << 16)(host)


def _row(kind: str, name: str, stage: str, documents: int, dropped: int) -> Row:
    return {"kind": kind, "name": name, "stage": stage, "documents": documents, "dropped": dropped}


def _sources(counts: Counter[tuple[str, str]], share: float) -> list[Row]:
    total = Counter[str]()
    for (source, _), number in counts.items():
        total[source] += number
    rows = [
        _row("source", source, stage, total[source], number)
        for (source, stage), number in counts.items()
        if stage and number > share * total[source]
    ]
    return sorted(rows, key=lambda row: (-row["dropped"], row["name"], row["stage"]))


def _hosts(pages: Spill, share: float, stages: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """((hash, stage, pages, pages dropped) of the SHOWN hosts that lose most, how many more there are)."""
    largest: list[tuple[int, int, int, int]] = []
    number = 0
    for part in range(pages.parts):
        some = pages.part(part)
        names, pages_of = np.unique(some["host"], return_counts=True)
        names = names[pages_of >= LEAST]  # first, since a table of all hosts by stage takes more than the pages
        some = some[np.isin(some["host"], names)]
        place = np.searchsorted(names, some["host"])
        cells = np.bincount(place * stages + some["stage"], minlength=len(names) * stages)
        by_stage: npt.NDArray[np.int64] = cells.reshape(len(names), stages)
        total = by_stage.sum(axis=1)
        where, stage = np.nonzero(by_stage[:, 1:] > share * total[:, None])
        number += len(where)
        gone = by_stage[where, stage + 1]
        found = zip(names[where].tolist(), (stage + 1).tolist(), total[where].tolist(), gone.tolist(), strict=True)
        largest = sorted([*largest, *found], key=lambda row: (-row[3], row[0], row[1]))[:SHOWN]
    return largest, number - len(largest)


def _names(run: Run, wanted: set[int]) -> dict[int, str]:
    """The hosts that have these hashes."""
    names: dict[int, str] = {}
    for _, _, urls in _documents(run) if wanted else ():
        for name in filter(None, {host_of(url or "") for url in urls}):
            if (number := hashed(name)) in wanted:
                names[number] = name
        if len(names) == len(wanted):
            break
    return names


def _tables(run: Run) -> list[Path]:
    """The tables of the documents of a corpus, and of those that were dropped."""
    return [path for path in run.files("corpus.write", ".parquet") if path.parent.name in (*SPLITS, "dropped")]


def _size(run: Run, path: Path) -> int:
    with run.reading(path):
        return count(path)
    return 0


def _documents(run: Run) -> Iterator[tuple[list[str], list[str], list[str | None]]]:
    """(the stage that drops each document, "" for none; its source; its URL) of the tables' batches. Tables without these are left out."""
    for path in _tables(run):
        wanted = [*(["stage"] if path.parent.name == "dropped" else []), "source", "url"]
        with run.reading(path):
            if not set(wanted) <= set(pq.read_schema(path).names):
                continue
            for batch in batches(path, wanted, BATCH):
                columns = batch.to_pydict()
                yield columns.get("stage", [""] * len(batch)), columns["source"], columns["url"]
