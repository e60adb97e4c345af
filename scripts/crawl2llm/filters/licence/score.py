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
from crawl2llm.formats.documents import Writer, data, shard_of, survivors, verdict_file

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
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    found: dict[str, int] = {}
    with Writer(out, SIGNAL) as writer:
        for row in survivors(
            data(args.documents), verdict_file(args.verdicts, shard), ["id", "source", "curated", "metadata"]
        ):
            licence, said, beside = names.of(json.loads(row.pop("metadata") or "{}"))
            if licence is None and (of_source := settings["sources"].get(row["source"])):
                licence, said = names.normal(of_source), "source"
            writer.add({**row, "licence": licence, "said": said, "beside": beside})
            found[licence or ""] = found.get(licence or "", 0) + 1
            progress.add()
    manifest.counts = {"in": progress.done, "kept": progress.done, "dropped": {}}
    without = found.pop("", 0)
    manifest.summary = {"licences": dict(sorted(found.items())), "unknown": without}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "licence.score", __doc__, f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json"
    )
    surviving_texts.options(parser)
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
