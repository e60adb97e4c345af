"""Export the signals and shingle sets of a shard's documents that this run kept, for the deduplication of a later run.

Writes `<shard>.parquet`, the rows of dedup.signature of the documents that are in the corpus, and `sets/<shard>.parquet`, their shingles
(sorted distinct xxh3-64) in the same order. A later run names the folder in `dedup.exact.earlier`: no text is needed then, and
similarities are exact. Documents of sources that skip deduplication are left out. Made where `dedup.export.write` is true.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.previous_corpora import AGREE, SETS
from crawl2llm.filters.dedup.sets import texts
from crawl2llm.filters.dedup.signature import schema
from crawl2llm.formats.document_numbers import batched, binary, exempt, lists, read
from crawl2llm.formats.documents import Writer, data, rows, shard_of
from crawl2llm.text.shingles import shingle_set
from crawl2llm.text.signatures import names

SHINGLES = 1 << 20  # of a row group


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard, signature = shard_of(args.manifest), Manifest.read(args.signals)
    columns = schema(signature.part("bands"))
    table = read(data(args.signals), columns.names)
    skipped = table["id"].take(pa.array(exempt(data(args.signals), int(shard), settings["skipped_by"])))
    left_out = {name.hex() for name in skipped.to_pylist()}
    corpus = [row["id"] for row in rows(data(args.split, shard), ["id", "split"]) if row["split"]]
    chosen = [name for name in corpus if name not in left_out]
    kept = table.filter(pc.is_in(table["id"], value_set=binary(chosen)))
    if len(kept) != len(chosen):
        raise command_line.InputError(f"{args.split} has documents of shard {shard} that {args.signals} does not have")
    out = args.manifest.with_name(f"{shard}.parquet")
    with Writer(out, columns, hashes=["id", "text_hash", *names(signature.part("bands"))]) as writer:
        writer.add_table(kept)
    progress = Progress(len(chosen), "documents")
    aside = out.parent / "sets" / out.name
    total = 0
    with Writer(aside, SETS, hashes=["shingles.list.element"]) as writer:
        k, numbers = signature.part("shingle_words"), signature.part("numbers")
        found = (shingle_set(text, k, numbers) for text in texts(data(args.documents), chosen, args.edits))
        for sets in batched(found, len, SHINGLES):
            writer.add_group(pa.table([lists(sets)], SETS.names))
            total += sum(map(len, sets))
            progress.add(len(sets))
    exempted = len(corpus) - len(chosen)
    dropped = {"not in the corpus": len(table) - len(kept) - exempted, "of a source that skips dedup": exempted}
    manifest.counts = {"in": len(table), "kept": len(kept), "dropped": dropped}
    manifest.summary = {"documents": len(kept), "shingles": total, **{key: signature.part(key) for key in AGREE}}
    return [out, aside]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "dedup.export",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/00000.manifest.json"
        " --signals results/main/dedup/signature/00000.manifest.json --split results/main/corpus/split/manifest.json"
        " --manifest /tmp/export/00000.manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, help="manifest of an ingest.extract shard")
    parser.add_argument("--signals", required=True, type=Path, help="manifest of a dedup.signature shard")
    parser.add_argument("--split", required=True, type=Path, help="manifest of corpus.split")
    parser.add_argument(
        "--edits", type=Path, nargs="*", default=[], help="manifests of the steps before dedup that edit texts"
    )
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
