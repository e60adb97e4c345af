"""Seeds: documents of the training side of corpora that exist, or of files, chosen by hash and put in the order of a hash.

The texts go through files of their hashes on the disk, which are sorted one by one: memory holds one of at most 64.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.core import content_hash
from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import Writer, open_parquet, rows, shard_of, uniform_hash
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.settings import ExtractSettings
from crawl2llm.stages.ingest.text import JsonLinesReader, TextReader
from crawl2llm.stages.ingest.warc import RejectedRecord
from crawl2llm.stages.synthesize.prompts import Seed
from crawl2llm.stages.synthesize.settings import File, SeedSources
from crawl2llm.text.group_split import origin_of, synthesis_source

READERS = {"text": TextReader, "jsonl": JsonLinesReader, "parquet": ParquetReader}
COLUMNS = ("id", "text", "url", "metadata")
SEED = pa.schema([(name, pa.string()) for name in ("id", "text", "url", "origin")])
PIECE = 128 << 20  # bytes of text of a file that is sorted in memory
MOST_FILES = 64  # such files
Row = dict[str, Any]


def corpus_manifests(folder: str, where: str) -> list[Manifest]:
    """The manifests of corpus.write in a folder. Raises InputError, naming the key `where`, for a folder without, and damage."""
    try:
        manifests = [Manifest.read_unchecked(path) for path in content_hash.manifests_in(Path(folder))]
    except FileNotFoundError as error:
        raise InputError(f"{where}: {folder}: {error.strerror}") from None
    for manifest in manifests:
        if manifest.step != "corpus.write":
            raise InputError(f"{where}: {manifest.path} is a manifest of {manifest.step}, not of corpus.write")
        for fault in manifest.file_problems():
            raise InputError(f"{where}: {fault}")
    return manifests


class Seeds:
    """The seeds that a step's `seeds` names. where: that key, for errors. seed: of the choice and of the order.

    counts: documents that are there (`documents`), chosen ones (`chosen`), those left out because a model wrote them (`synthesized`) or
    because they are there twice (`repeated`), and records of files that are no document (`rejected`).
    """

    def __init__(self, settings: SeedSources, seed: int, where: str) -> None:
        self.settings, self.seed, self.where = settings, seed, where
        self.corpora = [
            manifest for folder in settings.corpus for manifest in corpus_manifests(folder, f"{where}.corpus")
        ]
        self.counts = Counter[str]()

    def text_bytes(self) -> int:
        """About how many bytes of text there are; decides only how many files they are sorted in."""
        corpus_bytes = sum(manifest.summary["train"]["bytes"] for manifest in self.corpora)
        return corpus_bytes + 4 * sum(
            path.stat().st_size for entry in self.settings.files for path, _ in self.paths_with_names(entry)
        )

    def paths_with_names(self, entry: File) -> list[tuple[Path, str]]:
        """(path, name below the entry's folder) of the files of an entry of `files`, as ingest.extract would name them."""
        root = Path(entry.path)
        return [
            (path, str(path.relative_to(root) if root.is_dir() else path.name))
            for path in content_hash.files_below(root)
        ]

    def documents(self, counts: Counter[str], columns: Sequence[str] = COLUMNS) -> Iterator[Row]:
        """Every document: of corpora those of the training side alone, with these columns."""
        for manifest in self.corpora:
            assert manifest.path is not None
            yield from rows(manifest.file(f"train/{shard_of(manifest.path)}.parquet"), [*columns])
        for entry in self.settings.files:
            read = READERS[entry.kind](entry, ExtractSettings())
            for path, name in self.paths_with_names(entry):
                for page in read(path, name):
                    if isinstance(page, RejectedRecord):
                        counts["rejected"] += 1
                        continue
                    metadata = json.dumps(page.metadata, ensure_ascii=False)
                    yield {"id": page.id, "text": page.text, "url": page.url, "metadata": metadata}

    def place_in_order(self, row: Row) -> float:
        """The place of a document in the order, from 0 to 1."""
        return uniform_hash(self.seed, row["id"], "seeds")

    def place_limit(self) -> float:
        """The place up to which documents are chosen: by the share, and by the number if there is one. Reads the ids."""
        share, number = self.settings.share, self.settings.number
        if number is None:
            return float(share)
        lowest: list[float] = []  # as a heap of their negatives
        chosen_places = set[float]()
        for row in self.documents(Counter(), ("id", "url", "metadata")):
            place = self.place_in_order(row)
            if place < share and place not in chosen_places and not synthesis_source(row):
                chosen_places.add(place)
                heapq.heappush(lowest, -place)
                if len(lowest) > number:
                    chosen_places.remove(-heapq.heappop(lowest))
        return math.nextafter(-lowest[0], 1.0) if len(lowest) == number else float(share)

    def write_seeds(self, folder: Path, count: Callable[[Seed], int]) -> tuple[list[Path], int]:
        """(files of the chosen seeds, in the order of the hash from one to the next; the sum of `count` over them, for progress)."""
        limit, total = self.place_limit(), 0
        number = min(MOST_FILES, max(1, math.ceil(self.text_bytes() * min(1.0, limit) / PIECE)))
        files = [folder / f"{at:02d}.parquet" for at in range(number)]
        progress = Progress(None, "documents looked at for seeds")
        with ExitStack() as stack:
            writers = [stack.enter_context(Writer(path, SEED)) for path in files]
            for row in self.documents(self.counts):
                self.counts["documents"] += 1
                progress.add()
                if synthesis_source(row):
                    self.counts["synthesized"] += 1
                elif (place := self.place_in_order(row)) < limit:
                    total += count(seed_of(row))
                    writers[min(int(place / limit * number), number - 1)].add(vars(seed_of(row)))
        return files, total

    def seeds_in_order(self, files: list[Path]) -> Iterator[Seed]:
        """The seeds of these files in the order of their places, each id once."""
        for path in files:
            with open_parquet(path) as file:
                table = file.read()
            names = table.column("id").to_pylist()
            order = sorted(range(len(names)), key=lambda at: (self.place_in_order({"id": names[at]}), names[at]))
            before = None
            for at in order:
                if names[at] == before:
                    self.counts["repeated"] += 1
                    continue
                before = names[at]
                self.counts["chosen"] += 1
                yield Seed(**table.slice(at, 1).to_pylist()[0])


def seed_of(row: Row) -> Seed:
    """A document as a seed."""
    return Seed(row["id"], row["text"], row["url"] or "", origin_of(row))
