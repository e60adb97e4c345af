"""Signatures without texts, as many as one likes, to run band, verify and select of dedup alone; called by benchmarks/scale.py.

Every tenth document has the band's hash of some other one, and one of 10,000 that of one large bucket. The shingle sets of candidates
are made too: 32 shingles each, of which up to 7 differ from those of the others in the bucket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.scale import Run, apart, complete
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.sets import row_groups
from crawl2llm.filters.dedup.signature import signal_schema
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    SETS,
    WANTED_DOCUMENT,
    column,
    first_document,
    read_columns,
    table_between,
)
from crawl2llm.formats.documents import GROUP, Writer

PER_SHARD = 250_000
SHINGLES, CHANGED = 32, 8
Words = npt.NDArray[np.uint64]


def mixed(values: npt.NDArray) -> Words:
    """A bijection of 64 bits that looks random (SplitMix64's finaliser)."""
    out = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        out = (out ^ (out >> np.uint64(shift))) * np.uint64(factor)
    return out ^ (out >> np.uint64(31))


def family(numbers: npt.NDArray[np.int64]) -> Words:
    """Whose copy each document is: its own number, or that of another."""
    own = numbers.astype(np.uint64)
    other = mixed(own) % np.maximum(own, np.uint64(1))
    found = np.where(numbers % 10 == 9, other, own)
    return np.where(numbers % 10_000 == 4, np.uint64(4), found)


def signatures(count: int, folder: Path) -> None:
    """Write the signatures of `count` documents, and that none is an exact duplicate."""
    for shard, start in enumerate(range(0, count, PER_SHARD)):
        numbers = np.arange(start, min(start + PER_SHARD, count))
        ids = np.stack((mixed(numbers), numbers.astype(np.uint64)), axis=1).astype(">u8").tobytes()
        binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(ids)])
        words = (mixed(numbers + 1) % np.uint64(2000)).astype(np.int64)
        source, curated = pa.repeat("web", len(numbers)), np.zeros(len(numbers), bool)
        none = pa.array(np.zeros(len(words), np.int64))
        columns = [binary, binary, words, none, words, source, curated, mixed(family(numbers))]
        table = pa.table(columns, signal_schema(1).names)
        path = folder / "signature" / f"{shard:05d}.parquet"
        with Writer(path, signal_schema(1), GROUP, hashes=["id", "text_hash", "band_00"]) as writer:
            writer.add_table(table)
        facts = {"documents": len(numbers), "bands": 1, "rows": 8, "shingle_words": 5, "numbers": "zero"}
        Manifest("dedup.signature", "synthetic", summary=facts).write(
            path.with_name(f"{shard:05d}.manifest.json"), [path]
        )
    path = folder / "exact" / "duplicates.parquet"
    with Writer(path, DUPLICATE) as writer:
        writer.add_table(DUPLICATE.empty_table())
    facts = {"earlier": [], "skipped_by": [], "source_exempt": 0}
    Manifest("dedup.exact", "synthetic", summary=facts).write(path.with_name("manifest.json"), [path])


def sets(shards: int, folder: Path) -> None:
    """Write the shingle sets of the documents that the band wants."""
    parts = Manifest.read(folder / "band" / "00.manifest.json").summary_part("parts")
    for shard in range(shards):
        asked = table_between(
            folder / "band" / "wanted" / "00.parquet",
            "document",
            first_document(shard),
            first_document(shard + 1),
            WANTED_DOCUMENT,
        )
        asked = asked.sort_by([("part", "ascending"), ("document", "ascending")])
        rows = column(asked, "document") - first_document(shard)
        numbers = (rows + shard * PER_SHARD).astype(np.uint64)
        of = column(read_columns(folder / "signature" / f"{shard:05d}.parquet", ["band_00"]), "band_00")[rows]
        place = np.arange(SHINGLES, dtype=np.uint64)
        values = mixed(of[:, None] + place)
        changed = place < (mixed(numbers + np.uint64(7)) % np.uint64(CHANGED))[:, None]
        values = np.sort(np.where(changed, mixed(mixed(numbers)[:, None] + place), values), axis=1)
        path = folder / "sets" / f"{shard:05d}.parquet"
        with Writer(path, SETS, hashes=["shingles.list.element"]) as writer:
            for start, end in row_groups(column(asked, "part"), np.full(len(rows), SHINGLES)):
                ends = np.arange(0, (end - start) * SHINGLES + 1, SHINGLES, dtype=np.int32)
                lists = pa.ListArray.from_arrays(ends, values[start:end].ravel(), type=SETS.field("shingles").type)
                some = asked.slice(start, end - start).combine_chunks()
                writer.add_group(pa.table([some["part"], some["document"], lists], SETS.names))
        made = Manifest("dedup.sets", "synthetic", summary={"parts": parts})
        made.write(path.with_name(f"{shard:05d}.manifest.json"), [path])


def run(count: int, folder: Path) -> dict[str, Any]:
    """Band, verify and select over so many signatures: what each took."""
    shards = -(-count // PER_SHARD)
    run_ = Run(folder, complete(shards, bands=1, permutations=8))
    apart(signatures, count, folder)
    signals, exact = run_.manifests("signature"), run_.manifests("exact")
    run_.step("band", lambda task: {"signals": signals, "exact": exact})
    apart(sets, shards, folder)
    bands = run_.manifests("band")
    run_.step("verify", lambda task: {"pairs": bands, "sets": run_.manifests("sets")})
    run_.step("select", lambda task: {"signals": signals, "exact": exact, "pairs": run_.manifests("verify")})
    pairs = Manifest.read(folder / "select" / "manifest.json").summary["pairs"]
    return {"shards": shards, "steps": run_.took, "pairs": pairs}
