"""Documents of earlier corpora: what another run's `dedup.export` wrote, as documents of the highest priority.

An export has a shard's signals and shingle sets, and no text. Its shards get numbers above all of this run's, in the order of the folders,
so the steps of dedup read them like shards of their own; none of their documents is ever judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import document_numbers
from crawl2llm.formats.document_numbers import EARLIER, ZERO, Shingles
from crawl2llm.formats.documents import open_parquet, shard_of

# The shingle sets of an export: of every document, in the order of the signals.
SETS = pa.schema([("shingles", pa.list_(pa.field("element", pa.uint64(), nullable=False)))])
COMPARED_SETTINGS = ("shingle_words", "numbers", "bands", "rows", "seed")  # settings of signatures that can be compared
OLD_DEFAULTS = {"numbers": ZERO}  # settings of exports from before these keys


@dataclass(frozen=True)
class Shard(document_numbers.Shard):
    """A shard of an export, by its number here, with the file of its sets."""

    sets: Path


def earlier_shards(folders: Sequence[str], signatures: Sequence[Manifest] = ()) -> list[Shard]:
    """The shards of these exports. signatures: of this run, whose settings the exports must have.

    Raises InputError for a folder without an export, a damaged export, and one of other settings.
    """
    all_shards: list[Shard] = []
    for folder in folders:
        manifests = sorted(Path(folder).glob("*.manifest.json"))
        if not manifests:
            raise InputError(f"dedup.exact.earlier: {folder} has no manifest of dedup.export")
        for path in manifests:
            manifest = Manifest.read_unchecked(path)
            if manifest.step != "dedup.export":
                raise InputError(f"dedup.exact.earlier: {path} is a manifest of {manifest.step}, not of dedup.export")
            for fault in manifest.file_problems():
                raise InputError(f"dedup.exact.earlier: {fault}")
            for key in COMPARED_SETTINGS:
                stored = {**OLD_DEFAULTS, **manifest.summary}[key]
                expected = signatures[0].summary_part(key) if signatures else stored
                if stored != expected:
                    raise InputError(
                        f"dedup.exact.earlier: {folder} was made with dedup.signature.{key} {stored}, here it is {expected}: "
                        "use the settings of the export, or leave it out"
                    )
            name = f"{shard_of(path)}.parquet"
            number = EARLIER + len(all_shards)
            all_shards.append(
                Shard(number, manifest.file(name), manifest.summary["documents"], manifest.file(f"sets/{name}"))
            )
    return all_shards


def shingle_sets(path: Path, rows: Iterable[int]) -> Iterator[tuple[int, Shingles]]:
    """(row, its shingles) of these rows (ascending) of a file of SETS; reads the row groups that hold one."""
    remaining_rows = iter(rows)
    row = next(remaining_rows, None)
    with open_parquet(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if row is not None and row < end:
                lists = file.read_row_group(group).combine_chunks()["shingles"].chunk(0)
                values, ends = lists.values.to_numpy(), lists.offsets.to_numpy()
                while row is not None and row < end:
                    yield row, values[ends[row - start] : ends[row - start + 1]].copy()
                    row = next(remaining_rows, None)
            start = end
    if row is not None:
        raise InputError(f"{path} has no row {row}: the export was made again; run dedup.exact again")
