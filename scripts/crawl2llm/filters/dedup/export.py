"""Export the signals and shingle sets of a shard's documents that this run kept, for the deduplication of a later run.

Writes `<shard>.parquet`, the rows of dedup.signature of the documents that are in the corpus, and `sets/<shard>.parquet`, their shingles
(sorted distinct xxh3-64) in the same order. A later run names the folder in `dedup.exact.earlier`: no text is needed then, and
similarities are exact. Documents of sources that skip deduplication are left out. Made where `dedup.export.write` is true.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.previous_corpora import COMPARED_SETTINGS, SETS
from crawl2llm.filters.dedup.sets import texts_by_id
from crawl2llm.filters.dedup.settings import ExportSettings
from crawl2llm.filters.dedup.signature import signal_schema
from crawl2llm.formats.document_numbers import batch_by_size, binary_ids, exempt_rows, read_columns, shingle_lists
from crawl2llm.formats.documents import Writer, parquet_file, rows, shard_of
from crawl2llm.text.shingles import shingle_set
from crawl2llm.text.signatures import band_names

GROUP_SHINGLES = 1 << 20  # of a row group


class Task(ExportSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shard, signature = shard_of(args.manifest), Manifest.read(args.signals)
    columns = signal_schema(signature.summary_part("bands"))
    table = read_columns(parquet_file(args.signals), columns.names)
    skipped = table["id"].take(pa.array(exempt_rows(parquet_file(args.signals), int(shard), settings.skipped_by)))
    left_out = {name.hex() for name in skipped.to_pylist()}
    corpus = [row["id"] for row in rows(parquet_file(args.split, shard), ["id", "split"]) if row["split"]]
    exported_ids = [name for name in corpus if name not in left_out]
    exported_table = table.filter(pc.is_in(table["id"], value_set=binary_ids(exported_ids)))
    if len(exported_table) != len(exported_ids):
        raise command_line.InputError(f"{args.split} has documents of shard {shard} that {args.signals} does not have")
    out = args.manifest.with_name(f"{shard}.parquet")
    with Writer(out, columns, hashes=["id", "text_hash", *band_names(signature.summary_part("bands"))]) as writer:
        writer.add_table(exported_table)
    progress = Progress(len(exported_ids), "documents")
    sets_file = out.parent / "sets" / out.name
    total = 0
    with Writer(sets_file, SETS, hashes=["shingles.list.element"]) as writer:
        k, numbers = signature.summary_part("shingle_words"), signature.summary_part("numbers")
        shingle_sets = (
            shingle_set(text, k, numbers)
            for text in texts_by_id(parquet_file(args.documents), exported_ids, args.edits)
        )
        for sets in batch_by_size(shingle_sets, len, GROUP_SHINGLES):
            writer.add_group(pa.table([shingle_lists(sets)], SETS.names))
            total += sum(map(len, sets))
            progress.add(len(sets))
    exempted = len(corpus) - len(exported_ids)
    dropped = {
        "not in the corpus": len(table) - len(exported_table) - exempted,
        "of a source that skips dedup": exempted,
    }
    manifest.counts = {"in": len(table), "kept": len(exported_table), "dropped": dropped}
    manifest.summary = {
        "documents": len(exported_table),
        "shingles": total,
        **{key: signature.summary_part(key) for key in COMPARED_SETTINGS},
    }
    return [out, sets_file]


main = Program("dedup.export", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
