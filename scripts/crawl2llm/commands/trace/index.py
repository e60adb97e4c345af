"""An index of the training text by n-grams of words, built when it is asked for, so that `who-wrote` reads few documents of many.

Of every document the fingerprints of winnowing are kept (Schleimer, Wilkerson and Aiken 2003, doi:10.1145/872757.872770): of each WINDOW
n-grams in a row the one with the least hash. Two texts that share SURE_WORDS words in a row share such a window, and so its fingerprint: no
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
from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.filters.decontaminate.words import split_words
from crawl2llm.filters.substrings.words import HashCache, ngram_hashes, sliding_minimum
from crawl2llm.formats.documents import count_rows, open_parquet, rows
from crawl2llm.formats.external_partition import Spill, part_by_hash

NGRAM_WORDS, WINDOW = 5, 4  # of an n-gram; n-grams of which one is kept
SURE_WORDS = NGRAM_WORDS + WINDOW - 1  # words in a row that are always found
PARTS = 256
POSTING = np.dtype([("hash", "u8"), ("document", "u4")])  # document: its number over all files, in their order
MOST_DOCUMENTS = 2_000  # documents that are read for one question
FORMAT = 2
Hashes = npt.NDArray[np.uint64]
_word_hashes = HashCache()


def text_fingerprints(text: str) -> Hashes:
    """The distinct fingerprints of a text, sorted; none of one with fewer words than SURE_WORDS."""
    word_hashes = [_word_hashes[word.decode("utf-8", "surrogatepass")] for word in split_words(text)]
    if len(word_hashes) < SURE_WORDS:
        return np.zeros(0, np.uint64)
    return np.unique(sliding_minimum(ngram_hashes(np.array(word_hashes, np.uint64), NGRAM_WORDS), WINDOW))


def build_index(folder: Path, files: Sequence[Path], mark: str) -> None:
    """Write the index of files of documents in place of what is in `folder`. mark: what tells their content."""
    new_folder = folder.with_name(f"{folder.name}.part")
    for old in (new_folder, folder):
        shutil.rmtree(old, ignore_errors=True)
    spill = Spill(new_folder / "spilled", PARTS, POSTING)
    numbers = [count_rows(path) for path in files]
    progress, number = Progress(sum(numbers), "documents"), 0
    for path in files:
        for row in rows(path, ["text"]):
            entries = np.empty(len(hashes := text_fingerprints(row["text"])), POSTING)
            entries["hash"], entries["document"] = hashes, number
            spill.add(part_by_hash(hashes, PARTS), entries)
            number += 1
            progress.add()
    postings = []
    for part in range(PARTS):
        entries = np.sort(spill.part(part), order=["hash", "document"])
        for key in ("hash", "document") if len(entries) else ():
            entries[key].tofile(new_folder / f"{part:03d}.{key}")
        postings.append(len(entries))
        (new_folder / "spilled" / str(part)).unlink(missing_ok=True)
    shutil.rmtree(new_folder / "spilled")
    write_atomically(
        new_folder / "index.json",
        pretty_json({"format": FORMAT, "of": mark, "documents": numbers, "postings": postings}),
    )
    new_folder.replace(folder)


@dataclass(frozen=True)
class Index:
    """An index that was built of `files`."""

    folder: Path
    files: list[Path]
    ends: list[int]  # of each file: the number of the document after its last

    def count_shared(self, hashes: Hashes) -> Counter[int]:
        """Document → how many of the fingerprints it has."""
        shared: Counter[int] = Counter()
        parts = part_by_hash(hashes, PARTS)
        for part in np.unique(parts).tolist():
            if not (self.folder / f"{part:03d}.hash").exists():
                continue  # no document has one of them
            keys = np.memmap(self.folder / f"{part:03d}.hash", "<u8", "r")
            document_numbers = np.memmap(self.folder / f"{part:03d}.document", "<u4", "r")
            part_hashes = hashes[parts == part]
            for first, last in zip(
                np.searchsorted(keys, part_hashes), np.searchsorted(keys, part_hashes, "right"), strict=True
            ):
                shared.update(document_numbers[first:last].tolist())
        return shared

    def document_rows(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The documents of these numbers, in their order in the files; reads the row groups that hold one."""
        sorted_numbers = np.sort(np.array(numbers, np.int64))
        for path, begin, end in zip(self.files, [0, *self.ends], self.ends, strict=False):
            first_inside, end_inside = np.searchsorted(sorted_numbers, (begin, end))
            numbers_inside = sorted_numbers[first_inside:end_inside] - begin
            if not len(numbers_inside):
                continue
            with open_parquet(path) as file:
                first = 0
                for group in range(file.num_row_groups):
                    last = first + file.metadata.row_group(group).num_rows
                    group_rows = numbers_inside[(numbers_inside >= first) & (numbers_inside < last)] - first
                    if len(group_rows):
                        yield from file.read_row_group(group, columns=list(columns)).take(group_rows).to_pylist()
                    first = last


def open_index(folder: Path, files: list[Path], mark: str) -> Index | None:
    """The index in `folder`; None if there is none, one of other text, or one of which something is lacking, as after a broken copy."""
    try:
        facts = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if (facts["format"], facts["of"]) != (FORMAT, mark):
            return None
        for part, number in enumerate(facts["postings"]):
            for key in ("hash", "document") if number else ():
                if (folder / f"{part:03d}.{key}").stat().st_size != number * POSTING[key].itemsize:
                    return None
        return Index(folder, files, list(accumulate(facts["documents"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None
