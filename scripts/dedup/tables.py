"""What the steps of dedup share about their tables: who is kept before whom, and the documents of a signals file.

Of two duplicates the one of higher priority is kept: curated before not curated, then more words, then the smaller id.
That order depends on the documents alone, never on shards or workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scripts.formats.documents import opened
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import Manifest

WORDS = (1 << 40) - 1  # more words than a document has

DUPLICATE = pa.schema([("id", pa.string()), ("duplicate_of", pa.string())])

PAIR = pa.schema(
    [
        ("shard_low", pa.string()),  # the document that goes if the pair is a duplicate, and its shard
        ("id_low", pa.string()),
        ("shard_high", pa.string()),  # the document of higher priority
        ("id_high", pa.string()),
        ("priority_low", pa.int64()),
        ("priority_high", pa.int64()),
    ]
)

VERIFIED = pa.schema(
    [
        ("id_low", pa.string()),
        ("id_high", pa.string()),
        ("similarity", pa.float64()),  # Jaccard similarity of the two shingle sets
        ("priority_low", pa.int64()),
        ("priority_high", pa.int64()),
    ]
)


def priority(curated: npt.NDArray[np.bool_], words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number that is smaller for the document to keep; ties go to the smaller id."""
    return np.where(curated, 0, 1 << 40) + (WORDS - words)


def read(path: Path, columns: list[str], **options: Any) -> pa.Table:
    """Columns of a whole Parquet file (one shard's, or one filtered part's). Raises ManifestError where it is damaged."""
    with opened(path):
        return pq.read_table(path, columns=columns, page_checksum_verification=True, **options)


def column(table: pa.Table, name: str) -> npt.NDArray:
    """A column without nulls as a NumPy array."""
    return table[name].to_numpy()


def ranked(table: pa.Table) -> npt.NDArray[np.int64]:
    """The priority of every row of a table with `curated` and `words`."""
    return priority(column(table, "curated"), column(table, "words"))


def members(values: npt.NDArray, ordered: npt.NDArray) -> npt.NDArray[np.bool_]:
    """Which values occur in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def repeated(values: npt.NDArray) -> npt.NDArray:
    """The values that occur twice or more, sorted and distinct. Sorts `values` in place."""
    values.sort()
    twice = values[1:][values[1:] == values[:-1]]
    return twice[np.concatenate(([True], twice[1:] != twice[:-1]))] if len(twice) else twice


def without(table: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows whose `id` is not among `ids`."""
    return table.filter(pc.invert(pc.is_in(table["id"], value_set=ids))) if len(ids) else table


def same(manifests: list[Manifest], key: str) -> Any:
    """A summary value that all the manifests must agree on. Raises InputError where they do not."""
    values = {manifest.summary[key] for manifest in manifests}
    if len(values) != 1:
        raise InputError(
            f"{manifests[0].path} and others disagree on {key}: {sorted(values)}; run dedup.signature again"
        )
    return values.pop()
