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
from crawl2llm.formats.documents import opened, shard_of

# The shingle sets of an export: of every document, in the order of the signals.
SETS = pa.schema([("shingles", pa.list_(pa.field("element", pa.uint64(), nullable=False)))])
AGREE = ("shingle_words", "numbers", "bands", "rows", "seed")  # settings of signatures that can be compared
OLDER = {"numbers": ZERO}  # settings of exports from before these keys


@dataclass(frozen=True)
class Shard(document_numbers.Shard):
    """A shard of an export, by its number here, with the file of its sets."""

    sets: Path


def shards(folders: Sequence[str], signatures: Sequence[Manifest] = ()) -> list[Shard]:
    """The shards of these exports. signatures: of this run, whose settings the exports must have.

    Raises InputError for a folder without an export, a damaged export, and one of other settings.
    """
    found: list[Shard] = []
    for folder in folders:
        manifests = sorted(Path(folder).glob("*.manifest.json"))
        if not manifests:
            raise InputError(f"dedup.exact.earlier: {folder} has no manifest of dedup.export")
        for path in manifests:
            made = Manifest.parse(path)
            if made.step != "dedup.export":
                raise InputError(f"dedup.exact.earlier: {path} is a manifest of {made.step}, not of dedup.export")
            for fault in made.damage():
                raise InputError(f"dedup.exact.earlier: {fault}")
            for key in AGREE:
                there = {**OLDER, **made.summary}[key]
                here = signatures[0].part(key) if signatures else there
                if there != here:
                    raise InputError(
                        f"dedup.exact.earlier: {folder} was made with dedup.signature.{key} {there}, here it is {here}: "
                        "use the settings of the export, or leave it out"
                    )
            name = f"{shard_of(path)}.parquet"
            number = EARLIER + len(found)
            found.append(Shard(number, made.file(name), made.summary["documents"], made.file(f"sets/{name}")))
    return found


def sets(path: Path, rows: Iterable[int]) -> Iterator[tuple[int, Shingles]]:
    """(row, its shingles) of these rows (ascending) of a file of SETS; reads the row groups that hold one."""
    wanted = iter(rows)
    row = next(wanted, None)
    with opened(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if row is not None and row < end:
                lists = file.read_row_group(group).combine_chunks()["shingles"].chunk(0)
                values, ends = lists.values.to_numpy(), lists.offsets.to_numpy()
                while row is not None and row < end:
                    yield row, values[ends[row - start] : ends[row - start + 1]].copy()
                    row = next(wanted, None)
            start = end
    if row is not None:
        raise InputError(f"{path} has no row {row}: the export was made again; run dedup.exact again")
