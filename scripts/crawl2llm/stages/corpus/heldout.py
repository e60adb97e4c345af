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

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import spans
from crawl2llm.formats.documents import VERDICT, VERDICTS, Writer, data, rows, shard_of, verdict_digests
from crawl2llm.stages.corpus.overlap import Reference, batched
from crawl2llm.stages.corpus.split_table import DOCUMENT_HELD, NEAR_HELD, ORIGIN_HELD
from crawl2llm.text.group_split import COLUMNS, made_from, origin

Row = dict[str, Any]


def verdict(name: str, rule: str | None, of: str | None = None, similarity: float | None = None) -> Row:
    """A row of VERDICT; without a rule of a document that is kept."""
    return {
        **dict.fromkeys(VERDICT.names),
        "id": name,
        "kept": rule is None,
        "rule": rule,
        "rules": [rule] if rule else [],
        "duplicate_of": of,
        "similarity": similarity,
    }


def known(row: Row, reference: Reference) -> Row | None:
    """The verdict on a document that main holds out, on what a model wrote of one, and on one of whose origin main holds out others.

    None for any other. row: COLUMNS.
    """
    if row["id"] in reference.known:
        return verdict(row["id"], DOCUMENT_HELD, row["id"])
    if (made := made_from(row)) and made["seed"] in reference.known:  # also where main splits by document
        return verdict(row["id"], ORIGIN_HELD, str(made["seed"]))
    if reference.origins and (of := reference.origins.get(origin(row))):
        return verdict(row["id"], ORIGIN_HELD, of)
    return None


def judged(found: list[Row], reference: Reference) -> Iterator[Row]:
    """The verdicts on some documents, in their order. found: `text` and COLUMNS."""
    before = [known(row, reference) for row in found]
    left = [row for row, said in zip(found, before, strict=True) if said is None]
    near = iter(reference.nearest([row["text"] for row in left]))
    for row, said in zip(found, before, strict=True):
        if said is None and (nearest := next(near)):
            said = verdict(row["id"], NEAR_HELD, *nearest)
            said |= {"value": nearest[1], "threshold": reference.similarity}
        yield said or verdict(row["id"], None)


def read(documents: Path, wanted: set[str], edits: list[Path], shard: str) -> Iterator[Row]:
    """The wanted documents of a shard as their variant would train on them, in its order."""
    edited = spans.read(edits, shard)
    for row in rows(documents, [*COLUMNS, "text"]):
        if row["id"] in wanted:
            if row["id"] in edited:
                row["text"] = spans.Edited(row["text"], edited[row["id"]]).text
            yield row


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard, made = shard_of(args.manifest), Manifest.read(args.reference)
    reference = Reference(made.file("reference.parquet"), made.part("settings"))
    wanted = {row["id"] for row in rows(data(args.split, shard), ["id", "split"]) if row["split"] == "train"}
    out, kept, dropped = args.manifest.with_name(f"{shard}.parquet"), 0, dict[str, int]()
    progress = Progress(len(wanted), "training documents")
    with Writer(out, VERDICT) as writer:
        for found in batched(read(data(args.documents), wanted, args.edits, shard)):
            for said in judged(found, reference):
                writer.add(said)
                kept += said["kept"]
                if not said["kept"]:
                    dropped[said["rule"]] = dropped.get(said["rule"], 0) + 1
                progress.add()
    manifest.counts = {"in": len(wanted), "kept": kept, "dropped": dropped}
    manifest.summary = {
        "reference": len(reference.ids),
        "similarity": reference.similarity,
        VERDICTS: {shard: verdict_digests(out)},
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "corpus.heldout",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/00000.manifest.json "
        "--split results/main/corpus/split/manifest.json --reference results/main/corpus/reference/manifest.json "
        "--manifest /tmp/heldout/00000.manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, help="manifest of an ingest.extract shard")
    parser.add_argument("--edits", type=Path, nargs="*", default=[], help="manifests of the steps that edit texts")
    parser.add_argument("--split", required=True, type=Path, help="manifest of corpus.split")
    parser.add_argument("--reference", required=True, type=Path, help="manifest of corpus.reference")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
