"""Find the topics of a sample of the crawl: clusters of documents with the same words, named by their terms (stages/topics/fit.py).

Writes the model, `topics.json` and `weights.npz`, and `map.parquet`: a part of the sample with a place on a map, by t-SNE. By language each
that has enough documents in the sample has topics of its own: else the topics of a crawl in many languages would be languages.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import ALL, MAP
from crawl2llm.formats.documents import Writer, batches, count, data, shard_of, texts, uniform
from crawl2llm.stages.topics.fit import Fitted, Sample, fit, placed
from crawl2llm.stages.topics.languages import options, spoken
from crawl2llm.stages.topics.model import Models, save
from crawl2llm.stages.topics.terms import terms

MAPS = 3  # languages that have a map, those with most documents in the sample
POINT = pa.schema(
    [("id", pa.string()), ("model", pa.string()), ("topic", pa.string()), ("x", pa.float64()), ("y", pa.float64())]
)
PLACES = 4  # digits of a place on the map, from 0 to 1


def chosen(paths: list[Path], documents: int, seed: int) -> dict[Path, list[str]]:
    """The ids of a sample of about `documents` documents, by shard: those whose hash is below its share."""
    share = min(1.0, documents / max(sum(count(data(path)) for path in paths), 1))
    found: dict[Path, list[str]] = {}
    for path in paths:
        ids = (name for batch in batches(data(path), ["id"]) for name in batch["id"].to_pylist())
        found[path] = [name for name in ids if uniform(seed, name, "topics") < share]
    return found


def samples(paths: list[Path], languages: list[Path], settings: dict[str, Any]) -> dict[str, Sample]:
    """The sample by language; under ALL where the topics are not by language. What language.score did not see is in none."""
    found: dict[str, Sample] = {}
    progress = Progress(len(paths), "shards")
    for path, ids in chosen(paths, settings["documents"], settings["seed"]).items():
        known = spoken(languages, shard_of(path))
        for name, text in texts(data(path), pa.array(ids, pa.string())):
            language = known.get(name) if settings["by"] == "language" else ALL
            if language is not None:
                found.setdefault(language, Sample()).add(name, terms(text[: settings["characters"]]))
        progress.add()
    return found


def write_map(path: Path, made: dict[str, Fitted], found: dict[str, Sample], settings: dict[str, Any]) -> None:
    """Write the places of documents on the maps of the MAPS largest models, in the order of their hashes."""
    largest = sorted(made, key=lambda name: (-len(found[name].ids), name))[:MAPS] if settings["map"] else []
    with Writer(path, POINT) as writer:
        for name in largest:
            ids, of = found[name].ids, made[name]
            order = sorted(range(len(ids)), key=lambda row: (uniform(settings["seed"], ids[row], "map"), ids[row]))
            order = [row for row in order if of.topics[row] >= 0][: settings["map"]]
            for row, (x, y) in zip(order, placed(of.vectors[order], settings["seed"]).tolist(), strict=True):
                place = {"x": round(x, PLACES), "y": round(y, PLACES)}
                writer.add({"id": ids[row], "model": name, "topic": of.model.names[of.topics[row]], **place})


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    found = samples(args.documents, args.languages, settings)
    made: dict[str, Fitted] = {}
    for name in sorted(found):
        if name != ALL and len(found[name].ids) < settings["least"]:
            continue
        if fitted := fit(found[name], settings, "topic" if name == ALL else name):
            made[name] = fitted
            log.info("%s: %s topics of %s documents", name, len(fitted.named), len(found[name].ids))
    folder = args.manifest.parent
    folder.mkdir(parents=True, exist_ok=True)
    known = {name: settings[name] for name in ("by", "characters", "seed")}
    files = save(Models(known, {name: of.model for name, of in made.items()}), folder)
    write_map(folder / MAP, made, found, settings)
    few = {name: len(sample.ids) for name, sample in sorted(found.items()) if name not in made}
    notes = (
        []
        if made
        else ["There are no topics: the sample has too few documents (topics.train.least, topics.train.documents)."]
    )
    manifest.summary = {
        "documents": {name: len(found[name].ids) for name in sorted(made)},
        "left_out": few,
        "topics": {
            topic: {"model": name, "documents": int((of.topics == number).sum()), "terms": of.named[number]}
            for name, of in sorted(made.items())
            for number, topic in enumerate(of.model.names)
        },
        "notes": notes,
    }
    return [*files, folder / MAP]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "topics.train",
        __doc__,
        "--config config.yaml --documents results/main/ingest/extract/*.manifest.json "
        "--languages results/main/language/score/*.manifest.json --manifest /tmp/topics/manifest.json",
    )
    parser.add_argument("--documents", required=True, type=Path, nargs="+", help="manifests of ingest.extract")
    options(parser)
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
