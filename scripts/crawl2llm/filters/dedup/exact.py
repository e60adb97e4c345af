"""Find the documents whose text is byte-equal to that of another, over all shards.

Documents of sources that skip deduplication take no part, here and in the steps that follow.

Writes `duplicates.parquet`, `document, duplicate_of`: the documents that are not the keeper of their text, and that keeper. Documents
are dealt out by ranges of their text hash, and each range is sorted by itself: memory is that of HELD_DOCUMENTS and of one range's
duplicates, whatever the corpus; disk is 48 bytes a document while it works.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED,
    HELD_DOCUMENTS,
    exempt,
    first_of,
    hashed,
    in_order,
    members,
    opening,
    read,
    repeated,
    shards,
    sixteen,
    split,
    starts,
)
from crawl2llm.formats.documents import Writer
from crawl2llm.formats.external_partition import Spill, by_hash, ranges

TEXT = np.dtype([("row", HASHED), ("more", "u8")])  # hash: the first 8 bytes of the text's hash; more: the other 8
COPY = np.dtype([("document", "i8"), ("duplicate_of", "i8")])
SHARDS = 64  # shards whose duplicates are sorted at a time


def keepers(texts: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Every document that is not the first of its text hash, with that first one, as rows of COPY.

    texts: rows of TEXT in any order, with all documents of each text hash that is among them. None of an earlier corpus is returned.
    """
    texts = texts[members(texts["row"]["hash"], repeated(texts["row"]["hash"].copy()))]
    texts = texts[in_order(texts["row"], texts["more"], texts["row"]["hash"])]
    rows, more = texts["row"], texts["more"]
    first = starts(rows["hash"], more)
    out = np.empty(len(rows), COPY)
    out["document"], out["duplicate_of"] = rows["document"], rows["document"][opening(first)]
    return out[~first & (out["document"] < first_of(EARLIER))]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    signatures = [Manifest.read(path) for path in args.signals]
    own, old = shards(args.signals), previous_corpora.shards(settings["earlier"], signatures)
    total, before = (sum(shard.documents for shard in some) for some in (own, old))
    progress = Progress(total + before, "documents")
    out = args.manifest.with_name("duplicates.parquet")
    dropped = exempted = 0
    with scratch(args.manifest.with_name(".exact")) as folder:
        texts = Spill(folder / "texts", ranges(total + before, HELD_DOCUMENTS), TEXT)
        for shard in [*own, *old]:
            table = read(shard.path, ["id", "text_hash", "words", "curated"])
            there = np.ones(len(table), bool)
            there[exempt(shard.path, shard.number, settings["skipped_by"])] = False
            table = table.filter(pa.array(there))
            halves = sixteen(table["text_hash"], "<u8")
            rows = np.empty(len(table), TEXT)
            rows["row"] = hashed(table, first_of(shard.number) + np.flatnonzero(there), halves[:, 0])
            rows["more"] = halves[:, 1]
            texts.add(by_hash(halves[:, 0], texts.parts), rows)
            exempted += len(there) - len(table)
            progress.add(len(there))
        blocks = 1 + own[-1].number // SHARDS
        copies = Spill(folder / "copies", blocks, COPY)
        for part in range(texts.parts):
            found = keepers(texts.part(part))
            copies.add(split(found["document"])[0] // SHARDS, found)
            dropped += len(found)
        with Writer(out, DUPLICATE) as writer:
            for block in range(blocks):
                found = np.sort(copies.part(block), order="document")
                writer.add_table(pa.table({name: found[name] for name in DUPLICATE.names}))
    manifest.counts = {"in": total, "kept": total - dropped, "dropped": {"exact": dropped}}
    manifest.summary = {
        "earlier": settings["earlier"],
        "earlier_documents": before,
        "skipped_by": settings["skipped_by"],
        "source_exempt": exempted,
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "dedup.exact",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json --manifest /tmp/exact/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
