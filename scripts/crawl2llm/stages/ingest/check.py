"""Prove that no two documents have the same id over all shards, and name the records that the crawl holds more than once.

A WARC record that occurs in several files (same record id and URL) stays where it comes first, by the order of the sources and
the name of the file; its other copies are dropped as `repeated_record`, and listed in `repeated.parquet`. Any other two documents
with one id end the run. Writes `<shard>.parquet`: the first verdicts, which the first filter reads. Only the column of ids is read;
memory is bounded by HELD_DOCUMENTS, disk is 24 bytes a document.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.formats.documents import (
    VERDICT,
    VERDICTS,
    Writer,
    batches,
    count_rows,
    parquet_file,
    shard_of,
    verdict_digests,
    verdict_table,
)
from crawl2llm.formats.external_partition import Spill, count_parts
from crawl2llm.stages.ingest.settings import CheckSettings

HELD_DOCUMENTS = 2**23  # sorted at a time: about 0.5 GB
MOST_REPEATED = 1_000_000  # repeated records; more are whole files that are given twice
BATCH = 65_536  # ids read at a time
ID = np.dtype([("high", "u8"), ("low", "u8"), ("shard", "u4"), ("row", "u4")])
REPEATED = pa.schema(
    [(name, pa.string()) for name in ("id", "shard", "source", "file", "record_id", "url", "kept_source", "kept_file")]
)


def read_ids(path: Path, shard: int) -> Iterator[np.ndarray]:
    """The ids of a shard's documents with their places, as arrays of ID."""
    row = 0
    for batch in batches(path, ["id"], BATCH):
        out = np.empty(len(batch), ID)
        both = np.frombuffer(bytes.fromhex("".join(batch.column(0).to_pylist())), ">u8").reshape(-1, 2)
        out["high"], out["low"], out["shard"] = both[:, 0], both[:, 1], shard
        out["row"] = np.arange(row, row + len(batch))
        row += len(batch)
        yield out


def repeated_entries(entries: np.ndarray) -> np.ndarray:
    """The entries whose id occurs more than once, sorted by id, shard and row."""
    entries = entries[np.lexsort((entries["row"], entries["shard"], entries["low"], entries["high"]))]
    same = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
    return entries[np.concatenate([same, [False]]) | np.concatenate([[False], same])] if len(entries) else entries


def find_repeated(paths: list[Path], folder: Path) -> np.ndarray:
    """All entries whose id occurs more than once over all shards. folder: for the parts into which ids are split by their hash."""
    total = sum(count_rows(path) for path in paths)
    entries = Spill(folder, count_parts(total, HELD_DOCUMENTS), ID)
    progress = Progress(total, "documents")
    for shard, path in enumerate(paths):
        for shard_ids in read_ids(path, shard):
            entries.add((shard_ids["low"] % entries.parts).astype(np.int64), shard_ids)
            progress.add(len(shard_ids))
    out, size = [], 0
    for part in range(entries.parts):
        out.append(repeated_entries(entries.part(part)))
        size += len(out[-1])
        if size > 2 * MOST_REPEATED:
            break  # whoever asked refuses that many
    return np.concatenate(out)


def read_origins(path: Path, shard: str, rows: list[int]) -> Iterator[dict[str, Any]]:
    """Where these rows (ascending) of a shard come from: id, shard, row, source, file, record_id, url."""
    at, wanted = 0, iter([*rows, -1])
    row = next(wanted)
    for batch in batches(path, ["id", "source", "url", "metadata"]):
        while 0 <= row < at + len(batch):
            body = batch.slice(row - at, 1).to_pylist()[0]
            facts = json.loads(body.pop("metadata"))
            yield {**body, "shard": shard, "row": row, "file": facts["file"], "record_id": facts.get("record_id", "")}
            row = next(wanted)
        at += len(batch)


def origin_text(origin: dict[str, Any]) -> str:
    """An origin for a person: source, file and record or URL, and its row in the shard's documents."""
    record = " ".join(filter(None, (origin["record_id"], origin["url"])))
    return f"source {origin['source']}, file {origin['file']}, {record} (shard {origin['shard']}, row {origin['row']})"


def copies_to_drop(group: list[dict[str, Any]], order: list[str]) -> list[dict[str, Any]]:
    """The copies to drop among documents with one id, each with `kept_source` and `kept_file`. order: the names of the sources.

    Raises InputError if they are not the same WARC record.
    """
    first, *copies = sorted(
        group, key=lambda document: (order.index(document["source"]), document["file"], document["row"])
    )
    for copy in copies:
        if not first["record_id"] or (first["record_id"], first["url"]) != (copy["record_id"], copy["url"]):
            raise command_line.InputError(
                f"two documents have the id {first['id']}: {origin_text(first)}; and {origin_text(copy)}"
            )
    return [{**copy, "kept_source": first["source"], "kept_file": first["file"]} for copy in copies]


def write_verdicts(documents: Path, out: Path, dropped: dict[int, str]) -> None:
    """Write the verdicts on a shard's documents. dropped: row → the file that holds the record that stays."""
    with Writer(out, VERDICT) as writer:
        at = 0
        for batch in batches(documents, ["id"], BATCH):
            files = [dropped.get(row) for row in range(at, at + len(batch))]
            columns = {
                "id": batch.column(0),
                "kept": pa.array([file is None for file in files]),
                "rule": pa.array([None if file is None else "repeated_record" for file in files], pa.string()),
                "detail": pa.array(files, pa.string()),
                "rules": pa.array(
                    [[] if file is None else ["repeated_record"] for file in files], pa.list_(pa.string())
                ),
            }
            writer.add_table(verdict_table(columns))
            at += len(batch)


def body(args: argparse.Namespace, settings: CheckSettings, manifest: Manifest) -> list[Path]:
    paths, shards = [parquet_file(path) for path in args.documents], [shard_of(path) for path in args.documents]
    order = list(Manifest.read(args.documents[0]).summary_part("sources"))
    total = sum(count_rows(path) for path in paths)
    with scratch_folder(args.manifest.with_name(".ids")) as folder:
        places = find_repeated(paths, folder)
    many = len(places) > 2 * MOST_REPEATED
    places = places[:2] if many else places
    origins_by_id: dict[str, list[dict[str, Any]]] = {}
    for shard in np.unique(places["shard"]):
        rows = sorted(places["row"][places["shard"] == shard].tolist())
        for origin in read_origins(paths[shard], shards[shard], rows):
            origins_by_id.setdefault(origin["id"], []).append(origin)
    if many:
        examples = "; ".join(origin_text(document) for group in origins_by_id.values() for document in group)
        raise command_line.InputError(
            f"more than {MOST_REPEATED:,} records are in two files, such as {examples}: remove one of them from the "
            f"`paths` in ingest.extract.sources"
        )
    repeated = [copy for group in origins_by_id.values() for copy in copies_to_drop(group, order)]
    repeated.sort(key=lambda copy: (copy["shard"], copy["row"]))
    out = args.manifest.with_name("repeated.parquet")
    with Writer(out, REPEATED) as writer:
        for copy in repeated:
            writer.add({name: copy[name] for name in REPEATED.names})
    files, dropped = [out], dict[str, dict[int, str]]()
    for copy in repeated:
        dropped.setdefault(copy["shard"], {})[copy["row"]] = copy["kept_file"]
    digests: dict[str, dict[str, str]] = {}
    for path, shard in zip(paths, shards, strict=True):
        files.append(args.manifest.with_name(f"{shard}.parquet"))
        write_verdicts(path, files[-1], dropped.get(shard, {}))
        digests[shard] = verdict_digests(files[-1])
    manifest.counts = {"in": total, "kept": total - len(repeated), "dropped": {"repeated_record": len(repeated)}}
    pairs = Counter((copy["source"], copy["file"], copy["kept_source"], copy["kept_file"]) for copy in repeated)
    notes = [
        f"{source}, {file}: {number:,} of its records, also in {kept_source}, {kept_file}, dropped"
        for (source, file, kept_source, kept_file), number in sorted(
            pairs.items(), key=lambda item: (-item[1], item[0])
        )
    ]
    manifest.summary = {
        "notes": [*notes[:5], *([f"So are records of {len(notes) - 5} more pairs of files."] if notes[5:] else [])],
        VERDICTS: digests,
    }
    for note in manifest.summary["notes"]:
        log.warning("%s", note)
    return files


main = Program("ingest.check", __doc__, CheckSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
