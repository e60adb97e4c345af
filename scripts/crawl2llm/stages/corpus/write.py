"""Join the verdicts of all filters over a shard, and write the survivors' text once, edited, shuffled, into the two splits.

Writes `train/<shard>.parquet` and `validation/<shard>.parquet` (documents in the order of a hash of (seed, id)), and
`dropped/<shard>.parquet`: one row for each document that is not in the corpus, with the stage, the rule and the value measured and, for a
duplicate, the kept document and the similarity. Thresholds, and all rules that would drop it, stand in the verdicts of the stage alone: an
edited threshold that moves no document changes nothing here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain.step import stage_of
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.formats import spans
from crawl2llm.formats.documents import (
    DOCUMENT,
    REASON,
    SPLITS,
    VERDICT,
    VERDICT_COLUMNS,
    Writer,
    count_rows,
    open_parquet,
    parquet_file,
    rows,
    shard_of,
    uniform_hash,
    verdict_file,
)
from crawl2llm.formats.spans import EditedText, Span
from crawl2llm.stages.corpus.settings import WriteSettings
from crawl2llm.stages.corpus.split_table import LEAK

BUCKET = 256 << 20  # bytes of text that are sorted in memory at a time
DROPPED = pa.schema(
    [("id", pa.string()), ("stage", pa.string())]
    + [VERDICT.field(name) for name in VERDICT_COLUMNS[REASON] if name not in ("id", "kept")]
    + [("source", pa.string()), ("url", pa.string()), ("bytes", pa.int64())]
)


def verdict_rows(documents: Path, verdicts: list[Path], shard: str) -> dict[str, dict[str, Any]]:
    """id → the verdict that drops it, with its stage; a document that every stage keeps has none.

    documents: the shard's Parquet file. verdicts: manifests of the steps that judged, in their order.

    Raises InputError if a stage judged a document that did not reach it, or passed one over: then the verdicts do
    not belong together.
    """
    dropped: dict[str, dict[str, Any]] = {}
    alive = {row["id"] for row in rows(documents, ["id"])}
    for manifest in verdicts:
        stage, path = stage_of(Manifest.read_unchecked(manifest).step), verdict_file(manifest, shard, REASON)
        judged: set[str] = set()
        kept: set[str] = set()
        for row in rows(path, list(VERDICT_COLUMNS[REASON])):
            judged.add(row["id"])
            if row["kept"]:
                kept.add(row["id"])
            else:
                dropped[row["id"]] = {**row, "stage": stage}
        if judged != alive:
            raise InputError(
                f"{path}: {stage} judged {len(judged)} documents, but {len(alive)} reached it; run the stage again"
            )
        alive = kept
    return dropped


def leak_verdict(choice: dict[str, Any] | None) -> dict[str, Any] | None:
    """As a verdict: what corpus.split dropped as a near-duplicate of a validation document; None for another document.

    choice: its row of SPLIT_TABLE.
    """
    if choice is None or choice["split"]:
        return None
    return {**choice, "stage": "corpus", "rule": LEAK, "value": choice["similarity"]}


def heldout_verdicts(heldout: Path) -> dict[str, dict[str, Any]]:
    """id → the verdict that drops a training document which is like what main holds out. heldout: manifest of corpus.heldout."""
    judged = rows(verdict_file(heldout, shard_of(heldout), REASON), list(VERDICT_COLUMNS[REASON]))
    return {row["id"]: {**row, "stage": "corpus"} for row in judged if not row["kept"]}


def shuffled_tables(
    documents: Path, wanted: dict[str, str], split: str, seed: int, folder: Path, edited: dict[str, list[Span]]
) -> Iterator[pa.Table]:
    """The split's documents as tables, in the order of uniform(seed, id): bucketed on disk, then sorted bucket by bucket.

    wanted: id → split of the survivors. edited: the edits of their texts, by id.
    """
    size = documents.stat().st_size * 4  # a guess at the text's size in memory; only bounds memory, never the result
    number = max(1, math.ceil(size / BUCKET))
    files = [folder / f"{split}-{bucket}.parquet" for bucket in range(number)]
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(path, DOCUMENT)) for path in files]
        for row in rows(documents):
            if wanted.get(row["id"]) == split:
                if row["id"] in edited:
                    row["text"] = EditedText(row["text"], edited[row["id"]]).text
                writers[int(uniform_hash(seed, row["id"], "shuffle") * number)].add(row)
    for path in files:
        with open_parquet(path) as file:
            table = file.read()
        keys = [uniform_hash(seed, name, "shuffle") for name in table.column("id").to_pylist()]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        yield table.take(pa.array(order, type=pa.int64()))


def body(args: argparse.Namespace, settings: WriteSettings, manifest: Manifest) -> list[Path]:
    shard, documents = shard_of(args.manifest), parquet_file(args.documents)
    seed, folder = settings.seed, args.manifest.parent
    split_rows = {row["id"]: row for row in rows(parquet_file(args.split, shard))}
    dropped, edited = verdict_rows(documents, args.verdicts, shard), spans.read(args.edits, shard)
    for path in args.heldout:  # one, if this variant's training text was searched for what main holds out
        dropped |= heldout_verdicts(path)
    changes: dict[str, dict[str, dict[str, int]]] = {}
    reasons: dict[str, int] = {}
    wanted: dict[str, str] = {}
    lengths: dict[str, dict[str, int]] = {"kept": {}, "dropped": {}}
    by_source: dict[str, dict[str, int]] = {}
    progress = Progress(count_rows(documents), "documents")
    table = folder / "dropped" / f"{shard}.parquet"
    with Writer(table, DROPPED) as writer:
        for row in rows(documents, ["id", "source", "url", "text"]):
            progress.add()
            verdict = dropped.get(row["id"]) or leak_verdict(split_rows.get(row["id"]))
            edits = edited.get(row["id"]) if verdict is None else None
            text = EditedText(row["text"], edits).text if edits else row["text"]
            # A power of two of characters, for the histogram of document lengths.
            bin_ = str(2 ** max(0, len(text).bit_length() - 1))
            side = lengths["dropped" if verdict else "kept"]
            side[bin_] = side.get(bin_, 0) + 1
            if verdict:
                reason = f"{verdict['stage']}.{verdict['rule']}"
                reasons[reason] = reasons.get(reason, 0) + 1
                facts = {"source": row["source"], "url": row["url"], "bytes": len(row["text"].encode())}
                writer.add({**verdict, **facts})
                continue
            if row["id"] not in split_rows:
                raise InputError(
                    f"{args.split}: no split for document {row['id']} of shard {shard}; run corpus.split again"
                )
            wanted[row["id"]] = split_rows[row["id"]]["split"]
            source = by_source.setdefault(row["source"], {"documents": 0, "bytes": 0})
            source["documents"] += 1
            source["bytes"] += len(text.encode())
            for (stage, rule), more in spans.count_spans(edits or [], row["text"]).items():
                edit_counts = changes.setdefault(stage, {}).setdefault(rule, dict.fromkeys(more, 0))
                for key, value in more.items():
                    edit_counts[key] += value
    files, sizes = [table], {}
    for split in SPLITS:
        path = folder / split / f"{shard}.parquet"
        sizes[split] = {"documents": 0, "bytes": 0}
        with scratch_folder(folder / f".shuffle-{shard}") as aside, Writer(path, DOCUMENT) as writer:
            for part in shuffled_tables(documents, wanted, split, seed, aside, edited):
                writer.add_table(part)
                sizes[split]["documents"] += len(part)
                sizes[split]["bytes"] += sum(len(text.encode()) for text in part.column("text").to_pylist())
        files.append(path)
    manifest.counts = {"in": progress.done, "kept": len(wanted), "dropped": reasons}
    manifest.summary = {**sizes, "lengths": lengths, "by_source": by_source, "edits": changes}
    return files


main = Program("corpus.write", __doc__, WriteSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
