"""Choose the validation documents: by origin, so that no book and no host is in training and in validation.

Writes `<shard>.parquet`: `id, split` (`train`, `validation`) of every document that all filters kept. How origins are chosen:
text/group_split.py. A training document that is a near-duplicate of a validation document is counted; if it is to be dropped,
its `split` is null, and the row has that document and the similarity. A corpus without a document ends here, with the stage that dropped
the last ones and its reasons.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain.step import stage_of
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import document_numbers, surviving_texts
from crawl2llm.formats.documents import (
    SPLITS,
    Writer,
    add_counts,
    parquet_file,
    rows,
    shard_of,
    surviving_documents,
    verdict_file,
)
from crawl2llm.stages.corpus.leakage import TRAIN, VALIDATION, Leaks, SideByDocument, find_leaks, hex_ids
from crawl2llm.stages.corpus.settings import SplitSettings
from crawl2llm.stages.corpus.split_table import LEAK, SPLIT_TABLE
from crawl2llm.text.group_split import COLUMNS, Split, synthesis_source

REASONS = 12  # named in a message; the rest is counted together


def counts_text(counts: dict[str, int]) -> str:
    """Counts as words, the largest first: `fr 80, en 76, 3 others 5`."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{name} {number:,}" for name, number in order[:REASONS] if number]
    rest = sum(number for _, number in order[REASONS:])
    return ", ".join(words) + (f", {len(order) - REASONS} others {rest:,}" if rest else "")


def empty_reason(documents: list[Path], verdicts: list[Path]) -> str:
    """Why the corpus has no document: the step that dropped the last ones, its reasons and the settings that decide them.

    documents: manifests of ingest.extract. verdicts: those of the steps that judged, in their order; of some one for each shard.
    """
    total: dict[str, Any] = {"in": 0, "kept": 0, "dropped": {}}
    for path in documents:
        add_counts(total, Manifest.read(path).counts)
    if not total["kept"]:
        why = counts_text(total["dropped"])
        return f"the corpus is empty: of {total['in']:,} records ingest.extract kept 0" + (f": {why}" if why else "")
    for paths in surviving_texts.manifests_by_step(verdicts):
        manifests, counts = [Manifest.read(path) for path in paths], dict[str, Any]()
        for manifest in manifests:
            add_counts(counts, manifest.counts)
        if counts["kept"]:
            continue
        subject = f"the corpus is empty: of {counts['in']:,} documents {manifests[0].step} kept 0"
        if manifests[0].step == "language.select":
            languages, wanted = Counter[str](), manifests[0].summary["wanted"]
            for manifest in manifests:
                languages.update(manifest.summary["languages"])
            return (
                f"{subject}: {counts_text(languages)}; language.select.languages is {wanted['languages']}, "
                f"language.select.threshold is {wanted['threshold']}"
            )
        return f"{subject}: {counts_text(counts['dropped'])}"
    return "the corpus is empty"


def near_duplicates(sides: SideByDocument, args: argparse.Namespace, threshold: float) -> Leaks:
    """The training documents that are near-duplicates of validation documents, by the files of dedup."""
    exact = Manifest.read(args.exact[0]).file("duplicates.parquet")
    return find_leaks(sides, [parquet_file(path) for path in args.pairs], exact, threshold)


def drop_leaks(files: dict[int, Path], sides: SideByDocument, leaked: Leaks) -> None:
    """Write the files of the shards with near-duplicates again, without a split of these."""
    facts = {
        name: {"split": None, "duplicate_of": of, "similarity": similarity}
        for name, of, similarity in zip(
            hex_ids(sides, leaked.document),
            hex_ids(sides, leaked.validation_document),
            leaked.similarity.tolist(),
            strict=True,
        )
    }
    for shard in sorted(set(document_numbers.shards_and_rows(leaked.document)[0].tolist())):
        shard_rows = list(rows(files[shard]))
        with Writer(files[shard], SPLIT_TABLE) as writer:
            for row in shard_rows:
                writer.add(row | facts.get(row["id"], {}))


def body(args: argparse.Namespace, settings: SplitSettings, manifest: Manifest) -> list[Path]:
    judging = surviving_texts.manifests_by_step(args.verdicts)
    names_ = [shard_of(path) for path in args.documents]
    last = [verdict_file(surviving_texts.manifest_of_shard(judging[-1], shard), shard) for shard in names_]
    shards = list(zip(map(parquet_file, args.documents), last, names_, strict=True))
    split = Split(settings.validation_fraction, settings.seed, settings.split_by)
    sides = SideByDocument(args.signals) if args.signals else None
    progress = Progress(2 * len(shards), "shards")
    for documents, verdicts, _ in shards:
        for row in surviving_documents(documents, verdicts, COLUMNS):
            split.add(row)
        progress.add()
    if not split.documents + split.synthesized.documents:
        raise InputError(empty_reason(args.documents, args.verdicts))
    split.decide()
    files: dict[int, Path] = {}
    synthesized = {"documents": 0, "heldout": 0}  # texts that a model wrote
    total = held_number = 0
    for documents, verdicts, shard in shards:
        files[int(shard)] = args.manifest.with_name(f"{shard}.parquet")
        ids, held_flags = [], []
        with Writer(files[int(shard)], SPLIT_TABLE) as writer:
            for row in surviving_documents(documents, verdicts, COLUMNS):
                ids.append(row["id"])
                held_flags.append(split.is_held_out(row))
                if synthesis_source(row):
                    synthesized["documents"] += 1
                    synthesized["heldout"] += held_flags[-1]
                writer.add({"id": row["id"], "split": SPLITS[held_flags[-1]]})
        total, held_number = total + len(held_flags), held_number + sum(held_flags)
        if sides:
            sides.set_sides(
                int(shard), document_numbers.binary_ids(ids), np.where(held_flags, VALIDATION, TRAIN).astype(np.uint8)
            )
        progress.add()
    wanted, held_out = settings.validation_fraction, split.summary["heldout"]
    dropped: dict[str, int] = {}
    leaked = None
    if sides:
        leaked_documents = near_duplicates(sides, args, settings.similarity)
        cut = sum(Manifest.read(path).summary_part("cut") for path in args.pairs)
        leaked = {"documents": len(leaked_documents.document), "similarity": settings.similarity, "cut": cut}
        if cut:
            split.notes.append(
                f"{cut:,} pairs of overfull buckets were not measured (dedup.band.max_candidates): training documents that are near "
                "a validation document may be left"
            )
        if len(leaked_documents.document) == total - held_number:
            split.notes.append(
                "every training document is a near-duplicate of a validation document: no document was dropped"
            )
        elif settings.drop_near_duplicates and len(leaked_documents.document):
            drop_leaks(files, sides, leaked_documents)
            dropped[LEAK] = len(leaked_documents.document)
    manifest.counts = {"in": total, "kept": total - sum(dropped.values()), "dropped": dropped}
    filters = [stage_of(Manifest.read_unchecked(paths[0]).step) for paths in judging[1:]]
    manifest.summary = {
        **split.summary,
        "wanted": wanted,
        "near_duplicates": leaked,
        "notes": split.notes,
        "filters": filters,
        **({"synthesized": synthesized} if synthesized["documents"] else {}),
    }
    log.info(
        "validation: %s documents, %.2f %%, by %s", f"{held_out['documents']:,}", 100 * held_out["fraction"], split.by
    )
    if synthesized["documents"]:
        log.info(
            "synthesized: %s documents, on the side of what they are made from: %s for validation",
            f"{synthesized['documents']:,}", f"{synthesized['heldout']:,}",
        )  # fmt: skip
    if leaked:
        log.info(
            "training documents with a similarity of %s or more to a validation document: %s, %s dropped",
            leaked["similarity"], f"{leaked['documents']:,}", f"{sum(dropped.values()):,}",
        )  # fmt: skip
    for note in split.notes:
        log.warning("%s", note)
    return list(files.values())


main = Program("corpus.split", __doc__, SplitSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
