"""Rows dealt out to parts, so that each part can be sorted by itself: in memory while they are few, else in one file a part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

HELD_BYTES = 1 << 26  # of rows that wait in memory until they are written


class Spill:
    """Rows of one type in `parts` parts, each in the order in which its rows came.

    folder: empty or not there yet; it holds the files, and whoever made it removes them.
    """

    def __init__(self, folder: Path, parts: int, kind: npt.DTypeLike, held_bytes: int = HELD_BYTES) -> None:
        self.folder, self.parts, self.kind, self.most = folder, parts, np.dtype(kind), held_bytes
        self.waiting: list[list[npt.NDArray]] = [[] for _ in range(parts)]
        self.bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, part: npt.NDArray[np.integer], rows: npt.NDArray) -> None:
        """Add rows, each to its part, (rows,)."""
        if not len(rows):
            return
        if self.parts == 1:
            self.waiting[0].append(rows)
        else:
            order = np.argsort(part, kind="stable")
            part, rows = part[order], rows[order]
            bounds = np.flatnonzero(np.diff(part, prepend=-1)).tolist()
            for start, end in zip(bounds, [*bounds[1:], len(rows)], strict=True):
                self.waiting[int(part[start])].append(rows[start:end])
        self.bytes += rows.nbytes
        if self.bytes > self.most:
            self._write_waiting()

    def part(self, number: int) -> npt.NDArray:
        """All rows of a part."""
        path = self.folder / str(number)
        written = [np.fromfile(path, self.kind)] if path.exists() else []
        return np.concatenate([np.zeros(0, self.kind), *written, *self.waiting[number]])

    def _write_waiting(self) -> None:
        for number, rows in enumerate(self.waiting):
            if rows:
                # One file open at a time: there may be more parts than a process may have files.
                with (self.folder / str(number)).open("ab") as file:
                    np.concatenate(rows).tofile(file)
        self.waiting, self.bytes = [[] for _ in range(self.parts)], 0


def count_parts(rows: int, most: int) -> int:
    """Into how many parts so many rows are dealt out by a hash, so that each has about `most` at most."""
    return max(1, -(-rows // most))


def part_by_hash(hashes: npt.NDArray[np.uint64], parts: int) -> npt.NDArray[np.int64]:
    """The part of each hash: ranges of equal width, in order."""
    return ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
