"""Lines of a host as hashes: a line on two pages of a host is one key, on two hosts two."""

from __future__ import annotations

import numpy as np
import xxhash

from crawl2llm.formats import aggregate
from crawl2llm.formats.hash_shuffle import Rows
from crawl2llm.text.blocks import compared_lines
from crawl2llm.text.group_split import url_host

# host: its hash; key: that of (host, line), or DOCUMENTS where `count` is of the host's documents; count: of documents.
LINE = np.dtype([("hash", "u8"), ("key", "u8"), ("count", "i8")])
DOCUMENTS = 0


def hash_of_host(url: str | None) -> int | None:
    """The hash of a URL's host; None if it has none, as a book's."""
    name = url_host(url or "")
    return xxhash.xxh3_64_intdigest(name.encode()) if name else None


def line_keys(text: str, host: int) -> list[int | None]:
    """The key of every line; None for one without a letter, digit or mark. host: from `hash_of_host`."""
    # No line has the key that stands for the documents.
    return [max(1, xxhash.xxh3_64_intdigest(line, host)) if line else None for line in compared_lines(text)]


def line_rows(text: str, host: int) -> Rows:
    """A document's rows of LINE: one that counts it, and one for each of its lines."""
    distinct_keys = {key for key in line_keys(text, host) if key is not None}
    out = np.empty(1 + len(distinct_keys), LINE)
    out["hash"], out["count"] = host, 1
    out["key"] = np.fromiter([DOCUMENTS, *distinct_keys], np.uint64, len(out))
    return out


def merge_counts(rows: Rows) -> Rows:
    """A row for each host and key, counts added up. rows: of LINE, in any order."""
    return aggregate.merge_rows(rows, ["hash", "key"])
