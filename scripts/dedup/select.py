"""Drop exact duplicates, and every document that is a verified near-duplicate of a kept one.

Documents are judged in the order of their priority: one is dropped if and only if some document of higher priority is
kept and their similarity is `threshold` or more (the lexicographically first maximal independent set of the graph of
pairs). Nothing is merged over a chain: in a ~ b ~ c with a unlike c, b goes for a, and c stays. `duplicate_of` is the
most similar kept document. An exact duplicate whose keeper goes is a near-duplicate of what its keeper went for.

Rules: `exact` (byte-equal to `duplicate_of`; value 1) and `near` (value: the Jaccard similarity with it). Memory: about 250 bytes for each
pair that passes the threshold, and 100 for each duplicate.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scripts.dedup.tables import DUPLICATE, VERIFIED, column, read
from scripts.formats.documents import VERDICT, Writer, add_counts, data, shard_of
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest

CHUNK = 1 << 16  # pairs as Python numbers at a time
LARGEST = 20  # clusters that the summary names


DROP = pa.schema(
    [
        ("shard", pa.int32()),  # place of its shard among the inputs
        ("id", pa.string()),
        ("duplicate_of", pa.string()),
        ("similarity", pa.float64()),
        ("exact", pa.bool_()),  # which rules drop it
        ("near", pa.bool_()),
    ]
)
RULES = pa.array([[], ["exact"], ["near"], ["near", "exact"]], pa.list_(pa.string()))


def greedy(
    low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], similarity: npt.NDArray[np.float64], nodes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Which documents go, and for which: (keeper, similarity), (nodes,) each; keeper −1 where a document stays.

    Documents are numbered by priority, 0 first, so that high < low in every pair. Pairs may come in any order.
    """
    keeper, value = np.full(nodes, -1, np.int64), np.full(nodes, np.nan)
    # Within a document the best partner first: the most similar, then the one of highest priority.
    order = np.lexsort((high, -similarity, low))
    gone = bytearray(nodes)
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        for one, other, measured in zip(
            low[part].tolist(), high[part].tolist(), similarity[part].tolist(), strict=True
        ):
            # All pairs of `other` as the lower document came before: its fate is settled.
            if not gone[one] and not gone[other]:
                gone[one] = 1
                keeper[one], value[one] = other, measured
    return keeper, value


def near_duplicates(pairs: pa.Table) -> pa.Table:
    """The near-duplicates that go (DROP), from the pairs that pass the threshold: VERIFIED and the lower one's `shard`."""
    ids = pa.chunked_array(pairs["id_low"].chunks + pairs["id_high"].chunks, pa.string())
    coded = ids.combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    priorities = np.zeros(len(coded.dictionary), np.int64)
    priorities[codes] = np.concatenate((column(pairs, "priority_low"), column(pairs, "priority_high")))
    table = pa.table({"priority": priorities, "id": coded.dictionary})
    order = pc.sort_indices(table, sort_keys=[("priority", "ascending"), ("id", "ascending")])
    rank = np.empty(len(table), np.int64)
    rank[order.to_numpy()] = np.arange(len(table))
    ends = rank[codes].reshape(2, -1)
    low, high = ends.max(axis=0), ends.min(axis=0)
    keeper, value = greedy(low, high, column(pairs, "similarity"), len(table))
    shards = np.zeros(len(table), np.int32)
    shards[low] = column(pairs, "shard")
    gone, names = np.flatnonzero(keeper >= 0), table["id"].take(order)
    return drops(shards[gone], names.take(pa.array(gone)), names.take(pa.array(keeper[gone])), value[gone], near=True)


def drops(
    shard: npt.NDArray, ids: Any, keepers: Any, similarity: Any, exact: bool = False, near: bool | npt.NDArray = False
) -> pa.Table:
    """A table (DROP) of its columns; one value of `exact` and `near` for all rows, or one each."""
    flags = {"exact": np.full(len(shard), exact), "near": np.broadcast_to(near, len(shard))}
    return pa.table({"shard": shard, "id": ids, "duplicate_of": keepers, "similarity": similarity, **flags}).cast(DROP)


def exact_duplicates(copies: pa.Table, near: pa.Table, drop: bool) -> pa.Table:
    """The exact duplicates that go (DROP), each a duplicate of a kept document.

    copies: DUPLICATE and `shard`. near: from `near_duplicates`. drop: whether byte-equal text is a reason; if not, a
    copy goes only where its keeper goes, under that rule.
    """
    at = pc.index_in(copies["duplicate_of"], value_set=near["id"])
    keeper = pc.coalesce(near["duplicate_of"].take(at), copies["duplicate_of"])
    similarity = pc.coalesce(near["similarity"].take(at), pa.scalar(1.0))
    table = drops(column(copies, "shard"), copies["id"], keeper, similarity, drop, at.is_valid().to_numpy())
    return table if drop else table.filter(table["near"])


def verdicts(ids: pa.ChunkedArray, gone: pa.Table, threshold: float) -> pa.Table:
    """The verdicts (VERDICT) on a shard's documents in their order. gone: its rows of DROP.

    Raises InputError where a row of `gone` is not among the documents.
    """
    at = pc.index_in(gone["id"], value_set=ids)
    if at.null_count:
        raise cli.InputError(
            f"{at.null_count} duplicates are not in the signatures of their shard; run dedup.exact again"
        )
    row = np.full(len(ids), -1)
    row[at.to_numpy()] = np.arange(len(gone))
    kept = row < 0
    exact, near = column(gone, "exact"), column(gone, "near")
    rules = np.zeros(len(ids), np.int64)
    rules[~kept] = (exact + 2 * near)[row[~kept]]
    columns = pa.table(
        {
            # Under both rules it is `near`: `duplicate_of` is then what the byte-equal document went for.
            "rule": pc.if_else(gone["near"], "near", "exact"),
            "value": gone["similarity"],
            "threshold": np.where(near, threshold, 1.0),
            "detail": pa.nulls(len(gone), pa.string()),
            "duplicate_of": gone["duplicate_of"],
            "similarity": gone["similarity"],
        }
    ).take(pa.array(row, mask=kept))
    table = columns.append_column("id", ids).append_column("kept", pa.array(kept))
    return table.append_column("rules", RULES.take(pa.array(rules))).select(VERDICT.names).cast(VERDICT)


def clusters(keepers: pa.ChunkedArray) -> dict[str, Any]:
    """How many clusters have 2, 3–4, 5–8 … documents, and the largest clusters."""
    counts = pc.value_counts(keepers.combine_chunks())
    table = pa.table({"keeper": counts.field("values"), "size": pc.add(counts.field("counts"), 1)})
    table = table.sort_by([("size", "descending"), ("keeper", "ascending")])
    powers = np.bincount(np.ceil(np.log2(column(table, "size"))).astype(int)).tolist()
    names = [f"{2 ** (power - 1) + 1}-{2**power}" if power > 1 else "2" for power in range(len(powers))]
    return {
        "clusters": len(table),
        "cluster_sizes": {name: number for name, number in zip(names, powers, strict=True) if number},
        "largest": table.slice(0, LARGEST).to_pylist(),
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    threshold = settings["threshold"]
    measured = [Manifest.read(path) for path in args.pairs]
    place = {shard_of(path): at for at, path in enumerate(args.signals)}
    passing = [("similarity", ">=", threshold)]
    pairs = pa.concat_tables(
        tagged(read(data(path), VERIFIED.names, filters=passing), place[shard_of(path)]) for path in args.pairs
    )
    near = near_duplicates(pairs if settings["near"] else pairs.slice(0, 0))
    copies = pa.concat_tables(
        tagged(read(data(args.exact, shard_of(path)), DUPLICATE.names), at) for at, path in enumerate(args.signals)
    )
    gone = pa.concat_tables([near, exact_duplicates(copies, near, settings["exact"])])
    gone = gone.sort_by([("shard", "ascending"), ("id", "ascending")])
    bounds = np.searchsorted(column(gone, "shard"), np.arange(len(args.signals) + 1)).tolist()

    files: list[Path] = []
    total: dict[str, Any] = {}
    by_shard: dict[str, Any] = {}
    progress = Progress(len(args.signals), "shards")
    for path, start, end in zip(args.signals, bounds[:-1], bounds[1:], strict=True):
        shard = shard_of(path)
        table = verdicts(read(data(path), ["id"])["id"], gone.slice(start, end - start), threshold)
        files.append(args.manifest.with_name(f"{shard}.parquet"))
        with Writer(files[-1], VERDICT) as writer:
            writer.add_table(table)
        dropped = {rule: pc.sum(pc.equal(table["rule"], rule)).as_py() or 0 for rule in ("exact", "near")}
        kept = len(table) - sum(dropped.values())
        by_shard[shard] = {"in": len(table), "kept": kept, "dropped": dropped}
        add_counts(total, by_shard[shard])
        progress.add()
    manifest.counts = total
    manifest.summary = {
        "by_shard": by_shard,
        "pairs": {
            "verified": sum(part.summary["pairs"] for part in measured),
            "passed": len(pairs),
            "cut": sum(part.summary["cut"] for part in measured),
        },
        "similarity": np.sum([part.summary["similarity"] for part in measured], axis=0).tolist(),
        **clusters(gone["duplicate_of"]),
    }
    return files


def tagged(table: pa.Table, shard: int) -> pa.Table:
    """The table with the number of its shard in a column `shard`."""
    return table.append_column("shard", pa.array(np.full(len(table), shard, np.int32)))


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "dedup.select",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json"
        " --exact results/main/dedup/exact/manifest.json --pairs results/main/dedup/verify/*.manifest.json"
        " --manifest /tmp/select/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    parser.add_argument("--exact", required=True, type=Path, help="manifest of dedup.exact")
    parser.add_argument("--pairs", required=True, type=Path, nargs="+", help="manifests of dedup.verify")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
