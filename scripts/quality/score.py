"""Score every document of a shard with the quality classifier.

Signals: `id, curated, score`; the score is null where no classifier was trained.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from scripts.common import cli
from scripts.common.console import Progress
from scripts.common.documents import Writer, count, data, shard_of, survivors
from scripts.common.manifest import Manifest
from scripts.quality.classifier import Classifier, one_line

SIGNAL = pa.schema([("id", pa.string()), ("curated", pa.bool_()), ("score", pa.float64())])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    documents = data(args.documents)
    trained = Manifest.read(args.model).sound("model.bin")
    classify = Classifier.load(trained.file("model.bin")) if trained.files else None
    limit = settings["max_characters"]
    out = args.manifest.with_name(documents.name)
    verdicts = data(args.verdicts, shard_of(args.documents))
    progress = Progress(count(verdicts), "documents")
    with Writer(out, SIGNAL) as writer:
        for row in survivors(documents, verdicts, ["id", "curated", "text"]):
            score = classify(one_line(row["text"][:limit])) if classify else None
            writer.add({"id": row["id"], "curated": row["curated"], "score": score})
            progress.add()
    manifest.counts = {"in": progress.done, "kept": progress.done, "dropped": {}}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "quality.score",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/00000.manifest.json "
        "--verdicts results/main/dedup/select/manifest.json --model results/main/quality/train/manifest.json "
        "--manifest /tmp/00000.manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, help="manifest of an ingest.extract shard")
    parser.add_argument("--verdicts", required=True, type=Path, help="manifest of dedup.select")
    parser.add_argument("--model", required=True, type=Path, help="manifest of quality.train")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
