"""Documents, signals and verdicts as Parquet: one schema each, the same bytes every time, bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from crawl2llm.core.manifest import Manifest, ManifestError

BATCH = 1024  # documents held in memory at a time, and rows of a row group of texts
# Of all their columns, held at a time: where documents are long, a row group of texts has fewer rows.
CHARACTERS = 1 << 25
GROUP = 65_536  # rows of a row group of signals, verdicts and other tables beside the texts
IDS = ("id", "duplicate_of")  # columns without a dictionary, as are numbers with a fraction: their values hardly repeat

SPLITS = ("train", "validation")  # of the corpus

DOCUMENT = pa.schema(
    [
        ("id", pa.string()),  # xxh3-128 in hex of where it came from
        ("text", pa.string()),
        ("source", pa.string()),  # name of the source in the config
        ("curated", pa.bool_()),  # whether that source is curated
        ("url", pa.string()),
        ("date", pa.string()),  # ISO 8601 of the capture, or null
        ("metadata", pa.string()),  # JSON: title, content type, charset, file, record id
    ]
)

VERDICT = pa.schema(
    [
        ("id", pa.string()),
        ("kept", pa.bool_()),
        ("rule", pa.string()),  # the first rule that drops it, or null
        ("value", pa.float64()),  # what was measured under that rule; null for a rule that compares no number
        ("threshold", pa.float64()),  # what it was compared with
        ("detail", pa.string()),  # for a rule that compares no number: what was found
        ("rules", pa.list_(pa.string())),  # all rules that would drop it, that rule first
        ("duplicate_of", pa.string()),  # for a duplicate: the kept document
        ("similarity", pa.float64()),  # and the measured Jaccard similarity
    ]
)


def document_id(*origin: str) -> str:
    """xxh3-128 in hex of a document's origin.

    (record id, URL) of a WARC record; (source, file, offset) of one that lacks either; (source, file, member, row) of another.
    """
    # So that no two origins are one string: the separator within a part is written otherwise.
    parts = (part.replace("\x1e", "\x1e0").replace("\x1f", "\x1e1") for part in origin)
    return xxhash.xxh3_128_hexdigest("\x1f".join(parts).encode())


# What of a verdict file others read: whether it keeps a document; and for the table of dropped documents also why, but not by how much.
# The thresholds stand in it too, and an edit of one may move no document: core/manifest.py, `file`.
VERDICTS = "verdicts"  # in the summary: shard → name of these columns → their digest
KEPT, REASON = "kept", "reason"
VERDICT_COLUMNS = {
    KEPT: ("id", "kept"),
    REASON: ("id", "kept", "rule", "value", "detail", "duplicate_of", "similarity"),
}


def verdict_digests(path: Path) -> dict[str, str]:
    """Digests of the columns of READ of a verdict file."""
    digests = {}
    with open_parquet(path) as file:
        for name, columns in VERDICT_COLUMNS.items():
            state = xxhash.xxh3_128()
            for group in range(file.num_row_groups):
                sink = pa.BufferOutputStream()
                table = file.read_row_group(group, list(columns))
                pq.write_table(table, sink, compression="NONE", use_dictionary=False, write_statistics=False)
                state.update(sink.getvalue())
            digests[name] = state.hexdigest()
    return digests


def verdict_table(columns: dict[str, Any]) -> pa.Table:
    """Verdicts from some of their columns, `id` among them; the others are null."""
    rest = [field for field in VERDICT if field.name not in columns]
    empty = {field.name: pa.nulls(len(columns["id"]), field.type) for field in rest}
    return pa.table({**columns, **empty}).select(VERDICT.names).cast(VERDICT)


def uniform_hash(seed: int, key: str, salt: str = "") -> float:
    """A number in [0, 1) that is a hash of (seed, salt, key): the only source of randomness over documents."""
    return (xxhash.xxh3_64_intdigest(f"{salt}\x1f{key}".encode(), seed=seed) >> 11) / (1 << 53)


class Writer:
    """Writes rows to a Parquet file, zstd, under a temporary name until closed; row groups of BATCH documents, or of GROUP other rows,
    and fewer where rows that were added one by one have more than CHARACTERS.

    Use as a context manager; a file is there afterwards only where the block ended without an exception. batch: other rows of a row
    group; each table is then in row groups of its own, so that a reader of a part that its statistics tell skips the others. hashes:
    columns, as Parquet calls them, that neither a dictionary nor compression makes smaller: they are written as they are.
    """

    def __init__(self, path: Path, schema: pa.Schema, batch: int | None = None, hashes: Sequence[str] = ()) -> None:
        self.path, self.schema = path, schema
        self.batch = batch or (BATCH if "text" in schema.names else GROUP)
        self.group_per_table = batch is not None
        self.rows: list[dict[str, Any]] = []  # at most BATCH: as Python objects they take ten times the memory
        self.tables: list[pa.Table] = []
        self.waiting = self.count = 0
        self.characters = 0  # of the rows that were added since the last row group
        path.parent.mkdir(parents=True, exist_ok=True)
        self.partial = path.with_name(f".{path.name}.partial")
        leaves = [parquet_column(field) for field in schema]
        dictionary = leaves if "text" in schema.names else repeating_columns(schema)
        self.writer = pq.ParquetWriter(
            self.partial,
            schema,
            compression={name: "NONE" if name in hashes else "ZSTD" for name in leaves},
            compression_level={name: 3 for name in leaves if name not in hashes},
            write_page_checksum=True,
            use_dictionary=[name for name in dictionary if name not in hashes],
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush_rows()
                self._write_group()
                self.writer.close()
                self.partial.replace(self.path)
        finally:
            self.writer.close()
            self.partial.unlink(missing_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; columns that it lacks are null."""
        self.rows.append(row)
        self.characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if self.characters > CHARACTERS:
            self._flush_rows()
            self._write_group()
        elif len(self.rows) >= min(BATCH, self.batch):
            self._flush_rows()

    def add_table(self, table: pa.Table) -> None:
        """Add a table unchanged."""
        self._flush_rows()
        self._hold_table(table.select(self.schema.names).cast(self.schema))
        if self.group_per_table:
            self._write_group()

    def add_group(self, table: pa.Table) -> None:
        """Add a table as one row group, whatever its size."""
        self._flush_rows()
        self._write_group()
        self.count += len(table)
        self.writer.write_table(table.select(self.schema.names).cast(self.schema), row_group_size=max(1, len(table)))

    def _flush_rows(self) -> None:
        if self.rows:
            self._hold_table(pa.Table.from_pylist(self.rows, schema=self.schema))
            self.rows = []

    def _hold_table(self, table: pa.Table) -> None:
        """Keep a table until there are enough rows for a row group."""
        self.tables.append(table)
        self.count += len(table)
        self.waiting += len(table)
        if self.waiting >= self.batch:
            self._write_group(self.waiting % self.batch)

    def _write_group(self, rest: int = 0) -> None:
        """Write the held rows, except the last `rest`."""
        whole = pa.concat_tables(self.tables) if self.tables else self.schema.empty_table()
        if ready := len(whole) - rest:
            self.writer.write_table(whole.slice(0, ready), row_group_size=self.batch)
        self.tables, self.waiting = [whole.slice(ready)] if rest else [], rest
        self.characters = 0


def parquet_column(field: pa.Field) -> str:
    """A column's name in Parquet."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def repeating_columns(schema: pa.Schema) -> list[str]:
    """The columns, as Parquet calls them, whose values repeat: a dictionary of them is smaller than they are."""
    return [parquet_column(field) for field in schema if field.name not in IDS and not pa.types.is_floating(field.type)]


def batches(path: Path, columns: list[str] | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """The record batches of a Parquet file, `size` rows at most each; ManifestError names a damaged file."""
    with open_parquet(path) as file:
        yield from file.iter_batches(batch_size=size, columns=columns)


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file whose pages are compared with their checksums when they are read; ManifestError names a damaged one."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise ManifestError(f"{path}: not a readable Parquet file: {error}") from error
    except OSError as error:
        if error.errno:  # not Arrow's own word for damage
            raise
        raise ManifestError(f"{path}: damaged ({error}): remove its manifest, and run again") from error


def rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file as dictionaries, one batch in memory at a time."""
    for batch in batches(path, columns):
        yield from batch.to_pylist()


def read_table(path: Path, columns: list[str]) -> pa.Table:
    """Some columns of a Parquet file, in memory; ManifestError names a damaged file."""
    with open_parquet(path) as file:
        return file.read(columns)


def count_rows(path: Path) -> int:
    """The number of rows, from the footer; ManifestError names a damaged file."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def texts_of_ids(path: Path, wanted: pa.Array) -> Iterator[tuple[str, str]]:
    """(id, text) of the wanted ids of a Parquet file of documents, in its order; reads only the row groups that hold one."""
    with open_parquet(path) as file:
        is_wanted = pc.is_in(file.read(["id"])["id"], value_set=wanted).to_numpy()
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if is_wanted[start:end].any():
                table = file.read_row_group(group, ["id", "text"]).filter(pa.array(is_wanted[start:end]))
                yield from zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
            start = end


def shard_of(manifest: Path) -> str:
    """`…/00017.manifest.json` → `00017`."""
    return manifest.name.removesuffix(".manifest.json")


def sidecar_file(manifest: Path, folder: str) -> Path:
    """`…/00017.manifest.json` → `…/<folder>/00017.parquet`: where a step writes more about the documents of its shard."""
    return manifest.parent / folder / f"{shard_of(manifest)}.parquet"


def parquet_file(manifest: Path | str, shard: str | None = None) -> Path:
    """The Parquet file that a manifest names: its own shard's, or that of `shard` in a one-task step's manifest."""
    manifest = Path(manifest)
    name = f"{shard or shard_of(manifest)}.parquet"
    return Manifest.read(manifest, only=name).file(name)


def verdict_file(verdicts: Path | str, shard: str, columns: str = KEPT) -> Path:
    """The verdict file of a shard, of whose columns those of READ alone are read. verdicts: the manifest of the step that judged."""
    name = f"{shard}.parquet"
    return Manifest.read(verdicts, only=name).file(name, (VERDICTS, shard, columns))


def kept_ids(verdicts: Path) -> set[str]:
    """The ids that a verdict file keeps (held in memory: one shard's worth)."""
    return {row["id"] for row in rows(verdicts, ["id", "kept"]) if row["kept"]}


def surviving_documents(documents: Path, verdicts: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The documents of a shard that its verdicts keep, in the documents' order.

    `documents` and `verdicts` are Parquet files of the same shard. A document without a verdict was dropped earlier.
    """
    keep = kept_ids(verdicts)
    wanted = columns if columns is None or "id" in columns else ["id", *columns]
    for row in rows(documents, wanted):
        if row["id"] in keep:
            yield row


def add_counts(total: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Add one task's counts to a running total, in place: `in`, `kept` and `dropped` by reason."""
    total["in"] = total.get("in", 0) + part["in"]
    total["kept"] = total.get("kept", 0) + part["kept"]
    dropped = total.setdefault("dropped", {})
    for reason, number in part["dropped"].items():
        dropped[reason] = dropped.get(reason, 0) + number
    return total


def by_row(judge: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[pa.RecordBatch], Iterable[dict[str, Any]]]:
    """What judges a row, as what `select_shard` takes."""
    return lambda batch: map(judge, batch.to_pylist())


def select_shard(
    signals: Path,
    judge: Callable[[pa.RecordBatch], Iterable[dict[str, Any]]],
    manifest: Manifest,
    out: Path,
    skipped_by: Iterable[str],
    count: Callable[[dict[str, Any], dict[str, Any]], None] = lambda row, verdict: None,
) -> list[Path]:
    """Stream a shard's signals through `judge` and write its verdict file beside the manifest `out`; returns the file.

    signals: the manifest of the filter's score. judge: some of its rows → their verdicts (VERDICT's columns). skipped_by: sources whose
    documents are kept whatever the verdict, which still lists the rules; those that a rule would have dropped are `source_exempt`
    in the summary. count: is told every row and its verdict. Counts go into `manifest`.
    """
    kept, dropped, exempt = 0, dict[str, int](), 0
    sources = frozenset(skipped_by)
    path = out.with_name(f"{shard_of(out)}.parquet")
    with Writer(path, VERDICT) as writer:
        judged = (
            pair
            for batch in batches(parquet_file(signals))
            for pair in zip(batch.to_pylist(), judge(batch), strict=True)
        )
        for row, verdict in judged:
            if not verdict["kept"] and row["source"] in sources:
                verdict = {"id": verdict["id"], "kept": True, "rules": verdict["rules"]}
                exempt += 1
            count(row, verdict)
            writer.add(verdict)
            if verdict["kept"]:
                kept += 1
            else:
                dropped[verdict["rule"]] = dropped.get(verdict["rule"], 0) + 1
    manifest.counts = {"in": kept + sum(dropped.values()), "kept": kept, "dropped": dropped}
    manifest.summary |= {"source_exempt": exempt, VERDICTS: {shard_of(out): verdict_digests(path)}}
    return [path]
