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
from crawl2llm.formats.documents import GROUP, batches, open_parquet, parquet_file

EXTRACT_STEP, LANGUAGE_STEP, ENCODE_STEP = "ingest.extract", "language.score", "tokenize.encode"


class Tables:
    """The manifests that the program was given, by step: their folders say which. Those of a step that a run has not are not there."""

    def __init__(self, manifests: Sequence[Path]) -> None:
        self.paths: dict[str, list[Path]] = {}
        for path in manifests:
            folder = path.parent
            self.paths.setdefault(f"{folder.parent.name}.{folder.name}", []).append(path)
        self.shards = [path.name.removesuffix(".manifest.json") for path in self.manifests_of(EXTRACT_STEP)]

    def manifests_of(self, step: str) -> list[Path]:
        """The manifests of a step, in order."""
        return sorted(self.paths.get(step, []))

    def manifest(self, step: str, shard: str) -> Path:
        """The manifest of a step that has the shard: its own, or that of the only task."""
        paths_by_name = {path.name: path for path in self.manifests_of(step)}
        path = paths_by_name.get(f"{shard}.manifest.json", paths_by_name.get("manifest.json"))
        if path is None:
            raise InputError(f"--manifests has no manifest of {step} for the shard {shard}")
        return path

    def table(self, step: str, shard: str) -> Path:
        """The Parquet file of a step with the shard's rows."""
        return parquet_file(self.manifest(step, shard), shard)

    def has(self, step: str) -> bool:
        """Whether the run has the step."""
        return step in self.paths


@dataclass
class Shard:
    """The documents of a shard, in their order. sources, labels: codes, (documents,), into the names beside them.

    labels are of language.score, "" if a document has none. sizes: bytes of text as it was extracted; tokens: those in the corpus,
    0 of a document that is not there. Both are empty if they are not asked for.
    """

    ids: pa.Array
    sources: np.ndarray
    source_names: list[str]
    labels: np.ndarray
    label_names: list[str]
    curated: np.ndarray
    sizes: np.ndarray
    tokens: np.ndarray

    def row_places(self, path: Path) -> np.ndarray:
        """The place of each row of a table among the documents, (rows,)."""
        with open_parquet(path) as file:
            ids = file.read(["id"])["id"]
        return self.id_places(ids, str(path))

    def id_places(self, ids: pa.ChunkedArray, name: str) -> np.ndarray:
        """The place of each id; InputError if one is no document of the shard."""
        indices = pc.index_in(ids, value_set=self.ids)
        if indices.null_count:
            raise InputError(
                f"{name} has {indices.null_count} documents that the shard has not: results of different runs"
            )
        place: np.ndarray = indices.to_numpy().astype(np.int64)
        return place


def dictionary_codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """(code of each value, names) of a column of strings; null is ""."""
    dictionary = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return dictionary.indices.to_numpy(zero_copy_only=False).astype(np.int64), dictionary.dictionary.to_pylist()


def read_shard(tables: Tables, shard: str, sizes: bool) -> Shard:
    """A shard's documents. sizes: whether bytes (which reads the texts, a row group at a time) and tokens are wanted."""
    path = tables.table(EXTRACT_STEP, shard)
    with open_parquet(path) as file:
        table = file.read(["id", "source", "curated"])
    ids = table["id"].combine_chunks()
    sources, source_names = dictionary_codes(table["source"])
    labels, label_names = np.zeros(len(ids), np.int64), [""]
    documents = Shard(
        ids, sources, source_names, labels, label_names,
        table["curated"].combine_chunks().to_numpy(zero_copy_only=False).astype(bool), np.zeros(0, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    if tables.has(LANGUAGE_STEP):
        with open_parquet(tables.table(LANGUAGE_STEP, shard)) as file:
            labelled = file.read(["id", "language"])
        codes, names = dictionary_codes(labelled["language"])
        documents.labels[documents.id_places(labelled["id"], "language.score")] = codes + 1
        documents.label_names = ["", *names]
    if sizes:
        lengths = [pc.binary_length(batch.column("text")) for batch in batches(path, ["text"])]
        documents.sizes = pa.chunked_array(lengths, pa.int32()).to_numpy().astype(np.int64)
        documents.tokens = np.zeros(len(ids), np.int64)
        for name, file_ in encoded_lists(tables, shard):
            with open_parquet(file_) as file:
                table = file.read(["id", "tokens"])
            documents.tokens[documents.id_places(table["id"], name)] = table["tokens"].to_numpy()
    return documents


def encoded_lists(tables: Tables, shard: str) -> Iterator[tuple[str, Path]]:
    """(name, file) of the lists of a shard's encoded documents, one for each split and source."""
    if tables.has(ENCODE_STEP):
        manifest = Manifest.read(tables.manifest(ENCODE_STEP, shard))
        for name in sorted(manifest.files):
            if name.endswith(".docs.parquet"):
                yield name, manifest.file(name)


def aligned_batches(paths: Sequence[Path], columns: Sequence[list[str] | None]) -> Iterator[list[pa.RecordBatch]]:
    """The rows of tables that list the same documents in the same order, GROUP at most at a time, one batch of each table.

    Raises InputError if they do not.
    """
    readers = [batches(path, names, GROUP) for path, names in zip(paths, columns, strict=True)]
    pending: list[pa.RecordBatch | None] = [None] * len(readers)
    while True:
        for number, reader in enumerate(readers):
            batch = pending[number]
            while batch is None or not len(batch):
                if (batch := next(reader, None)) is None:
                    break
            pending[number] = batch
        present = [batch for batch in pending if batch is not None]
        if not present:
            return
        length = min(map(len, present))
        out = [batch.slice(0, length) for batch in present]
        if len(present) < len(pending) or any(not batch.column("id").equals(out[0].column("id")) for batch in out[1:]):
            raise InputError(f"{paths[0]} and {paths[-1]} do not list the same documents: results of different runs")
        yield out
        pending = [batch.slice(length) for batch in present]
