"""Score every document of a shard with the quality classifier.

Signals: `id, source, curated, score`; the score is null if no classifier was trained.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality.classifier import Classifier, one_line
from crawl2llm.filters.quality.settings import ScoreSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of

SIGNAL = pa.schema([("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_()), ("score", pa.float64())])


def body(args: argparse.Namespace, settings: ScoreSettings, manifest: Manifest) -> list[Path]:
    trained = Manifest.read(args.model).verify_files("model.bin")
    classify = Classifier.load(trained.file("model.bin")) if trained.files else None
    limit = settings.max_characters
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            score = classify(one_line(row["text"][:limit])) if classify else None
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, "score": score})
            progress.add()
    manifest.count_all_kept(progress.done)
    return [out]


main = Program("quality.score", __doc__, ScoreSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
