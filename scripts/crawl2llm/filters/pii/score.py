"""Find the personal data in every document: e-mail and public IP addresses, phone numbers, IBANs, card numbers, national ids, keys.

Signals: `id, source, curated` and how many of each kind were found. `found/<shard>.parquet` says where, in the documents' order: `id,
start, end` (characters of the original text), `kind`, `detail`; never what stands there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.pii.detect import Detector
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.settings import ScoreSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of, sidecar_file
from crawl2llm.formats.labels_by_document import language_lookup

SIGNAL = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_()), *((kind, pa.int64()) for kind in KINDS)]
)
FINDING_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("start", pa.int64()),  # first character, from 0
        ("end", pa.int64()),  # the character after the last
        ("kind", pa.string()),
        ("detail", pa.string()),
    ]
)


def body(args: argparse.Namespace, settings: ScoreSettings, manifest: Manifest) -> list[Path]:
    language_of = language_lookup(args.languages, args.documents)
    detect = Detector(settings.kinds, settings.regions)
    out, places = args.manifest.with_name(f"{shard_of(args.documents)}.parquet"), sidecar_file(args.manifest, "found")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    total: dict[str, dict[str, int]] = {}
    with Writer(out, SIGNAL) as writer, Writer(places, FINDING_SCHEMA) as findings:
        for row in surviving_texts.texts(
            args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True
        ):
            language = language_of(row["id"])
            counts = dict.fromkeys(KINDS, 0)
            for finding in detect(row["text"], language):
                start, end = row["original"](finding.start, finding.end)
                findings.add(
                    {"id": row["id"], "start": start, "end": end, "kind": finding.kind, "detail": finding.detail}
                )
                counts[finding.kind] += 1
                counts_by_detail = total.setdefault(finding.kind, {})
                counts_by_detail[finding.detail] = counts_by_detail.get(finding.detail, 0) + 1
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **counts})
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"found": {kind: dict(sorted(total[kind].items())) for kind in sorted(total)}}
    return [out, places]


main = Program("pii.score", __doc__, ScoreSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
