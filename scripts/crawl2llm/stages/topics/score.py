"""Say the topic of every document that ingest.extract wrote, whatever the filters make of it, and how far it is from the topic's centre.

Signals, in the documents' order: `id`, `source`, `topic`, `distance` (1 - cosine, from 0 to 2), `bytes` of its text in UTF-8, `part`: a
hash of where it comes from (its host) in [0, PARTS), by which topics.count keeps pages of a host together. topic: `other` for a language
without topics and for a document without any term of the model; null, as its distance, where topics are by language and language.score
did not see the document.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import ALL, OTHER, PARTS
from crawl2llm.formats.documents import Writer, batches, parquet_file, shard_of, uniform_hash
from crawl2llm.stages.topics.languages import language_by_id
from crawl2llm.stages.topics.model import Models, load_models
from crawl2llm.stages.topics.settings import ScoreSettings
from crawl2llm.stages.topics.terms import terms
from crawl2llm.text.group_split import COLUMNS, origin_of

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("distance", pa.float32()),
        ("bytes", pa.int64()),
        ("part", pa.int8()),
    ]
)


def score_rows(rows: list[dict[str, Any]], models: Models, languages: dict[str, str]) -> None:
    """Put `topic` and `distance` into rows of documents. languages: by id, where the topics are by language."""
    by_language: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        language = languages.get(row["id"]) if models.settings["by"] == "language" else ALL
        row["topic"], row["distance"] = (None, None) if language is None else (OTHER, 1.0)
        if language in models.by_language:
            by_language.setdefault(str(language), []).append(number)
    for language, numbers in by_language.items():
        model, characters = models.by_language[language], models.settings["characters"]
        nearest = model.nearest_topics(
            model.tfidf_matrix([terms(rows[number]["text"][:characters]) for number in numbers])
        )
        for number, topic, distance in zip(numbers, *(part.tolist() for part in nearest), strict=True):
            if topic >= 0:
                rows[number] |= {"topic": model.names[topic], "distance": distance}


def body(args: argparse.Namespace, settings: ScoreSettings, manifest: Manifest) -> list[Path]:
    models, shard = load_models(args.model), shard_of(args.documents)
    languages, seed = language_by_id(args.languages, shard), models.settings["seed"]
    out, counts = args.manifest.with_name(f"{shard}.parquet"), Counter[str]()
    progress = Progress(None, "documents")
    with Writer(out, SIGNAL) as writer:
        for batch in batches(parquet_file(args.documents), [*COLUMNS, "source", "text"]):
            rows = batch.to_pylist()
            score_rows(rows, models, languages)
            for row in rows:
                row["bytes"] = len(row["text"].encode(errors="surrogatepass"))
                row["part"] = int(uniform_hash(seed, origin_of(row), "part") * PARTS)
                writer.add({name: row[name] for name in SIGNAL.names})
                counts[row["topic"] or ""] += 1
                progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"documents": dict(sorted(counts.items()))}
    return [out]


main = Program("topics.score", __doc__, ScoreSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
