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
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.filters.dedup.components import EDGE, Edges, choose_by_component
from crawl2llm.filters.dedup.settings import SelectSettings
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED_DOCUMENT,
    PAIRS,
    ZERO,
    Numbers,
    Places,
    Shard,
    column,
    common_value,
    first_document,
    hashed_rows,
    priority_order,
    read_columns,
    read_shards,
    shards_and_rows,
    similar_pairs,
    tables_by_shard,
    uint64_halves,
)
from crawl2llm.formats.documents import (
    GROUP,
    VERDICT,
    VERDICTS,
    Writer,
    add_counts,
    batches,
    parquet_file,
    verdict_digests,
)

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
class Ranking:
    """The documents whose names or order are needed: those in pairs that pass, and the keepers of exact duplicates.

    documents: their numbers, sorted. rank: their places by priority. names: the halves of their ids, by rank, (documents, 2).
    """

    documents: Numbers
    rank: Numbers
    names: npt.NDArray[np.uint64]

    def ranks_of(self, documents: Numbers) -> Numbers:
        """The place by priority of documents that are all known."""
        return self.rank[np.searchsorted(self.documents, documents)]


def hex_ids(halves: npt.NDArray[np.uint64]) -> pa.Array:
    """Ids as 32 hex digits, from their halves, (ids, 2)."""
    digits = HEX[halves.astype(">u8").view(np.uint8).reshape(-1, 16)].tobytes()
    ends = np.arange(0, 32 * len(halves) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(halves), pa.py_buffer(ends), pa.py_buffer(digits))


def rank_documents(all_shards: Sequence[Shard], documents_in_pieces: Iterable[Numbers]) -> Ranking:
    """What is known of all documents of `documents_in_pieces` (numbers, in pieces, in any order and repeated).

    all_shards: the shards of this run and of earlier corpora. Raises InputError if they do not have one.
    """
    places = Places(all_shards)
    seen = np.zeros(places.number, bool)
    for documents in documents_in_pieces:
        at = places.places_of(documents)
        if (unknown := documents[at < 0]).size:
            shard, row = shards_and_rows(unknown)
            raise command_line.InputError(
                f"{unknown.size} duplicates are not in the signatures of their shard, for example row {row[0]} of shard "
                f"{shard[0]:05d}: run dedup.exact and dedup.band again"
            )
        seen[at] = True
    rows = [np.zeros(0, HASHED_DOCUMENT)]
    for corpus_shard in all_shards:
        start = places.start[corpus_shard.number]
        shard_rows = np.flatnonzero(seen[start : start + corpus_shard.documents])
        if len(shard_rows):
            table = read_columns(corpus_shard.path, ["id", "words", "curated"]).take(pa.array(shard_rows))
            rows.append(
                hashed_rows(
                    table, first_document(corpus_shard.number) + shard_rows, np.zeros(len(shard_rows), np.uint64)
                )
            )
    del seen
    all_rows = np.concatenate(rows)
    del rows
    order = priority_order(all_rows)
    rank = np.empty(len(all_rows), np.int64)
    rank[order] = np.arange(len(all_rows))
    return Ranking(
        all_rows["document"].copy(), rank, np.stack((all_rows["id"][order], all_rows["rest"][order]), axis=1)
    )


def ranked_edges(pairs: Iterable[pa.RecordBatch], ranking: Ranking) -> Iterator[Edges]:
    """The pairs with documents numbered by priority."""
    for batch in pairs:
        out = np.empty(len(batch), EDGE)
        ends = ranking.ranks_of(batch["low"].to_numpy()), ranking.ranks_of(batch["high"].to_numpy())
        out["low"], out["high"] = np.maximum(*ends), np.minimum(*ends)
        out["similarity"] = batch["similarity"].to_numpy()
        yield out


def near_duplicates(shard: int, ranking: Ranking, keeper: Numbers, value: npt.NDArray) -> Drop:
    """The shard's near-duplicates that go. keeper, value: from `choose_by_component`."""
    start, end = np.searchsorted(ranking.documents, [first_document(shard), first_document(shard + 1)])
    rank = ranking.rank[start:end]
    is_dropped = keeper[rank] >= 0
    rank, row = rank[is_dropped], ranking.documents[start:end][is_dropped] - first_document(shard)
    return Drop(row, keeper[rank], value[rank], np.zeros(len(row), bool), np.ones(len(row), bool))


def exact_duplicates(
    shard: int, copies: pa.Table, ranking: Ranking, keeper: Numbers, value: npt.NDArray, drop: bool
) -> Drop:
    """The shard's exact duplicates that go, each a duplicate of a kept document.

    copies: DUPLICATE. keeper, value: from `choose_by_component`. drop: whether byte-equal text is a reason; if not, a copy goes only
    where its keeper goes, under that rule.
    """
    rank = ranking.ranks_of(column(copies, "duplicate_of"))
    near = keeper[rank] >= 0
    drops = Drop(
        column(copies, "document") - first_document(shard),
        np.where(near, keeper[rank], rank),
        np.where(near, value[rank], 1.0),
        np.full(len(rank), drop),
        near,
    )
    return drops if drop else drops[near]


def merge_drops(first: Drop, second: Drop) -> Drop:
    """Two lists of documents as one, sorted by row."""
    drops = Drop(*(np.concatenate(pair) for pair in zip(vars(first).values(), vars(second).values(), strict=True)))
    return drops[np.argsort(drops.row, kind="stable")]


def verdict_table(
    ids: npt.NDArray[np.uint64], drops: Drop, names: npt.NDArray[np.uint64], threshold: float
) -> pa.Table:
    """The verdicts (VERDICT) on documents in their order. ids, names: halves of ids, of the documents and of keepers (see Ranking)."""
    row = np.full(len(ids), -1)
    row[drops.row] = np.arange(len(drops.row))
    is_kept = row < 0
    rules = np.zeros(len(ids), np.int64)
    rules[~is_kept] = (drops.exact + 2 * drops.near)[row[~is_kept]]
    columns = pa.table(
        {
            # Under both rules it is `near`: `duplicate_of` is then what the byte-equal document went for.
            "rule": pa.array(np.where(drops.near, "near", "exact"), pa.string()),
            "value": drops.similarity,
            "threshold": np.where(drops.near, threshold, 1.0),
            "detail": pa.nulls(len(drops.row), pa.string()),
            "duplicate_of": hex_ids(names[drops.keeper]),
            "similarity": drops.similarity,
        }
    ).take(pa.array(row, mask=is_kept))
    table = columns.append_column("id", hex_ids(ids)).append_column("kept", pa.array(is_kept))
    rule_lists = pa.array(RULES, pa.list_(pa.string())).take(pa.array(rules))
    return table.append_column("rules", rule_lists).select(VERDICT.names).cast(VERDICT)


def cluster_summary(dropped: Numbers, names: npt.NDArray[np.uint64]) -> dict[str, Any]:
    """How many clusters have 2, 3–4, 5–8 … documents, and the largest clusters. dropped: for each document, how many went for it."""
    keepers = np.flatnonzero(dropped)
    sizes = dropped[keepers] + 1
    powers = np.bincount(np.ceil(np.log2(sizes)).astype(int)).tolist()
    spans = [f"{2 ** (power - 1) + 1}-{2**power}" if power > 1 else "2" for power in range(len(powers))]
    order = np.lexsort((names[keepers, 1], names[keepers, 0], -sizes))[:LARGEST]
    largest = zip(hex_ids(names[keepers[order]]).to_pylist(), sizes[order].tolist(), strict=True)
    return {
        "clusters": len(keepers),
        "cluster_sizes": {name: number for name, number in zip(spans, powers, strict=True) if number},
        "largest": [{"keeper": keeper, "size": size} for keeper, size in largest],
    }


def add_numeric(total: dict[str, dict[str, int]], signals: Path, rows: Numbers) -> None:
    """Add the documents that a shard loses to `total`, in place: by source all (`dropped`) and those that are mostly numbers (`numeric`:
    of whose tokens at least NUMERIC are numbers). rows: those that go.
    """
    if not len(rows):
        return
    table = read_columns(signals, ["source", "words", "numbers"]).take(pa.array(rows))
    numeric = column(table, "numbers") >= NUMERIC * np.maximum(column(table, "words"), 1)
    codes = table["source"].combine_chunks().dictionary_encode()
    place = codes.indices.to_numpy(zero_copy_only=False)
    for number, name in enumerate(codes.dictionary.to_pylist()):
        counts = total.setdefault(name, {"dropped": 0, "numeric": 0})
        counts["dropped"] += int(np.count_nonzero(place == number))
        counts["numeric"] += int(np.count_nonzero(numeric[place == number]))


def numeric_notes(by_source: dict[str, dict[str, int]], numbers: str) -> list[str]:
    """A sentence on each source of whose drops more than NUMERIC_SHARE are mostly numbers. numbers: that key of dedup.signature."""
    hint = (
        "tables that differ in numbers alone may be among them (dedup.signature.numbers)"
        if numbers == ZERO
        else "their numbers were compared"
    )
    return [
        f"source {source}: {counts['numeric']:,} of the {counts['dropped']:,} duplicates dropped are mostly numbers; {hint}"
        for source, counts in sorted(by_source.items())
        if counts["numeric"] > NUMERIC_SHARE * counts["dropped"]
    ]


def body(args: argparse.Namespace, settings: SelectSettings, manifest: Manifest) -> list[Path]:
    part_manifests = [Manifest.read(path) for path in args.pairs]
    if len(part_manifests) != (parts := common_value(part_manifests, "parts")):
        raise command_line.InputError(
            f"--pairs has {len(part_manifests)} parts, such as {args.pairs[0]}, but the pairs are in {parts}"
        )
    pairs = [parquet_file(path) for path in args.pairs]
    own_shards, threshold = read_shards(args.signals), settings.threshold
    exact_manifest = Manifest.read(args.exact)
    duplicates_file = exact_manifest.file("duplicates.parquet")
    earlier_shards = previous_corpora.earlier_shards(exact_manifest.summary_part("earlier"))

    count = 0

    def documents_to_rank() -> Iterator[Numbers]:
        nonlocal count
        for batch in similar_pairs(pairs, threshold):
            count += len(batch)
            yield batch["low"].to_numpy()
            yield batch["high"].to_numpy()
        for batch in batches(duplicates_file, DUPLICATE.names, PAIRS):
            yield batch["duplicate_of"].to_numpy()

    ranking = rank_documents([*own_shards, *earlier_shards], documents_to_rank())
    with scratch_folder(args.manifest.with_name(".pairs")) as folder:
        keeper, value = choose_by_component(
            lambda: ranked_edges(similar_pairs(pairs, threshold) if settings.near else (), ranking),
            count,
            len(ranking.rank),
            folder,
        )

    files: list[Path] = []
    total: dict[str, Any] = {}
    counts_by_shard: dict[str, Any] = {}
    digests: dict[str, dict[str, str]] = {}
    dropped = np.zeros(len(ranking.rank), np.int64)
    by_source: dict[str, dict[str, int]] = {}
    progress = Progress(len(own_shards), "shards")
    for shard, copies in zip(
        own_shards, tables_by_shard(duplicates_file, [shard.number for shard in own_shards], DUPLICATE), strict=True
    ):
        name = shard.path.stem
        drops = merge_drops(
            near_duplicates(shard.number, ranking, keeper, value),
            exact_duplicates(shard.number, copies, ranking, keeper, value, settings.exact),
        )
        np.add.at(dropped, drops.keeper, 1)
        add_numeric(by_source, shard.path, drops.row)
        ids = uint64_halves(read_columns(shard.path, ["id"])["id"])
        files.append(args.manifest.with_name(f"{name}.parquet"))
        with Writer(files[-1], VERDICT) as writer:
            for start in range(0, len(ids), GROUP):
                group_drops = drops[slice(*np.searchsorted(drops.row, [start, start + GROUP]))]
                group_drops.row = group_drops.row - start
                writer.add_table(verdict_table(ids[start : start + GROUP], group_drops, ranking.names, threshold))
        near = int(drops.near.sum())
        counts = {"exact": len(drops.row) - near, "near": near}
        counts_by_shard[name] = {"in": len(ids), "kept": len(ids) - len(drops.row), "dropped": counts}
        digests[name] = verdict_digests(files[-1])
        add_counts(total, counts_by_shard[name])
        progress.add()
    manifest.counts = total
    manifest.summary = {
        "by_shard": counts_by_shard,
        VERDICTS: digests,
        "pairs": {
            "verified": sum(part.summary["pairs"] for part in part_manifests),
            "passed": count,
            "cut": sum(part.summary["cut"] for part in part_manifests),
        },
        "similarity": np.sum([part.summary["similarity"] for part in part_manifests], axis=0).tolist(),
        **cluster_summary(dropped, ranking.names),
        "source_exempt": exact_manifest.summary_part("source_exempt"),
        "numeric": by_source,
        "notes": numeric_notes(by_source, common_value([Manifest.read(path) for path in args.signals], "numbers")),
    }
    for note in manifest.summary["notes"]:
        log.warning("%s", note)
    if earlier_shards:  # dropped for a document of an earlier corpus
        manifest.summary["earlier"] = int(
            dropped[ranking.ranks_of(ranking.documents[ranking.documents >= first_document(EARLIER)])].sum()
        )
    return files


main = Program("dedup.select", __doc__, SelectSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
