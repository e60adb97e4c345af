"""Documents made from real ones, with near-duplicates of known similarity: what benchmarks/scale.py runs on.

A document is a real page whose tokens all get the document's own letters: `house` is `houseqxkzb`. So lengths and repetition are those of
real pages, and no two documents share a shingle. Then some documents are copies of another one (`EXACT`), or copies whose last tokens have
other letters (`NEAR`), as many as the wanted similarity asks for; of each such pair the similarity is computed from the texts. Every choice
is a hash of the document's number, so that any number of shards holds the same documents.

Writes what dedup reads, `documents/` and `verdicts/` (all kept), and `planted.parquet`: `document, original, similarity` of every pair.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import xxhash

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer, rows, uniform_hash
from crawl2llm.text.shingles import jaccard, normalise, shingle_set

K = 5  # words of a shingle
NEAR, EXACT = 0.22, 0.03  # shares of the documents
LEAST, MOST = 50, 5000  # tokens of a page that is used
PLANTED = pa.schema([("document", pa.string()), ("original", pa.string()), ("similarity", pa.float64())])


def letters(number: int) -> str:
    """A document's own letters: its number, in base 26, 5 of them."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(5))


def identity(number: int) -> str:
    """A document's id."""
    return xxhash.xxh3_128_hexdigest(f"planted {number}".encode())


class Planted:
    """Documents 0, 1, 2 … made of these pages (their tokens)."""

    def __init__(self, pages: list[list[str]]) -> None:
        self.pages = pages

    def original(self, number: int) -> int | None:
        """The document that this one is a copy of; None of one that is no copy."""
        if number == 0 or uniform_hash(0, str(number), "kind") >= NEAR + EXACT:
            return None
        found = int(uniform_hash(0, str(number), "original") * number)
        while found and uniform_hash(0, str(found), "kind") < NEAR + EXACT:
            found -= 1
        return found

    def page(self, number: int) -> list[str]:
        return self.pages[int(uniform_hash(0, str(number), "page") * len(self.pages))]

    def text(self, number: int) -> str:
        """A document's text."""
        original = self.original(number)
        words = self.page(number if original is None else original)
        own, other = letters(number), letters(number if original is None else original)
        replaced = 0
        if original is not None and uniform_hash(0, str(number), "kind") < NEAR:
            # Of n shingles each text has, r + 4 words replaced at the end leave n − r: similarity (n − r) / (n + r).
            similarity, count = 0.5 + uniform_hash(0, str(number), "similarity") / 2, len(words) - K + 1
            replaced = round(count * (1 - similarity) / (1 + similarity))
        kept = len(words) - replaced
        parts = [word + other for word in words[:kept]] + [word + own for word in words[kept:]]
        return " ".join(parts)


def tokens(paths: list[Path]) -> list[list[str]]:
    """The tokens of the pages that are neither too short nor too long."""
    found = [normalise(row["text"]).decode().split() for path in paths for row in rows(path, ["text"])]
    return [page for page in found if LEAST <= len(page) <= MOST]


def write(made: Planted, count: int, shards: int, folder: Path) -> None:
    """Write `count` documents in `shards` shards, their verdicts, and the pairs."""
    files = []
    with Writer(folder / "planted.parquet", PLANTED) as pairs:
        for shard in range(shards):
            name = f"{shard:05d}"
            names = []
            with Writer(folder / "documents" / f"{name}.parquet", DOCUMENT) as writer:
                for number in range(shard, count, shards):
                    names.append(identity(number))
                    text = made.text(number)
                    writer.add({"id": names[-1], "text": text, "source": "planted", "curated": False})
                    if (original := made.original(number)) is not None:
                        similarity = jaccard(shingle_set(text, K), shingle_set(made.text(original), K))
                        pairs.add({"document": names[-1], "original": identity(original), "similarity": similarity})
            Manifest("ingest.extract", "planted").write(folder / "documents" / f"{name}.manifest.json", [writer.path])
            with Writer(folder / "verdicts" / f"{name}.parquet", VERDICT) as writer:
                for one in names:
                    writer.add({"id": one, "kept": True, "rules": []})
            files.append(writer.path)
    Manifest("heuristics.select", "planted").write(folder / "verdicts" / "manifest.json", files)


def make(pages: list[Path], count: int, shards: int, folder: Path) -> None:
    """Write documents made from these Parquet files with a column `text`: see `write`."""
    write(Planted(tokens(pages)), count, shards, folder)
