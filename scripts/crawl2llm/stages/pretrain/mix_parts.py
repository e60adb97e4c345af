"""Which tokens of the training stream are of which group: spans, in the stream's order, so that no text is written again.

A span is a run of whole documents of one group that lie behind each other in the stream (`data.open_split`). Groups are sources, languages
(language.score), buckets of quality (quality.score) or topics (topics.score), of documents of the training split alone. Memory: the ids
of one shard, and the spans of the largest group, 16 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.external_partition import Spill
from crawl2llm.training.mix_shares import SECTION, Group
from crawl2llm.training.stream_documents import stream_files

SPAN = np.dtype([("start", "<i8"), ("tokens", "<i8")])
MOST = 1_000  # groups: each has its line on the page, and its count in a step's row
UNKNOWN, UNSCORED = "unknown", "unscored"  # documents without a language or topic, or without a score
BINS = 1 << 16  # of the histogram that the borders of quality's buckets are found by

Names = Callable[[str, pa.Array], pa.Array]  # of a shard and ids of documents: the group of each


class Parts:
    """The spans of every group, on the disk while they are many. folder: for them, which whoever made it removes."""

    def __init__(self, folder: Path) -> None:
        self.codes: dict[str, int] = {}
        self.spill = Spill(folder, MOST, SPAN)

    def add(self, names: Sequence[str], starts: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        """Add documents that follow each other in the stream, of a group each; neighbours of one group become one span.

        Raises InputError for more groups than MOST.
        """
        codes = np.array([self.codes.setdefault(name, len(self.codes)) for name in names], np.int64)
        if len(self.codes) > MOST:
            raise InputError(
                f"{SECTION}.by gives more than {MOST:,} groups, among them {', '.join(list(self.codes)[:3])}"
            )
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        if not len(first):
            return
        spans = np.empty(len(first), SPAN)
        spans["start"], spans["tokens"] = starts[first], np.add.reduceat(tokens, first)
        self.spill.add(codes[first], spans)

    def write(self, path: Path, context: int) -> tuple[list[Group], list[int]]:
        """Write the spans, the groups by name: int64 [2, spans], the start of each in the stream and in the text of its group.

        Returns the groups and how many spans each has.
        """
        names = sorted(self.codes)
        # Twice over the parts: a file's shape stands before its content.
        sizes = [len(self.spill.part(self.codes[name])) for name in names]
        out = np.lib.format.open_memmap(path, "w+", np.dtype("<i8"), (2, sum(sizes)))
        groups, filled = [], 0
        for name, size in zip(names, sizes, strict=True):
            spans = self.spill.part(self.codes[name])
            ends = np.cumsum(spans["tokens"])
            out[0, filled : filled + size], out[1, filled : filled + size] = spans["start"], ends - spans["tokens"]
            groups.append(Group(name, int(ends[-1]), max(0, (int(ends[-1]) - 1) // context)))
            filled += size
        out.flush()
        return groups, sizes


def add_by_source(tokens: Sequence[Path], parts: Parts) -> None:
    """Add every file as one span of its source: no document is looked at."""
    for _, source, _, base, size in stream_files(tokens):
        parts.add([source], np.array([base]), np.array([size]))


def add_by_document(tokens: Sequence[Path], parts: Parts, names: Names) -> None:
    """Add every document with the group that `names` gives it."""
    for shard, _, documents, base, _ in stream_files(tokens):
        table = pq.read_table(documents, columns=["id", "offset", "tokens"])
        groups = names(shard, table["id"].combine_chunks()).to_pylist()
        parts.add(groups, base + table["offset"].to_numpy(), table["tokens"].to_numpy())


def column_lookup(sidecars: Sequence[Path], name: str) -> Callable[[str, pa.Array], pa.Array]:
    """What gives a column of a sidecar for ids of a shard; null for an id that is not there. sidecars: manifests, one a shard."""
    sidecar_by_shard = {task_of(path): path for path in sidecars}

    def lookup(shard: str, ids: pa.Array) -> pa.Array:
        if shard not in sidecar_by_shard:
            raise InputError(f"shard {shard} has tokens and no signals among {', '.join(map(str, sidecars[:2]))}")
        table = pq.read_table(Manifest.read(sidecar_by_shard[shard]).file(f"{shard}.parquet"), columns=["id", name])
        return table[name].combine_chunks().take(pc.index_in(ids, value_set=table["id"].combine_chunks()))

    return lookup


def by_language(sidecars: Sequence[Path]) -> Names:
    """The language that language.score found in each document. sidecars: its manifests."""
    languages = column_lookup(sidecars, "language")
    return lambda shard, ids: pc.fill_null(languages(shard, ids), UNKNOWN)


def by_topic(sidecars: Sequence[Path]) -> Names:
    """The topic that topics.score found in each document. sidecars: its manifests."""
    topics = column_lookup(sidecars, "topic")
    return lambda shard, ids: pc.fill_null(topics(shard, ids), UNKNOWN)


def by_quality(tokens: Sequence[Path], sidecars: Sequence[Path], buckets: int) -> tuple[Names, list[float]]:
    """(`q1`, the lowest, to `q<buckets>` of each document, the scores between them). sidecars: manifests of quality.score.

    A bucket has as many tokens of the training text as another, as far as scores differ: they are told apart in steps of 1/BINS. A
    document whose score is a border is in the bucket above.
    """
    scores, histogram = column_lookup(sidecars, "score"), np.zeros(BINS)

    def bin_numbers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        return np.clip((np.nan_to_num(values) * BINS).astype(np.int64), 0, BINS - 1)

    for shard, _, documents, _, _ in stream_files(tokens):
        table = pq.read_table(documents, columns=["id", "tokens"])
        qualities = scores(shard, table["id"].combine_chunks()).to_numpy(zero_copy_only=False).astype(float)
        scored = ~np.isnan(qualities)
        histogram += np.bincount(bin_numbers(qualities[scored]), table["tokens"].to_numpy()[scored], minlength=BINS)
    below = np.cumsum(histogram)
    targets = below[-1] * np.arange(1, buckets) / buckets
    borders = np.searchsorted(below, targets, side="left") + 1  # the first bin that is above
    labels = pa.array([*(f"q{number}" for number in range(1, buckets + 1)), UNSCORED])

    def bucket_names(shard: str, ids: pa.Array) -> pa.Array:
        values = scores(shard, ids).to_numpy(zero_copy_only=False).astype(float)
        place = np.searchsorted(borders, bin_numbers(values), side="right")
        return labels.take(pa.array(np.where(np.isnan(values), buckets, place)))

    return bucket_names, (borders / BINS).tolist()
