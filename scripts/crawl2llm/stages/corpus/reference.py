"""Keep what the variants of a run are compared on: the shingles, bands and origins of the documents that main holds out.

Writes `reference.parquet`: `id, source, origin, bands, shingles` of main's validation documents, by the texts that main keeps. They are
main's in every variant: corpus.heldout compares a variant's training text with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import spans
from crawl2llm.formats.documents import Writer, parquet_file, rows, shard_of, texts_of_ids
from crawl2llm.stages.corpus.overlap import REFERENCE, ReferenceTask, band_hashes, make_hasher, row_batches
from crawl2llm.text.group_split import COLUMNS, origin_of
from crawl2llm.text.shingles import shingle_set

Row = dict[str, Any]


def heldout_rows(documents: Path, split: Path, edits: list[Path], shard: str, by_origin: bool) -> Iterator[Row]:
    """`id, source, origin, text` of a shard's validation documents, in its order. documents: the Parquet file; split, edits: manifests."""
    wanted = {row["id"] for row in rows(parquet_file(split, shard), ["id", "split"]) if row["split"] == "validation"}
    if not wanted:
        return
    facts = {row["id"]: row for row in rows(documents, [*COLUMNS, "source"]) if row["id"] in wanted}
    ids = pa.array(sorted(wanted), pa.string())
    edited = spans.read(edits, shard, ids)
    for name, text in texts_of_ids(documents, ids):
        yield {
            "id": name,
            "source": facts[name]["source"],
            "origin": origin_of(facts[name]) if by_origin else None,
            "text": spans.EditedText(text, edited[name]).text if name in edited else text,
        }


def body(args: argparse.Namespace, settings: ReferenceTask, manifest: Manifest) -> list[Path]:
    split = Manifest.read(args.split, only="")
    by_origin, signature = split.summary_part("by") == "origin", settings.signature
    by, out = make_hasher(signature), args.manifest.with_name("reference.parquet")
    progress = Progress(len(args.documents), "shards")
    number = shingles = 0
    with Writer(out, REFERENCE, hashes=["shingles.list.element", "bands.list.element"]) as writer:
        for path in sorted(args.documents, key=shard_of):
            shard = shard_of(path)
            for documents in row_batches(heldout_rows(parquet_file(path), args.split, args.edits, shard, by_origin)):
                hashed = band_hashes([row["text"] for row in documents], signature, by)
                for row, row_bands in zip(documents, hashed, strict=True):
                    row_shingles = shingle_set(row.pop("text"), signature.shingle_words, signature.numbers)
                    writer.add({**row, "bands": row_bands, "shingles": row_shingles.tolist()})
                    number, shingles = number + 1, shingles + len(row_shingles)
            progress.add()
    manifest.count_all_kept(number)
    compared_by = settings.model_dump(by_alias=True, exclude_unset=True)
    manifest.summary = {
        "documents": number,
        "shingles": shingles,
        "by": split.summary_part("by"),
        "settings": compared_by,  # of corpus.heldout, too
    }
    log.info("main holds out %s documents", f"{number:,}")
    return [out]


main = Program("corpus.reference", __doc__, ReferenceTask, body)


if __name__ == "__main__":
    raise SystemExit(main())
