"""The signature of every document that reached dedup: a hash of its text, and MinHash bands of its shingles.

Signals: `id` (binary), `text_hash` (xxh3-128 of the exact text in UTF-8), `words` (tokens), `numbers` (tokens that are numbers),
`shingles` (distinct), `source`, `curated`, and `band_00` … the hash of each band, null for a text without a word. Shard and row are the
document's number in the steps that follow.
Defaults: FineWeb's 5-word shingles, 112 permutations in 14 bands of 8 rows (datatrove, examples/fineweb.py), which make a pair of
similarity 0.8 a candidate with a probability of 92.4 %, one of 0.9 with 99.96 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.settings import SignatureSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import batch_by_size
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.signatures import band_names, compute_signals

BATCH_CHARACTERS = 1 << 19  # characters of text hashed at a time


def signal_schema(bands: int) -> pa.Schema:
    """The signals' schema."""
    return pa.schema(
        [
            ("id", pa.binary(16)),
            ("text_hash", pa.binary(16)),
            ("words", pa.int64()),
            ("numbers", pa.int64()),
            ("shingles", pa.int64()),
            ("source", pa.string()),
            ("curated", pa.bool_()),
            *((name, pa.uint64()) for name in band_names(bands)),
        ]
    )


def body(args: argparse.Namespace, settings: SignatureSettings, manifest: Manifest) -> list[Path]:
    hasher = MinHasher(settings.permutations, settings.bands, settings.rows, settings.seed)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    totals = {"words": 0, "shingles": 0}
    columns = signal_schema(hasher.bands)
    with Writer(out, columns, hashes=["id", "text_hash", *band_names(hasher.bands)]) as writer:
        documents = surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"])
        for batch in batch_by_size(documents, lambda row: len(row["text"]), BATCH_CHARACTERS):
            signals = compute_signals([row["text"] for row in batch], settings.shingle_words, hasher, settings.numbers)
            for row, signal in zip(batch, signals, strict=True):
                signal |= {"id": bytes.fromhex(row["id"]), "source": row["source"], "curated": bool(row["curated"])}
                for key in totals:
                    totals[key] += signal[key]
            writer.add_table(pa.Table.from_pylist(signals, schema=columns))
            progress.add(len(batch))
    manifest.count_all_kept(progress.done)
    manifest.summary = {
        **totals,
        "documents": progress.done,
        "shingle_words": settings.shingle_words,
        "numbers": settings.numbers,
        "bands": hasher.bands,
        "rows": settings.rows,
        "seed": settings.seed,
    }
    return [out]


main = Program("dedup.signature", __doc__, SignatureSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
