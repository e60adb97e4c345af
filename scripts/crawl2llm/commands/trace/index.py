"""An index of the training text by n-grams of words, built when it is asked for, so that `who-wrote` reads few documents of many.

Of every document the fingerprints of winnowing are kept (Schleimer, Wilkerson and Aiken 2003, doi:10.1145/872757.872770): of each WINDOW
n-grams in a row the one with the least hash. Two texts that share SURE words in a row share such a window, and so its fingerprint: no
run of that length is missed. Postings lie in PARTS files by the hash's upper bits, each sorted; a question reads a few pages of them.
Memory: one document's words, and one part while it is sorted.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import pretty, write_atomically
from crawl2llm.filters.decontaminate.words import words
from crawl2llm.filters.substrings.words import Words, grams, least
from crawl2llm.formats.documents import count, opened, rows
from crawl2llm.formats.external_partition import Spill, by_hash

WORDS, WINDOW = 5, 4  # of an n-gram; n-grams of which one is kept
SURE = WORDS + WINDOW - 1  # words in a row that are always found
PARTS = 256
POSTING = np.dtype([("hash", "u8"), ("document", "u4")])  # document: its number over all files, in their order
MOST = 2_000  # documents that are read for one question
FORMAT = 2
Hashes = npt.NDArray[np.uint64]
_known = Words()


def fingerprints(text: str) -> Hashes:
    """The distinct fingerprints of a text, sorted; none of one with fewer words than SURE."""
    found = [_known[word.decode("utf-8", "surrogatepass")] for word in words(text)]
    if len(found) < SURE:
        return np.zeros(0, np.uint64)
    return np.unique(least(grams(np.array(found, np.uint64), WORDS), WINDOW))


def build(folder: Path, files: Sequence[Path], mark: str) -> None:
    """Write the index of files of documents in place of what is in `folder`. mark: what tells their content."""
    made = folder.with_name(f"{folder.name}.part")
    for old in (made, folder):
        shutil.rmtree(old, ignore_errors=True)
    spill = Spill(made / "spilled", PARTS, POSTING)
    numbers = [count(path) for path in files]
    progress, number = Progress(sum(numbers), "documents"), 0
    for path in files:
        for row in rows(path, ["text"]):
            found = np.empty(len(hashes := fingerprints(row["text"])), POSTING)
            found["hash"], found["document"] = hashes, number
            spill.add(by_hash(hashes, PARTS), found)
            number += 1
            progress.add()
    postings = []
    for part in range(PARTS):
        found = np.sort(spill.part(part), order=["hash", "document"])
        for key in ("hash", "document") if len(found) else ():
            found[key].tofile(made / f"{part:03d}.{key}")
        postings.append(len(found))
        (made / "spilled" / str(part)).unlink(missing_ok=True)
    shutil.rmtree(made / "spilled")
    write_atomically(
        made / "index.json", pretty({"format": FORMAT, "of": mark, "documents": numbers, "postings": postings})
    )
    made.replace(folder)


@dataclass(frozen=True)
class Index:
    """An index that was built of `files`."""

    folder: Path
    files: list[Path]
    ends: list[int]  # of each file: the number of the document after its last

    def documents(self, hashes: Hashes) -> Counter[int]:
        """Document → how many of the fingerprints it has."""
        found: Counter[int] = Counter()
        parts = by_hash(hashes, PARTS)
        for part in np.unique(parts).tolist():
            if not (self.folder / f"{part:03d}.hash").exists():
                continue  # no document has one of them
            keys = np.memmap(self.folder / f"{part:03d}.hash", "<u8", "r")
            of = np.memmap(self.folder / f"{part:03d}.document", "<u4", "r")
            wanted = hashes[parts == part]
            for first, last in zip(np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right"), strict=True):
                found.update(of[first:last].tolist())
        return found

    def rows(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The documents of these numbers, in their order in the files; reads the row groups that hold one."""
        wanted = np.sort(np.array(numbers, np.int64))
        for path, begin, end in zip(self.files, [0, *self.ends], self.ends, strict=False):
            inside = wanted[np.searchsorted(wanted, begin) : np.searchsorted(wanted, end)] - begin
            if not len(inside):
                continue
            with opened(path) as file:
                first = 0
                for group in range(file.num_row_groups):
                    last = first + file.metadata.row_group(group).num_rows
                    some = inside[(inside >= first) & (inside < last)] - first
                    if len(some):
                        yield from file.read_row_group(group, columns=list(columns)).take(some).to_pylist()
                    first = last


def there(folder: Path, files: list[Path], mark: str) -> Index | None:
    """The index in `folder`; None where there is none, one of other text, or one of which something is lacking, as after a broken copy."""
    try:
        told = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if (told["format"], told["of"]) != (FORMAT, mark):
            return None
        for part, number in enumerate(told["postings"]):
            for key in ("hash", "document") if number else ():
                if (folder / f"{part:03d}.{key}").stat().st_size != number * POSTING[key].itemsize:
                    return None
        return Index(folder, files, list(accumulate(told["documents"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None
