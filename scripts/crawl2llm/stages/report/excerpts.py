"""The texts of the documents that a filter's page shows: cut, with the places that filters edit, and duplicates beside their keepers.

Of the documents only the row groups that hold one of them are read. A text is cut before the next is read, so that one of ten megabytes
takes no more memory than its row group; of duplicates COMPARED characters are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.steps import DOCUMENTS
from crawl2llm.formats import documents, spans
from crawl2llm.formats.documents import opened
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.formats.spans import Span
from crawl2llm.stages.report.inspect_sampling import EDITED, VERDICT, Shown, shards_of
from crawl2llm.stages.report.samples import UNSHOWABLE, compared

COMPARED = 20_000  # characters of two duplicates that are compared
LEAD = 4  # a quarter of what is shown stands before the first edit, where that is far down
# Text; what filters before took out; what this one does; what it puts there:
PLAIN, EARLIER, OWN, PUT = "plain", "earlier", "own", "put"
Segment = tuple[str, str, str]  # text, one of these, and which filter and rule


def clean(text: str) -> str:
    """A text without control characters, and without what turns the direction of the text around it."""
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def segments(text: str, edits: Sequence[Span], own: str, limit: int, around: bool = False) -> dict[str, Any]:
    """`parts` of a text of about `limit` characters, `skipped` before it, `characters` of the whole, and whether it is `cut`.

    own: the filter whose edits are shown as such. around: the parts begin near its first edit where that is far down.
    """
    joined = spans.joined(edits)
    mine = next((span.start for span in joined if span.stage == own), 0)
    start = max(0, mine - limit // LEAD) if around and mine > limit * (LEAD - 1) // LEAD else 0
    end = min(len(text), start + limit)
    parts: list[Segment] = []
    at = start
    for span in joined:
        if span.end <= start or span.start >= end:
            continue
        first, last = max(span.start, start), min(span.end, end)
        kind, what = OWN if span.stage == own else EARLIER, f"{span.stage} {span.rule}".strip()
        parts += [(text[at:first], PLAIN, ""), (text[first:last], kind, what)]
        if span.replacement and span.end <= end:
            parts.append((span.replacement, PUT, what))
        at = last
    parts.append((text[at:end], PLAIN, ""))
    shown = [(clean(piece), kind, clean(what)) for piece, kind, what in parts if piece]
    return {"parts": shown, "skipped": start, "characters": len(text), "cut": end < len(text) or start > 0}


def editing(run: Run, filter_: str) -> list[str]:
    """The steps that edit texts before a filter, and its own."""
    used = run.filters
    until = used[: used.index(filter_) + 1] if filter_ in used else [filter_]
    return [f"{name}.{FILTERS[name].edits}" for name in until if name in FILTERS and FILTERS[name].edits]


def rows_of(run: Run, step: str, shard: str, wanted: pa.Array, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """id → row of a shard's table, for the wanted ids; {} without such a table."""
    path = table_of(run, step, shard)
    if path is None:
        return {}
    with opened(path) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        table = file.read(["id", *(name for name in names if name != "id")])
    return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=wanted)).to_pylist()}


def details(run: Run, filter_: str, shown: Iterable[Shown], limit: int) -> list[dict[str, Any]]:
    """What the page shows of each document, in their order: `one` (Shown), `verdict`, `url`, `source`, `language`, `text` of `segments`,
    and `compared` of a duplicate.
    """
    order = list(shown)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    whole: dict[str, str] = {}  # of duplicates
    of_edits = {one.id for one in order if one.group[0] == EDITED}
    others = {one.id: one.other for one in order if one.other}
    for shard in sorted({one.shard for one in order}):
        here = {one.id for one in order if one.shard == shard}
        wanted = pa.array(sorted(here), pa.string())
        verdicts = rows_of(run, f"{filter_}.select", shard, wanted, VERDICT)
        about = rows_of(run, DOCUMENTS, shard, wanted, ["url", "source", "date"])
        languages = rows_of(run, "language.score", shard, wanted, ["language"])
        manifests = [made.path for step in editing(run, filter_) for made in run.of(step) if made.path]
        own = [path for path in manifests if path.name == f"{shard}.manifest.json"]
        edits = spans.read(own, shard, wanted)
        for name, text in texts(run, shard, wanted):
            if keeper := verdicts.get(name, {}).get("duplicate_of") or others.get(name):
                whole[name] = text[:COMPARED]
            found[shard, name] = {
                "verdict": verdicts.get(name, {}),
                "url": about.get(name, {}).get("url"),
                "source": about.get(name, {}).get("source") or "",
                "date": about.get(name, {}).get("date"),
                "language": languages.get(name, {}).get("language") or "",
                "text": segments(text, edits.get(name, []), filter_, limit),
                # Of an edit what stands around it, else the beginning.
                "around": segments(text, edits.get(name, []), filter_, limit, True) if name in of_edits else None,
                "keeper": keeper,
                "compared": None,
            }
    beside(run, found, whole, limit)
    known = [one for one in order if (one.shard, one.id) in found]
    out = [{"one": one, **found[one.shard, one.id]} for one in known]
    return [{**row, "text": row["around"]} if row["one"].group[0] == EDITED else row for row in out]


def texts(run: Run, shard: str, wanted: pa.Array) -> Iterable[tuple[str, str]]:
    """(id, text) of wanted documents of a shard, one after the other."""
    path = table_of(run, DOCUMENTS, shard)
    return documents.texts(path, wanted) if path else ()


def beside(run: Run, found: dict[tuple[str, str], dict[str, Any]], whole: dict[str, str], limit: int) -> None:
    """Put the keeper and the words that differ beside every duplicate, and beside what is nearly one."""
    keepers = {row["keeper"] for row in found.values()} - {None}
    wanted = pa.array(sorted(keepers), pa.string())
    kept: dict[str, tuple[str, str]] = {}
    for shard in shards_of(run, DOCUMENTS) if keepers else ():
        if len(kept) < len(keepers):
            hits = {name: text[:COMPARED] for name, text in texts(run, shard, wanted)}
            urls = rows_of(run, DOCUMENTS, shard, pa.array(sorted(hits), pa.string()), ["url"]) if hits else {}
            kept |= {name: (text, urls.get(name, {}).get("url") or "") for name, text in hits.items()}
    for (_, name), row in found.items():
        if row["keeper"] in kept and name in whole:
            text, url = kept[row["keeper"]]
            row["compared"] = {**compared(whole[name], text, limit), "keeper": row["keeper"], "url": url}
