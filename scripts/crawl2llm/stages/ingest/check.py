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
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.formats.documents import (
    VERDICT,
    VERDICTS,
    Writer,
    batches,
    count,
    data,
    shard_of,
    verdict_digests,
    verdict_table,
)
from crawl2llm.formats.external_partition import Spill, ranges

HELD_DOCUMENTS = 2**23  # sorted at a time: about 0.5 GB
MOST = 1_000_000  # repeated records; more are whole files that are given twice
BATCH = 65_536  # ids read at a time
ID = np.dtype([("high", "u8"), ("low", "u8"), ("shard", "u4"), ("row", "u4")])
REPEATED = pa.schema(
    [(name, pa.string()) for name in ("id", "shard", "source", "file", "record_id", "url", "kept_source", "kept_file")]
)


def ids(path: Path, shard: int) -> Iterator[np.ndarray]:
    """The ids of a shard's documents with their places, as arrays of ID."""
    row = 0
    for batch in batches(path, ["id"], BATCH):
        out = np.empty(len(batch), ID)
        both = np.frombuffer(bytes.fromhex("".join(batch.column(0).to_pylist())), ">u8").reshape(-1, 2)
        out["high"], out["low"], out["shard"] = both[:, 0], both[:, 1], shard
        out["row"] = np.arange(row, row + len(batch))
        row += len(batch)
        yield out


def doubled(held: np.ndarray) -> np.ndarray:
    """The entries whose id occurs more than once, sorted by id, shard and row."""
    held = held[np.lexsort((held["row"], held["shard"], held["low"], held["high"]))]
    same = (held["high"][1:] == held["high"][:-1]) & (held["low"][1:] == held["low"][:-1])
    return held[np.concatenate([same, [False]]) | np.concatenate([[False], same])] if len(held) else held


def found(paths: list[Path], folder: Path) -> np.ndarray:
    """All entries whose id occurs more than once over all shards. folder: for the parts into which ids are split by their hash."""
    total = sum(count(path) for path in paths)
    entries = Spill(folder, ranges(total, HELD_DOCUMENTS), ID)
    progress = Progress(total, "documents")
    for shard, path in enumerate(paths):
        for some in ids(path, shard):
            entries.add((some["low"] % entries.parts).astype(np.int64), some)
            progress.add(len(some))
    out, size = [], 0
    for part in range(entries.parts):
        out.append(doubled(entries.part(part)))
        size += len(out[-1])
        if size > 2 * MOST:
            break  # whoever asked refuses that many
    return np.concatenate(out)


def origins(path: Path, shard: str, rows: list[int]) -> Iterator[dict[str, Any]]:
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


def words(origin: dict[str, Any]) -> str:
    """An origin for a person: source, file and record or URL, and its row in the shard's documents."""
    what = " ".join(filter(None, (origin["record_id"], origin["url"])))
    return f"source {origin['source']}, file {origin['file']}, {what} (shard {origin['shard']}, row {origin['row']})"


def copies(group: list[dict[str, Any]], order: list[str]) -> list[dict[str, Any]]:
    """The copies to drop among documents with one id, each with `kept_source` and `kept_file`. order: the names of the sources.

    Raises InputError where they are not the same WARC record.
    """
    first, *others = sorted(group, key=lambda one: (order.index(one["source"]), one["file"], one["row"]))
    for other in others:
        if not first["record_id"] or (first["record_id"], first["url"]) != (other["record_id"], other["url"]):
            raise command_line.InputError(
                f"two documents have the id {first['id']}: {words(first)}; and {words(other)}"
            )
    return [{**one, "kept_source": first["source"], "kept_file": first["file"]} for one in others]


def judged(documents: Path, out: Path, dropped: dict[int, str]) -> None:
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


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    paths, shards = [data(path) for path in args.documents], [shard_of(path) for path in args.documents]
    order = list(Manifest.read(args.documents[0]).part("sources"))
    total = sum(count(path) for path in paths)
    with scratch(args.manifest.with_name(".ids")) as folder:
        places = found(paths, folder)
    many = len(places) > 2 * MOST
    places = places[:2] if many else places
    twice: dict[str, list[dict[str, Any]]] = {}
    for shard in np.unique(places["shard"]):
        rows = sorted(places["row"][places["shard"] == shard].tolist())
        for origin in origins(paths[shard], shards[shard], rows):
            twice.setdefault(origin["id"], []).append(origin)
    if many:
        examples = "; ".join(words(one) for group in twice.values() for one in group)
        raise command_line.InputError(
            f"more than {MOST:,} records are in two files, such as {examples}: take one of them out of the `paths` in "
            "ingest.extract.sources"
        )
    repeated = [copy for group in twice.values() for copy in copies(group, order)]
    repeated.sort(key=lambda one: (one["shard"], one["row"]))
    out = args.manifest.with_name("repeated.parquet")
    with Writer(out, REPEATED) as writer:
        for copy in repeated:
            writer.add({name: copy[name] for name in REPEATED.names})
    files, dropped = [out], dict[str, dict[int, str]]()
    for one in repeated:
        dropped.setdefault(one["shard"], {})[one["row"]] = one["kept_file"]
    digests: dict[str, dict[str, str]] = {}
    for path, shard in zip(paths, shards, strict=True):
        files.append(args.manifest.with_name(f"{shard}.parquet"))
        judged(path, files[-1], dropped.get(shard, {}))
        digests[shard] = verdict_digests(files[-1])
    manifest.counts = {"in": total, "kept": total - len(repeated), "dropped": {"repeated_record": len(repeated)}}
    pairs = Counter((one["source"], one["file"], one["kept_source"], one["kept_file"]) for one in repeated)
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


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "ingest.check",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/*.manifest.json --manifest /tmp/check/manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, nargs="+", help="manifests of ingest.extract")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
