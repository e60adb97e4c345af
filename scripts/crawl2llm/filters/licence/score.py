"""Read the licence that each document is under, as far as its page, its metadata or its source say.

Signals: `id, source, curated, licence` (a name such as cc-by-sa-4.0; null: none is known), `said` (how: `rel`, `meta`, `json_ld` or
`link` of a page, `metadata` of a row, `source`), `beside` (other licences that it names as well). Texts are not read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.licence import names
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, parquet_file, shard_of, surviving_documents, verdict_file

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        ("licence", pa.string()),
        ("said", pa.string()),
        ("beside", pa.int64()),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    licence_counts: dict[str, int] = {}
    with Writer(out, SIGNAL) as writer:
        for row in surviving_documents(
            parquet_file(args.documents), verdict_file(args.verdicts, shard), ["id", "source", "curated", "metadata"]
        ):
            licence, evidence, others_named = names.licence_of(json.loads(row.pop("metadata") or "{}"))
            if licence is None and (of_source := settings["sources"].get(row["source"])):
                licence, evidence = names.normal_name(of_source), "source"
            writer.add({**row, "licence": licence, "said": evidence, "beside": others_named})
            licence_counts[licence or ""] = licence_counts.get(licence or "", 0) + 1
            progress.add()
    manifest.count_all_kept(progress.done)
    without = licence_counts.pop("", 0)
    manifest.summary = {"licences": dict(sorted(licence_counts.items())), "unknown": without}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "licence.score", __doc__, f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json"
    )
    surviving_texts.add_options(parser)
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
