"""Find what a variant must not train on, since all variants are measured on it: what main holds out, and near-duplicates of that.

Writes `<shard>.parquet`: a verdict on each training document of the shard. `heldout_document` is one that main holds out itself,
`heldout_origin` another of an origin that it holds out, or what a model wrote of such a document, `near_heldout` a near-duplicate of one
(stages/corpus/overlap.py); `duplicate_of` is that document. corpus.write drops them from the training text. The variant's own validation
documents are not judged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import spans
from crawl2llm.formats.documents import VERDICT, VERDICTS, Writer, parquet_file, rows, shard_of, verdict_digests
from crawl2llm.stages.corpus.overlap import Reference, ReferenceTask, row_batches
from crawl2llm.stages.corpus.settings import HeldoutSettings
from crawl2llm.stages.corpus.split_table import DOCUMENT_HELD, NEAR_HELD, ORIGIN_HELD
from crawl2llm.text.group_split import COLUMNS, origin_of, synthesis_source

Row = dict[str, Any]


def verdict_row(name: str, rule: str | None, duplicate_of: str | None = None, similarity: float | None = None) -> Row:
    """A row of VERDICT; without a rule of a document that is kept."""
    return {
        **dict.fromkeys(VERDICT.names),
        "id": name,
        "kept": rule is None,
        "rule": rule,
        "rules": [rule] if rule else [],
        "duplicate_of": duplicate_of,
        "similarity": similarity,
    }


def heldout_verdict(row: Row, reference: Reference) -> Row | None:
    """The verdict on a document that main holds out, on what a model wrote of one, and on one of whose origin main holds out others.

    None for any other. row: COLUMNS.
    """
    if row["id"] in reference.known_ids:
        return verdict_row(row["id"], DOCUMENT_HELD, row["id"])
    if (written_from := synthesis_source(row)) and written_from[
        "seed"
    ] in reference.known_ids:  # also where main splits by document
        return verdict_row(row["id"], ORIGIN_HELD, str(written_from["seed"]))
    if reference.origins and (heldout_id := reference.origins.get(origin_of(row))):
        return verdict_row(row["id"], ORIGIN_HELD, heldout_id)
    return None


def judge_documents(documents: list[Row], reference: Reference) -> Iterator[Row]:
    """The verdicts on some documents, in their order. documents: `text` and COLUMNS."""
    verdicts = [heldout_verdict(row, reference) for row in documents]
    unjudged = [row for row, result in zip(documents, verdicts, strict=True) if result is None]
    nearest_held = iter(reference.nearest_documents([row["text"] for row in unjudged]))
    for row, verdict in zip(documents, verdicts, strict=True):
        if verdict is None and (nearest := next(nearest_held)):
            verdict = verdict_row(row["id"], NEAR_HELD, *nearest)
            verdict |= {"value": nearest[1], "threshold": reference.similarity}
        yield verdict or verdict_row(row["id"], None)


def read_documents(documents: Path, wanted: set[str], edits: list[Path], shard: str) -> Iterator[Row]:
    """The wanted documents of a shard as their variant would train on them, in its order."""
    edited = spans.read(edits, shard)
    for row in rows(documents, [*COLUMNS, "text"]):
        if row["id"] in wanted:
            if row["id"] in edited:
                row["text"] = spans.EditedText(row["text"], edited[row["id"]]).text
            yield row


def body(args: argparse.Namespace, settings: HeldoutSettings, manifest: Manifest) -> list[Path]:
    shard, reference_manifest = shard_of(args.manifest), Manifest.read(args.reference)
    compared_by = ReferenceTask.model_validate(reference_manifest.summary_part("settings"))
    reference = Reference(reference_manifest.file("reference.parquet"), compared_by)
    wanted = {row["id"] for row in rows(parquet_file(args.split, shard), ["id", "split"]) if row["split"] == "train"}
    out, kept, dropped = args.manifest.with_name(f"{shard}.parquet"), 0, dict[str, int]()
    progress = Progress(len(wanted), "training documents")
    with Writer(out, VERDICT) as writer:
        for documents in row_batches(read_documents(parquet_file(args.documents), wanted, args.edits, shard)):
            for judgement in judge_documents(documents, reference):
                writer.add(judgement)
                kept += judgement["kept"]
                if not judgement["kept"]:
                    dropped[judgement["rule"]] = dropped.get(judgement["rule"], 0) + 1
                progress.add()
    manifest.counts = {"in": len(wanted), "kept": kept, "dropped": dropped}
    manifest.summary = {
        "reference": len(reference.ids),
        "similarity": reference.similarity,
        VERDICTS: {shard: verdict_digests(out)},
    }
    return [out]


main = Program("corpus.heldout", __doc__, HeldoutSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
