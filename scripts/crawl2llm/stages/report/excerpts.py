"""The texts of the documents that a filter's page shows: cut, with the places that filters edit, and duplicates beside their keepers.

Of the documents only the row groups that hold one of them are read. A text is cut before the next is read, so that one of ten megabytes
takes no more memory than its row group; of duplicates COMPARED_CHARACTERS characters are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.formats import documents, spans
from crawl2llm.formats.documents import open_parquet
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.formats.spans import Span
from crawl2llm.stages.report.inspect_sampling import EDITED, VERDICT, ShownDocument, shards_of
from crawl2llm.stages.report.samples import UNSHOWABLE, side_by_side

COMPARED_CHARACTERS = 20_000  # characters of two duplicates that are compared
LEAD = 4  # a quarter of what is shown stands before the first edit, where that is far down
# Text; what filters before took out; what this one does; what it puts there:
PLAIN, EARLIER_EDIT, OWN_EDIT, INSERTED = "plain", "earlier", "own", "put"
Segment = tuple[str, str, str]  # text, one of these, and which filter and rule


def clean_text(text: str) -> str:
    """A text without control characters, and without what turns the direction of the text around it."""
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def text_segments(
    text: str, edits: Sequence[Span], own_filter: str, limit: int, around: bool = False
) -> dict[str, Any]:
    """`parts` of a text of about `limit` characters, `skipped` before it, `characters` of the whole, and whether it is `cut`.

    own_filter: the filter whose edits are shown as such. around: the parts begin near its first edit where that is far down.
    """
    joined = spans.merge_spans(edits)
    first_own = next((span.start for span in joined if span.stage == own_filter), 0)
    start = max(0, first_own - limit // LEAD) if around and first_own > limit * (LEAD - 1) // LEAD else 0
    end = min(len(text), start + limit)
    parts: list[Segment] = []
    at = start
    for span in joined:
        if span.end <= start or span.start >= end:
            continue
        first, last = max(span.start, start), min(span.end, end)
        kind, label = OWN_EDIT if span.stage == own_filter else EARLIER_EDIT, f"{span.stage} {span.rule}".strip()
        parts += [(text[at:first], PLAIN, ""), (text[first:last], kind, label)]
        if span.replacement and span.end <= end:
            parts.append((span.replacement, INSERTED, label))
        at = last
    parts.append((text[at:end], PLAIN, ""))
    clean_parts = [(clean_text(piece), kind, clean_text(what)) for piece, kind, what in parts if piece]
    return {"parts": clean_parts, "skipped": start, "characters": len(text), "cut": end < len(text) or start > 0}


def editing_steps(run: Run, filter_: str) -> list[str]:
    """The steps that edit texts before a filter, and its own."""
    filters = run.filters
    until = filters[: filters.index(filter_) + 1] if filter_ in filters else [filter_]
    return [f"{name}.{FILTERS[name].edits}" for name in until if name in FILTERS and FILTERS[name].edits]


def rows_by_id(
    run: Run, step: str, shard: str, wanted_ids: pa.Array, columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """id → row of a shard's table, for the wanted ids; {} without such a table."""
    path = table_of(run, step, shard)
    if path is None:
        return {}
    with open_parquet(path) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        table = file.read(["id", *(name for name in names if name != "id")])
    return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=wanted_ids)).to_pylist()}


def document_details(
    run: Run, filter_: str, shown_documents: Iterable[ShownDocument], limit: int
) -> list[dict[str, Any]]:
    """What the page shows of each document, in their order: `document` (ShownDocument), `verdict`, `url`, `source`, `language`, `text` of
    `text_segments`, and `compared` of a duplicate.
    """
    order = list(shown_documents)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    duplicate_texts: dict[str, str] = {}  # of duplicates
    of_edits = {document.id for document in order if document.group[0] == EDITED}
    pair_partners = {document.id: document.other for document in order if document.other}
    for shard in sorted({document.shard for document in order}):
        shard_ids = {document.id for document in order if document.shard == shard}
        wanted_ids = pa.array(sorted(shard_ids), pa.string())
        verdicts = rows_by_id(run, f"{filter_}.select", shard, wanted_ids, VERDICT)
        about = rows_by_id(run, DOCUMENTS, shard, wanted_ids, ["url", "source", "date"])
        languages = rows_by_id(run, "language.score", shard, wanted_ids, ["language"])
        manifests = [
            manifest.path
            for step in editing_steps(run, filter_)
            for manifest in run.manifests_of(step)
            if manifest.path
        ]
        shard_manifests = [path for path in manifests if path.name == f"{shard}.manifest.json"]
        edits = spans.read(shard_manifests, shard, wanted_ids)
        for name, text in wanted_texts(run, shard, wanted_ids):
            if keeper := verdicts.get(name, {}).get("duplicate_of") or pair_partners.get(name):
                duplicate_texts[name] = text[:COMPARED_CHARACTERS]
            rows[shard, name] = {
                "verdict": verdicts.get(name, {}),
                "url": about.get(name, {}).get("url"),
                "source": about.get(name, {}).get("source") or "",
                "date": about.get(name, {}).get("date"),
                "language": languages.get(name, {}).get("language") or "",
                "text": text_segments(text, edits.get(name, []), filter_, limit),
                # Of an edit what stands around it, else the beginning.
                "around": text_segments(text, edits.get(name, []), filter_, limit, True) if name in of_edits else None,
                "keeper": keeper,
                "compared": None,
            }
    add_keepers(run, rows, duplicate_texts, limit)
    with_text = [document for document in order if (document.shard, document.id) in rows]
    out = [{"document": document, **rows[document.shard, document.id]} for document in with_text]
    return [{**row, "text": row["around"]} if row["document"].group[0] == EDITED else row for row in out]


def wanted_texts(run: Run, shard: str, wanted_ids: pa.Array) -> Iterable[tuple[str, str]]:
    """(id, text) of wanted documents of a shard, one after the other."""
    path = table_of(run, DOCUMENTS, shard)
    return documents.texts_of_ids(path, wanted_ids) if path else ()


def add_keepers(
    run: Run, rows: dict[tuple[str, str], dict[str, Any]], duplicate_texts: dict[str, str], limit: int
) -> None:
    """Put the keeper and the words that differ beside every duplicate, and beside what is nearly one."""
    keepers = {row["keeper"] for row in rows.values()} - {None}
    wanted_ids = pa.array(sorted(keepers), pa.string())
    keeper_texts: dict[str, tuple[str, str]] = {}
    for shard in shards_of(run, DOCUMENTS) if keepers else ():
        if len(keeper_texts) < len(keepers):
            hits = {name: text[:COMPARED_CHARACTERS] for name, text in wanted_texts(run, shard, wanted_ids)}
            urls = rows_by_id(run, DOCUMENTS, shard, pa.array(sorted(hits), pa.string()), ["url"]) if hits else {}
            keeper_texts |= {name: (text, urls.get(name, {}).get("url") or "") for name, text in hits.items()}
    for (_, name), row in rows.items():
        if row["keeper"] in keeper_texts and name in duplicate_texts:
            text, url = keeper_texts[row["keeper"]]
            row["compared"] = {**side_by_side(duplicate_texts[name], text, limit), "keeper": row["keeper"], "url": url}
