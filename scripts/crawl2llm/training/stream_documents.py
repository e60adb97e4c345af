"""Which documents stand at places of the training stream: one search, for trainings that name what they left out and for the trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.documents import batches
from crawl2llm.formats.megatron import open_indexed


@dataclass(frozen=True)
class Piece:
    """Tokens of a document in the training stream: [start, end), and the shard and source of its dataset."""

    document: str
    shard: str
    source: str
    start: int
    end: int


def stream_files(tokens: Iterable[Path]) -> Iterator[tuple[str, str, Path, int, int]]:
    """(shard, source, `.docs.parquet`, first token in the stream, tokens) of each file of the training stream, in its order.

    tokens: manifests of tokenize.encode. The order is that of `data.open_split`.
    """
    base = 0
    for path in sorted(tokens):
        manifest = Manifest.read(path)
        for name in sorted(name for name in manifest.files if name.startswith("train/") and name.endswith(".bin")):
            stem = name.removesuffix(".bin")
            size = len(open_indexed(manifest.file(name), manifest.file(f"{stem}.idx")))
            yield task_of(path), "/".join(name.split("/")[1:-1]), manifest.file(f"{stem}.docs.parquet"), base, size
            base += size


def merge_places(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places [start, end) of the stream in order, those that meet as one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(set(places)):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def pieces_in(tokens: Iterable[Path], places: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """What stands at places of the stream, in its order, cut to them. tokens: manifests of tokenize.encode; places: of `merge_places`."""
    starts, ends = np.array(places, np.int64).reshape(-1, 2).T
    for shard, source, path, base, size in stream_files(tokens):
        if not ((starts < base + size) & (ends > base)).any():
            continue
        for batch in batches(path, ["id", "offset", "tokens"]):
            begins = base + batch.column("offset").to_numpy()
            stops = begins + batch.column("tokens").to_numpy()
            first, last = np.searchsorted(ends, begins, side="right"), np.searchsorted(starts, stops, side="left")
            for row in np.flatnonzero(first < last).tolist():
                for number in range(int(first[row]), int(last[row])):
                    low, high = max(int(starts[number]), int(begins[row])), min(int(ends[number]), int(stops[row]))
                    yield Piece(batch.column("id")[row].as_py(), shard, source, low, high)


def document_ids(tokens: Iterable[Path], places: Iterable[tuple[int, int]]) -> list[str]:
    """The ids of the documents that have tokens at any of the places [start, end) of the stream, in its order."""
    return list(dict.fromkeys(piece.document for piece in pieces_in(tokens, merge_places(places))))
