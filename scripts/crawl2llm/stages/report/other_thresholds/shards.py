"""A shard's documents, and the tables of steps about them, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import GROUP, batches, data, opened

EXTRACTED, LABELLED, ENCODED = "ingest.extract", "language.score", "tokenize.encode"


class Tables:
    """The manifests that the program was given, by step: their folders say which. Those of a step that a run has not are not there."""

    def __init__(self, manifests: Sequence[Path]) -> None:
        self.paths: dict[str, list[Path]] = {}
        for path in manifests:
            folder = path.parent
            self.paths.setdefault(f"{folder.parent.name}.{folder.name}", []).append(path)
        self.shards = [path.name.removesuffix(".manifest.json") for path in self.of(EXTRACTED)]

    def of(self, step: str) -> list[Path]:
        """The manifests of a step, in order."""
        return sorted(self.paths.get(step, []))

    def manifest(self, step: str, shard: str) -> Path:
        """The manifest of a step that has the shard: its own, or that of the only task."""
        found = {path.name: path for path in self.of(step)}
        path = found.get(f"{shard}.manifest.json", found.get("manifest.json"))
        if path is None:
            raise InputError(f"--manifests has none of {step} for the shard {shard}")
        return path

    def table(self, step: str, shard: str) -> Path:
        """The Parquet file of a step with the shard's rows."""
        return data(self.manifest(step, shard), shard)

    def has(self, step: str) -> bool:
        """Whether the run has the step."""
        return step in self.paths


@dataclass
class Shard:
    """The documents of a shard, in their order. sources, labels: codes, (documents,), into the names beside them.

    labels are of language.score, "" where a document has none. sizes: bytes of text as it was extracted; tokens: those in the corpus,
    0 of a document that is not there. Both are empty where they are not asked for.
    """

    ids: pa.Array
    sources: np.ndarray
    source_names: list[str]
    labels: np.ndarray
    label_names: list[str]
    curated: np.ndarray
    sizes: np.ndarray
    tokens: np.ndarray

    def rows(self, path: Path) -> np.ndarray:
        """The place of each row of a table among the documents, (rows,)."""
        with opened(path) as file:
            ids = file.read(["id"])["id"]
        return self.places(ids, str(path))

    def places(self, ids: pa.ChunkedArray, name: str) -> np.ndarray:
        """The place of each id; InputError where one is no document of the shard."""
        found = pc.index_in(ids, value_set=self.ids)
        if found.null_count:
            raise InputError(
                f"{name} has {found.null_count} documents that the shard has not: results of different runs"
            )
        place: np.ndarray = found.to_numpy().astype(np.int64)
        return place


def coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """(code of each value, names) of a column of strings; null is ""."""
    found = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int64), found.dictionary.to_pylist()


def read(tables: Tables, shard: str, sizes: bool) -> Shard:
    """A shard's documents. sizes: whether bytes (which reads the texts, a row group at a time) and tokens are wanted."""
    path = tables.table(EXTRACTED, shard)
    with opened(path) as file:
        table = file.read(["id", "source", "curated"])
    ids = table["id"].combine_chunks()
    sources, source_names = coded(table["source"])
    labels, label_names = np.zeros(len(ids), np.int64), [""]
    found = Shard(
        ids, sources, source_names, labels, label_names,
        table["curated"].combine_chunks().to_numpy(zero_copy_only=False).astype(bool), np.zeros(0, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    if tables.has(LABELLED):
        with opened(tables.table(LABELLED, shard)) as file:
            labelled = file.read(["id", "language"])
        codes, names = coded(labelled["language"])
        found.labels[found.places(labelled["id"], "language.score")] = codes + 1
        found.label_names = ["", *names]
    if sizes:
        lengths = [pc.binary_length(batch.column("text")) for batch in batches(path, ["text"])]
        found.sizes = pa.chunked_array(lengths, pa.int32()).to_numpy().astype(np.int64)
        found.tokens = np.zeros(len(ids), np.int64)
        for name, file_ in encoded(tables, shard):
            with opened(file_) as file:
                table = file.read(["id", "tokens"])
            found.tokens[found.places(table["id"], name)] = table["tokens"].to_numpy()
    return found


def encoded(tables: Tables, shard: str) -> Iterator[tuple[str, Path]]:
    """(name, file) of the lists of a shard's encoded documents, one for each split and source."""
    if tables.has(ENCODED):
        made = Manifest.read(tables.manifest(ENCODED, shard))
        for name in sorted(made.files):
            if name.endswith(".docs.parquet"):
                yield name, made.file(name)


def together(paths: Sequence[Path], columns: Sequence[list[str] | None]) -> Iterator[list[pa.RecordBatch]]:
    """The rows of tables that list the same documents in the same order, GROUP at most at a time, one batch of each table.

    Raises InputError where they do not.
    """
    readers = [batches(path, wanted, GROUP) for path, wanted in zip(paths, columns, strict=True)]
    held: list[pa.RecordBatch | None] = [None] * len(readers)
    while True:
        for number, reader in enumerate(readers):
            batch = held[number]
            while batch is None or not len(batch):
                if (batch := next(reader, None)) is None:
                    break
            held[number] = batch
        there = [batch for batch in held if batch is not None]
        if not there:
            return
        same = min(map(len, there))
        out = [batch.slice(0, same) for batch in there]
        if len(there) < len(held) or any(not batch.column("id").equals(out[0].column("id")) for batch in out[1:]):
            raise InputError(f"{paths[0]} and {paths[-1]} do not list the same documents: results of different runs")
        yield out
        held = [batch.slice(same) for batch in there]
