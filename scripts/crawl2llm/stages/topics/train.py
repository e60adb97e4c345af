"""Find the topics of a sample of the crawl: clusters of documents with the same words, named by their terms (stages/topics/fit.py).

Writes the model, `topics.json` and `weights.npz`, and `map.parquet`: a part of the sample with a place on a map, by t-SNE. By language each
that has enough documents in the sample has topics of its own: else the topics of a crawl in many languages would be languages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import ALL, MAP
from crawl2llm.formats.documents import Writer, batches, count_rows, parquet_file, shard_of, texts_of_ids, uniform_hash
from crawl2llm.stages.topics.fit import FittedTopics, Sample, fit_topics, map_places
from crawl2llm.stages.topics.languages import language_by_id
from crawl2llm.stages.topics.model import Models, save_models
from crawl2llm.stages.topics.settings import TrainSettings
from crawl2llm.stages.topics.terms import terms

MAPS = 3  # languages that have a map, those with most documents in the sample
POINT = pa.schema(
    [("id", pa.string()), ("model", pa.string()), ("topic", pa.string()), ("x", pa.float64()), ("y", pa.float64())]
)
PLACES = 4  # digits of a place on the map, from 0 to 1


def sample_ids(paths: list[Path], documents: int, seed: int) -> dict[Path, list[str]]:
    """The ids of a sample of about `documents` documents, by shard: those whose hash is below its share."""
    share = min(1.0, documents / max(sum(count_rows(parquet_file(path)) for path in paths), 1))
    ids_by_shard: dict[Path, list[str]] = {}
    for path in paths:
        ids = (name for batch in batches(parquet_file(path), ["id"]) for name in batch["id"].to_pylist())
        ids_by_shard[path] = [name for name in ids if uniform_hash(seed, name, "topics") < share]
    return ids_by_shard


def sample_by_language(paths: list[Path], languages: list[Path], settings: TrainSettings) -> dict[str, Sample]:
    """The sample by language; under ALL where the topics are not by language. What language.score did not see is in none."""
    by_language: dict[str, Sample] = {}
    progress = Progress(len(paths), "shards")
    for path, ids in sample_ids(paths, settings.documents, settings.seed).items():
        languages_known = language_by_id(languages, shard_of(path))
        for name, text in texts_of_ids(parquet_file(path), pa.array(ids, pa.string())):
            language = languages_known.get(name) if settings.by == "language" else ALL
            if language is not None:
                by_language.setdefault(language, Sample()).add(name, terms(text[: settings.characters]))
        progress.add()
    return by_language


def write_map(
    path: Path, fitted_by_name: dict[str, FittedTopics], sample_by_name: dict[str, Sample], settings: TrainSettings
) -> None:
    """Write the places of documents on the maps of the MAPS largest models, in the order of their hashes."""
    largest = (
        sorted(fitted_by_name, key=lambda name: (-len(sample_by_name[name].ids), name))[:MAPS] if settings.map else []
    )
    with Writer(path, POINT) as writer:
        for name in largest:
            ids, fitted = sample_by_name[name].ids, fitted_by_name[name]
            order = sorted(range(len(ids)), key=lambda row: (uniform_hash(settings.seed, ids[row], "map"), ids[row]))
            order = [row for row in order if fitted.topics[row] >= 0][: settings.map]
            for row, (x, y) in zip(order, map_places(fitted.vectors[order], settings.seed).tolist(), strict=True):
                place = {"x": round(x, PLACES), "y": round(y, PLACES)}
                writer.add({"id": ids[row], "model": name, "topic": fitted.model.names[fitted.topics[row]], **place})


def body(args: argparse.Namespace, settings: TrainSettings, manifest: Manifest) -> list[Path]:
    sample_by_name = sample_by_language(args.documents, args.languages, settings)
    fitted_by_name: dict[str, FittedTopics] = {}
    for name in sorted(sample_by_name):
        if name != ALL and len(sample_by_name[name].ids) < settings.least:
            continue
        if fitted := fit_topics(sample_by_name[name], settings, "topic" if name == ALL else name):
            fitted_by_name[name] = fitted
            log.info("%s: %s topics of %s documents", name, len(fitted.topic_terms), len(sample_by_name[name].ids))
    folder = args.manifest.parent
    folder.mkdir(parents=True, exist_ok=True)
    score_settings = settings.model_dump(include={"by", "characters", "seed"})
    files = save_models(Models(score_settings, {name: of.model for name, of in fitted_by_name.items()}), folder)
    write_map(folder / MAP, fitted_by_name, sample_by_name, settings)
    few = {name: len(sample.ids) for name, sample in sorted(sample_by_name.items()) if name not in fitted_by_name}
    notes = (
        []
        if fitted_by_name
        else ["There are no topics: the sample has too few documents (topics.train.least, topics.train.documents)."]
    )
    manifest.summary = {
        "documents": {name: len(sample_by_name[name].ids) for name in sorted(fitted_by_name)},
        "left_out": few,
        "topics": {
            topic: {"model": name, "documents": int((of.topics == number).sum()), "terms": of.topic_terms[number]}
            for name, of in sorted(fitted_by_name.items())
            for number, topic in enumerate(of.model.names)
        },
        "notes": notes,
    }
    return [*files, folder / MAP]


main = Program("topics.train", __doc__, TrainSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
