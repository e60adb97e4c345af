"""Drop exact duplicates, and every document that is a verified near-duplicate of a kept one.

Documents are judged in the order of their priority: one is dropped if and only if some document of higher priority is
kept and their similarity is `threshold` or more. Nothing is merged over a chain: in a ~ b ~ c with a unlike c, b goes for a,
and c stays. `duplicate_of` is the most similar kept document. An exact duplicate whose keeper goes is a near-duplicate of what its
keeper went for. Each connected component of the pairs is decided by itself (filters/dedup/components.py).

Rules: `exact` (byte-equal to `duplicate_of`; value 1) and `near` (value: the Jaccard similarity with it). Memory: a byte for each
document, about 120 for each that is in a pair that passes or was copied, and 1.6 GB for the pairs that are decided at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.filters.dedup.components import EDGE, Edges, decided
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED,
    PAIRS,
    ZERO,
    Numbers,
    Places,
    Shard,
    by_shard,
    column,
    first_of,
    hashed,
    in_order,
    passing,
    read,
    same,
    shards,
    sixteen,
    split,
)
from crawl2llm.formats.documents import GROUP, VERDICT, VERDICTS, Writer, add_counts, batches, data, verdict_digests

NUMERIC = 0.5  # share of a text's tokens that are numbers, from which on it is mostly numbers
NUMERIC_SHARE = 0.01  # of a source's drops: from more of such on a note says so
LARGEST = 20  # clusters that the summary names
# By what drops a document: 1 for exact, 2 for near. No Arrow array: one that is made at import brings pandas (chain/skip_pandas.py).
RULES: tuple[list[str], ...] = ([], ["exact"], ["near"], ["near", "exact"])
HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)


@dataclass
class Drop:
    """Documents of a shard that go, sorted by row, (documents,) each. keeper: number of the kept document, from 0 by priority."""

    row: Numbers
    keeper: Numbers
    similarity: npt.NDArray[np.float64]
    exact: npt.NDArray[np.bool_]  # which rules drop it
    near: npt.NDArray[np.bool_]

    def __getitem__(self, rows: Any) -> Drop:
        return Drop(*(values[rows] for values in vars(self).values()))


@dataclass
class Known:
    """The documents whose names or order are needed: those in pairs that pass, and the keepers of exact duplicates.

    documents: their numbers, sorted. rank: their places by priority. names: the halves of their ids, by rank, (documents, 2).
    """

    documents: Numbers
    rank: Numbers
    names: npt.NDArray[np.uint64]

    def ranks(self, documents: Numbers) -> Numbers:
        """The place by priority of documents that are all known."""
        return self.rank[np.searchsorted(self.documents, documents)]


def hexed(halves: npt.NDArray[np.uint64]) -> pa.Array:
    """Ids as 32 hex digits, from their halves, (ids, 2)."""
    digits = HEX[halves.astype(">u8").view(np.uint8).reshape(-1, 16)].tobytes()
    ends = np.arange(0, 32 * len(halves) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(halves), pa.py_buffer(ends), pa.py_buffer(digits))


def known(everything: Sequence[Shard], used: Iterable[Numbers]) -> Known:
    """What is known of all documents of `used` (numbers, in pieces, in any order and repeated).

    everything: the shards of this run and of earlier corpora. Raises InputError where they do not have one.
    """
    places = Places(everything)
    seen = np.zeros(places.number, bool)
    for documents in used:
        at = places.of(documents)
        if (wrong := documents[at < 0]).size:
            shard, row = split(wrong)
            raise command_line.InputError(
                f"{wrong.size} duplicates are not in the signatures of their shard, for example row {row[0]} of shard "
                f"{shard[0]:05d}: run dedup.exact and dedup.band again"
            )
        seen[at] = True
    rows = [np.zeros(0, HASHED)]
    for one in everything:
        start = places.start[one.number]
        own = np.flatnonzero(seen[start : start + one.documents])
        if len(own):
            table = read(one.path, ["id", "words", "curated"]).take(pa.array(own))
            rows.append(hashed(table, first_of(one.number) + own, np.zeros(len(own), np.uint64)))
    del seen
    found = np.concatenate(rows)
    del rows
    order = in_order(found)
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return Known(found["document"].copy(), rank, np.stack((found["id"][order], found["rest"][order]), axis=1))


def edges(pairs: Iterable[pa.RecordBatch], who: Known) -> Iterator[Edges]:
    """The pairs with documents numbered by priority."""
    for batch in pairs:
        out = np.empty(len(batch), EDGE)
        ends = who.ranks(batch["low"].to_numpy()), who.ranks(batch["high"].to_numpy())
        out["low"], out["high"] = np.maximum(*ends), np.minimum(*ends)
        out["similarity"] = batch["similarity"].to_numpy()
        yield out


def near_duplicates(shard: int, who: Known, keeper: Numbers, value: npt.NDArray) -> Drop:
    """The shard's near-duplicates that go. keeper, value: from `decided`."""
    start, end = np.searchsorted(who.documents, [first_of(shard), first_of(shard + 1)])
    rank = who.rank[start:end]
    gone = keeper[rank] >= 0
    rank, row = rank[gone], who.documents[start:end][gone] - first_of(shard)
    return Drop(row, keeper[rank], value[rank], np.zeros(len(row), bool), np.ones(len(row), bool))


def exact_duplicates(shard: int, copies: pa.Table, who: Known, keeper: Numbers, value: npt.NDArray, drop: bool) -> Drop:
    """The shard's exact duplicates that go, each a duplicate of a kept document.

    copies: DUPLICATE. keeper, value: from `decided`. drop: whether byte-equal text is a reason; if not, a copy goes only where its
    keeper goes, under that rule.
    """
    rank = who.ranks(column(copies, "duplicate_of"))
    near = keeper[rank] >= 0
    found = Drop(
        column(copies, "document") - first_of(shard),
        np.where(near, keeper[rank], rank),
        np.where(near, value[rank], 1.0),
        np.full(len(rank), drop),
        near,
    )
    return found if drop else found[near]


def both(one: Drop, other: Drop) -> Drop:
    """Two lists of documents as one, sorted by row."""
    joined = Drop(*(np.concatenate(pair) for pair in zip(vars(one).values(), vars(other).values(), strict=True)))
    return joined[np.argsort(joined.row, kind="stable")]


def verdicts(ids: npt.NDArray[np.uint64], gone: Drop, names: npt.NDArray[np.uint64], threshold: float) -> pa.Table:
    """The verdicts (VERDICT) on documents in their order. ids, names: halves of ids, of the documents and of keepers (see Known)."""
    row = np.full(len(ids), -1)
    row[gone.row] = np.arange(len(gone.row))
    kept = row < 0
    rules = np.zeros(len(ids), np.int64)
    rules[~kept] = (gone.exact + 2 * gone.near)[row[~kept]]
    columns = pa.table(
        {
            # Under both rules it is `near`: `duplicate_of` is then what the byte-equal document went for.
            "rule": pa.array(np.where(gone.near, "near", "exact"), pa.string()),
            "value": gone.similarity,
            "threshold": np.where(gone.near, threshold, 1.0),
            "detail": pa.nulls(len(gone.row), pa.string()),
            "duplicate_of": hexed(names[gone.keeper]),
            "similarity": gone.similarity,
        }
    ).take(pa.array(row, mask=kept))
    table = columns.append_column("id", hexed(ids)).append_column("kept", pa.array(kept))
    named = pa.array(RULES, pa.list_(pa.string())).take(pa.array(rules))
    return table.append_column("rules", named).select(VERDICT.names).cast(VERDICT)


def clusters(dropped: Numbers, names: npt.NDArray[np.uint64]) -> dict[str, Any]:
    """How many clusters have 2, 3–4, 5–8 … documents, and the largest clusters. dropped: for each document, how many went for it."""
    keepers = np.flatnonzero(dropped)
    sizes = dropped[keepers] + 1
    powers = np.bincount(np.ceil(np.log2(sizes)).astype(int)).tolist()
    spans = [f"{2 ** (power - 1) + 1}-{2**power}" if power > 1 else "2" for power in range(len(powers))]
    order = np.lexsort((names[keepers, 1], names[keepers, 0], -sizes))[:LARGEST]
    largest = zip(hexed(names[keepers[order]]).to_pylist(), sizes[order].tolist(), strict=True)
    return {
        "clusters": len(keepers),
        "cluster_sizes": {name: number for name, number in zip(spans, powers, strict=True) if number},
        "largest": [{"keeper": keeper, "size": size} for keeper, size in largest],
    }


def count_numeric(total: dict[str, dict[str, int]], signals: Path, rows: Numbers) -> None:
    """Add the documents that a shard loses to `total`, in place: by source all (`dropped`) and those that are mostly numbers (`numeric`:
    of whose tokens at least NUMERIC are numbers). rows: those that go.
    """
    if not len(rows):
        return
    table = read(signals, ["source", "words", "numbers"]).take(pa.array(rows))
    numeric = column(table, "numbers") >= NUMERIC * np.maximum(column(table, "words"), 1)
    codes = table["source"].combine_chunks().dictionary_encode()
    place = codes.indices.to_numpy(zero_copy_only=False)
    for number, name in enumerate(codes.dictionary.to_pylist()):
        found = total.setdefault(name, {"dropped": 0, "numeric": 0})
        found["dropped"] += int(np.count_nonzero(place == number))
        found["numeric"] += int(np.count_nonzero(numeric[place == number]))


def notes(by_source: dict[str, dict[str, int]], numbers: str) -> list[str]:
    """A sentence on each source of whose drops more than NUMERIC_SHARE are mostly numbers. numbers: that key of dedup.signature."""
    what = (
        "tables that differ in numbers alone may be among them (dedup.signature.numbers)"
        if numbers == ZERO
        else "their numbers were compared"
    )
    return [
        f"source {source}: {of['numeric']:,} of the {of['dropped']:,} duplicates dropped are mostly numbers; {what}"
        for source, of in sorted(by_source.items())
        if of["numeric"] > NUMERIC_SHARE * of["dropped"]
    ]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    measured = [Manifest.read(path) for path in args.pairs]
    if len(measured) != (parts := same(measured, "parts")):
        raise command_line.InputError(
            f"--pairs has {len(measured)} parts, such as {args.pairs[0]}, but the pairs are in {parts}"
        )
    pairs = [data(path) for path in args.pairs]
    own, threshold = shards(args.signals), settings["threshold"]
    copied = Manifest.read(args.exact)
    exact = copied.file("duplicates.parquet")
    old = previous_corpora.shards(copied.part("earlier"))

    count = 0

    def used() -> Iterator[Numbers]:
        nonlocal count
        for batch in passing(pairs, threshold):
            count += len(batch)
            yield batch["low"].to_numpy()
            yield batch["high"].to_numpy()
        for batch in batches(exact, DUPLICATE.names, PAIRS):
            yield batch["duplicate_of"].to_numpy()

    who = known([*own, *old], used())
    with scratch(args.manifest.with_name(".pairs")) as folder:
        keeper, value = decided(
            lambda: edges(passing(pairs, threshold) if settings["near"] else (), who), count, len(who.rank), folder
        )

    files: list[Path] = []
    total: dict[str, Any] = {}
    by_shard_: dict[str, Any] = {}
    digests: dict[str, dict[str, str]] = {}
    dropped = np.zeros(len(who.rank), np.int64)
    by_source: dict[str, dict[str, int]] = {}
    progress = Progress(len(own), "shards")
    for shard, copies in zip(own, by_shard(exact, [shard.number for shard in own], DUPLICATE), strict=True):
        name = shard.path.stem
        gone = both(
            near_duplicates(shard.number, who, keeper, value),
            exact_duplicates(shard.number, copies, who, keeper, value, settings["exact"]),
        )
        np.add.at(dropped, gone.keeper, 1)
        count_numeric(by_source, shard.path, gone.row)
        ids = sixteen(read(shard.path, ["id"])["id"])
        files.append(args.manifest.with_name(f"{name}.parquet"))
        with Writer(files[-1], VERDICT) as writer:
            for start in range(0, len(ids), GROUP):
                some = gone[slice(*np.searchsorted(gone.row, [start, start + GROUP]))]
                some.row = some.row - start
                writer.add_table(verdicts(ids[start : start + GROUP], some, who.names, threshold))
        near = int(gone.near.sum())
        counts = {"exact": len(gone.row) - near, "near": near}
        by_shard_[name] = {"in": len(ids), "kept": len(ids) - len(gone.row), "dropped": counts}
        digests[name] = verdict_digests(files[-1])
        add_counts(total, by_shard_[name])
        progress.add()
    manifest.counts = total
    manifest.summary = {
        "by_shard": by_shard_,
        VERDICTS: digests,
        "pairs": {
            "verified": sum(part.summary["pairs"] for part in measured),
            "passed": count,
            "cut": sum(part.summary["cut"] for part in measured),
        },
        "similarity": np.sum([part.summary["similarity"] for part in measured], axis=0).tolist(),
        **clusters(dropped, who.names),
        "source_exempt": copied.part("source_exempt"),
        "numeric": by_source,
        "notes": notes(by_source, same([Manifest.read(path) for path in args.signals], "numbers")),
    }
    for note in manifest.summary["notes"]:
        log.warning("%s", note)
    if old:  # dropped for a document of an earlier corpus
        manifest.summary["earlier"] = int(dropped[who.ranks(who.documents[who.documents >= first_of(EARLIER)])].sum())
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "dedup.select",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json"
        " --exact results/main/dedup/exact/manifest.json --pairs results/main/dedup/verify/*.manifest.json"
        " --manifest /tmp/select/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    parser.add_argument("--exact", required=True, type=Path, help="manifest of dedup.exact")
    parser.add_argument("--pairs", required=True, type=Path, nargs="+", help="manifests of dedup.verify")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
