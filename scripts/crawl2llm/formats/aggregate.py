"""Counted rows with hashes: rows of the same key become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crawl2llm.formats.document_numbers import group_starts
from crawl2llm.formats.hash_shuffle import Rows


def merge_rows(rows: Rows, key: Sequence[str], order: Sequence[str] = ()) -> Rows:
    """One row for each key, sorted by it, with the counts added up. rows: with a column `count`, in any order.

    key: the columns that are the key. order: columns by which the first row of a key is found, whose other columns stay.
    """
    rows = rows[np.lexsort([rows[name] for name in reversed((*key, *order))])]
    first = np.flatnonzero(group_starts(*(rows[name] for name in key)))
    out = rows[first]
    if len(rows):
        out["count"] = np.add.reduceat(rows["count"], first)
    return out
