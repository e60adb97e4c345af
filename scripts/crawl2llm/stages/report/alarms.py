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
from crawl2llm.core.console import format_quantity
from crawl2llm.core.manifest import scratch_folder
from crawl2llm.formats.documents import SPLITS, batches, count_rows
from crawl2llm.formats.external_partition import Spill, count_parts, part_by_hash
from crawl2llm.formats.run_records import Run
from crawl2llm.text.group_split import url_host

LEAST_PAGES = 100  # pages of a host, from which on it is looked at
HOSTS_SHOWN = 20  # hosts that are named
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
    more than `share` of its documents there, sources first, then the HOSTS_SHOWN hosts that lose most; `more`: how many others do;
    `shares`: of all documents, what each filter drops; `pages`: whether report.inspect made pages of what filters drop.

    share None: nothing is looked for. folder: for the parts, which is removed.
    """
    if share is None:
        return {"share": None, "rows": [], "more": 0}
    sources, stages = Counter[tuple[str, str]](), {"": 0}
    with scratch_folder(folder) as spill_folder:
        spilled = Spill(
            spill_folder, count_parts(sum(_row_count(run, path) for path in _document_tables(run)), HELD_PAGES), PAGE
        )
        for stage_names, source_names, urls in _document_columns(run):
            sources.update(zip(source_names, stage_names, strict=True))
            pages = [
                (host_hash(name), stages.setdefault(stage, len(stages)))
                for stage, url in zip(stage_names, urls, strict=True)
                if (name := host_of(url or ""))
            ]
            host_pages = np.array(pages, PAGE)
            spilled.add(part_by_hash(host_pages["host"], spilled.parts), host_pages)
        alarming, further = _largest_host_losses(spilled, share, len(stages))
    names = _names_by_hash(run, {number for number, *_ in alarming})
    of_stage = list(stages)
    hosts = [
        _alarm_row("host", names[number], of_stage[stage], total, dropped_pages)
        for number, stage, total, dropped_pages in alarming
    ]
    rows = [*_source_rows(sources, share), *sorted(hosts, key=lambda row: (-row["dropped"], row["name"], row["stage"]))]
    dropped = Counter[str]()
    for (_, stage), number in sources.items():
        dropped[stage] += number
    shares = {stage: number / dropped.total() for stage, number in sorted(dropped.items()) if stage}
    return {"share": share, "rows": rows, "more": further, "shares": shares, "pages": bool(run.manifests_of(INSPECT))}


def loss_sentence(row: Row) -> str:
    """A row as a sentence."""
    return (
        f"{row['kind']} {row['name']} loses {row['dropped'] / row['documents']:.0%} of its documents to {row['stage']}: "
        f"{row['dropped']:,} of {row['documents']:,}"
    )


def _rows_of_kind(alarms: Row | None, kind: str) -> list[Row]:
    return [row for row in alarms["rows"] if row["kind"] == kind] if alarms else []


def source_sentences(alarms: Row | None) -> list[str]:
    """A sentence for each source among the rows."""
    return [loss_sentence(row) for row in _rows_of_kind(alarms, "source")]


def host_sentences(alarms: Row | None) -> list[str]:
    """A sentence for each host among the rows, beside what the filter drops of all documents, and how many more there are."""
    if not alarms:
        return []
    sentences = [
        f"{loss_sentence(row)} (of all documents {row['stage']} drops {alarms['shares'].get(row['stage'], 0):.0%})"
        for row in _rows_of_kind(alarms, "host")
    ]
    further_words = f"{format_quantity(alarms['more'], 'more host loses', 'more hosts lose')} as much of theirs"
    return [*sentences, *([further_words] if alarms["more"] else [])]


def sentences_with_advice(alarms: Row | None) -> list[str]:
    """A sentence for each source among the rows, with what to do. Hosts are on the page alone: a filter is there to drop some of them."""
    pages = bool(alarms and alarms.get("pages"))
    return [f"{loss_sentence(row)}; {advice_for_stage(row['stage'], pages)}" for row in _rows_of_kind(alarms, "source")]


def advice_for_stage(stage: str, pages: bool) -> str:
    """What to do where a filter drops much of a source. pages: whether the report has a link to pages of what filters drop."""
    place = "under “Pages of every filter” in the report" if pages else "among the samples of the report"
    remedy = ADVICE.get(stage, "if it should be kept, `skip_filters` of the source keeps it out of that filter")
    return f"see what it drops {place}; {remedy}"


def host_hash(name: str) -> int:
    """A host's hash."""
    return xxhash.xxh3_64_intdigest(name.encode())


def host_of(url: str) -> str | None:
    """The host of a URL; many pages of one follow each other."""
    scheme, mark, rest = url.partition("://")
    return _cached_host(f"{scheme}://{rest.partition('/')[0]}") if mark else url_host(url)


_cached_host = lru_cache(1 << 16)(url_host)


def _alarm_row(kind: str, name: str, stage: str, documents: int, dropped: int) -> Row:
    return {"kind": kind, "name": name, "stage": stage, "documents": documents, "dropped": dropped}


def _source_rows(counts: Counter[tuple[str, str]], share: float) -> list[Row]:
    total = Counter[str]()
    for (source, _), number in counts.items():
        total[source] += number
    rows = [
        _alarm_row("source", source, stage, total[source], number)
        for (source, stage), number in counts.items()
        if stage and number > share * total[source]
    ]
    return sorted(rows, key=lambda row: (-row["dropped"], row["name"], row["stage"]))


def _largest_host_losses(pages: Spill, share: float, stages: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """((hash, stage, pages, pages dropped) of the HOSTS_SHOWN hosts that lose most, how many more there are)."""
    largest: list[tuple[int, int, int, int]] = []
    number = 0
    for part in range(pages.parts):
        part_pages = pages.part(part)
        names, pages_of = np.unique(part_pages["host"], return_counts=True)
        names = names[pages_of >= LEAST_PAGES]  # first, since a table of all hosts by stage takes more than the pages
        part_pages = part_pages[np.isin(part_pages["host"], names)]
        place = np.searchsorted(names, part_pages["host"])
        cells = np.bincount(place * stages + part_pages["stage"], minlength=len(names) * stages)
        by_stage: npt.NDArray[np.int64] = cells.reshape(len(names), stages)
        total = by_stage.sum(axis=1)
        where, stage = np.nonzero(by_stage[:, 1:] > share * total[:, None])
        number += len(where)
        dropped_pages = by_stage[where, stage + 1]
        losses = zip(
            names[where].tolist(), (stage + 1).tolist(), total[where].tolist(), dropped_pages.tolist(), strict=True
        )
        largest = sorted([*largest, *losses], key=lambda row: (-row[3], row[0], row[1]))[:HOSTS_SHOWN]
    return largest, number - len(largest)


def _names_by_hash(run: Run, hashes: set[int]) -> dict[int, str]:
    """The hosts that have these hashes."""
    names: dict[int, str] = {}
    for _, _, urls in _document_columns(run) if hashes else ():
        for name in filter(None, {host_of(url or "") for url in urls}):
            if (number := host_hash(name)) in hashes:
                names[number] = name
        if len(names) == len(hashes):
            break
    return names


def _document_tables(run: Run) -> list[Path]:
    """The tables of the documents of a corpus, and of those that were dropped."""
    return [path for path in run.files("corpus.write", ".parquet") if path.parent.name in (*SPLITS, "dropped")]


def _row_count(run: Run, path: Path) -> int:
    with run.guard_reading(path):
        return count_rows(path)
    return 0


def _document_columns(run: Run) -> Iterator[tuple[list[str], list[str], list[str | None]]]:
    """(the stage that drops each document, "" for none; its source; its URL) of the tables' batches. Tables without these are left out."""
    for path in _document_tables(run):
        column_names = [*(["stage"] if path.parent.name == "dropped" else []), "source", "url"]
        with run.guard_reading(path):
            if not set(column_names) <= set(pq.read_schema(path).names):
                continue
            for batch in batches(path, column_names, BATCH):
                columns = batch.to_pydict()
                yield columns.get("stage", [""] * len(batch)), columns["source"], columns["url"]
