"""Find the documents whose text is byte-equal to that of another, over all shards.

Documents of sources that skip deduplication take no part, here and in the steps that follow.

Writes `duplicates.parquet`, `document, duplicate_of`: the documents that are not the keeper of their text, and that keeper. Documents
are dealt out by ranges of their text hash, and each range is sorted by itself: memory is that of HELD_DOCUMENTS and of one range's
duplicates, whatever the corpus; disk is 48 bytes a document while it works.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.filters.dedup.settings import ExactSettings
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED_DOCUMENT,
    HELD_DOCUMENTS,
    exempt_rows,
    first_document,
    group_starts,
    hashed_rows,
    occur_in,
    opening_rows,
    priority_order,
    read_columns,
    read_shards,
    repeated_values,
    shards_and_rows,
    uint64_halves,
)
from crawl2llm.formats.documents import Writer
from crawl2llm.formats.external_partition import Spill, count_parts, part_by_hash

TEXT = np.dtype(
    [("row", HASHED_DOCUMENT), ("more", "u8")]
)  # hash: the first 8 bytes of the text's hash; more: the other 8
COPY = np.dtype([("document", "i8"), ("duplicate_of", "i8")])
SHARDS_SORTED = 64  # shards whose duplicates are sorted at a time


def duplicates_with_keepers(texts: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Every document that is not the first of its text hash, with that first one, as rows of COPY.

    texts: rows of TEXT in any order, with all documents of each text hash that is among them. None of an earlier corpus is returned.
    """
    texts = texts[occur_in(texts["row"]["hash"], repeated_values(texts["row"]["hash"].copy()))]
    texts = texts[priority_order(texts["row"], texts["more"], texts["row"]["hash"])]
    rows, more = texts["row"], texts["more"]
    first = group_starts(rows["hash"], more)
    out = np.empty(len(rows), COPY)
    out["document"], out["duplicate_of"] = rows["document"], rows["document"][opening_rows(first)]
    return out[~first & (out["document"] < first_document(EARLIER))]


class Task(ExactSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    signatures = [Manifest.read(path) for path in args.signals]
    own_shards = read_shards(args.signals)
    earlier_shards = previous_corpora.earlier_shards(settings.earlier, signatures)
    total = sum(shard.documents for shard in own_shards)
    earlier_documents = sum(shard.documents for shard in earlier_shards)
    progress = Progress(total + earlier_documents, "documents")
    out = args.manifest.with_name("duplicates.parquet")
    dropped = exempted = 0
    with scratch_folder(args.manifest.with_name(".exact")) as folder:
        texts = Spill(folder / "texts", count_parts(total + earlier_documents, HELD_DOCUMENTS), TEXT)
        for shard in [*own_shards, *earlier_shards]:
            table = read_columns(shard.path, ["id", "text_hash", "words", "curated"])
            takes_part = np.ones(len(table), bool)
            takes_part[exempt_rows(shard.path, shard.number, settings.skipped_by)] = False
            table = table.filter(pa.array(takes_part))
            halves = uint64_halves(table["text_hash"], "<u8")
            rows = np.empty(len(table), TEXT)
            rows["row"] = hashed_rows(table, first_document(shard.number) + np.flatnonzero(takes_part), halves[:, 0])
            rows["more"] = halves[:, 1]
            texts.add(part_by_hash(halves[:, 0], texts.parts), rows)
            exempted += len(takes_part) - len(table)
            progress.add(len(takes_part))
        blocks = 1 + own_shards[-1].number // SHARDS_SORTED
        copies = Spill(folder / "copies", blocks, COPY)
        for part in range(texts.parts):
            part_copies = duplicates_with_keepers(texts.part(part))
            copies.add(shards_and_rows(part_copies["document"])[0] // SHARDS_SORTED, part_copies)
            dropped += len(part_copies)
        with Writer(out, DUPLICATE) as writer:
            for block in range(blocks):
                part_copies = np.sort(copies.part(block), order="document")
                writer.add_table(pa.table({name: part_copies[name] for name in DUPLICATE.names}))
    manifest.counts = {"in": total, "kept": total - dropped, "dropped": {"exact": dropped}}
    manifest.summary = {
        "earlier": settings.earlier,
        "earlier_documents": earlier_documents,
        "skipped_by": settings.skipped_by,
        "source_exempt": exempted,
    }
    return [out]


main = Program("dedup.exact", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
