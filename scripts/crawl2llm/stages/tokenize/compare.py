"""Measure a ready tokenizer beside one of as many entries that is trained on this corpus: bytes per token by language, and speed.

Both encode the same validation text. The other one is the BPE that tokenize.train would make of its sample, of which TRAIN_BYTES are
taken; no step uses it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows, shard_of
from crawl2llm.formats.labels_by_document import languages_by_id
from crawl2llm.stages.tokenize.engine import choose_engine
from crawl2llm.stages.tokenize.settings import CompareSettings
from crawl2llm.stages.tokenize.train import cut_long_pieces, train_bpe, training_texts, untrained_tokenizer
from crawl2llm.stages.tokenize.unigram import piece_expression

TRAIN_BYTES = 200_000_000  # of the sample: minutes of training at most
LANGUAGE_BYTES = 1_000_000  # of validation text that a language is measured on
READ_BYTES = 100_000_000  # of validation text that is looked through for languages
READY, OWN = "ready", "own"  # the two tokenizers in the summary


class Task(CompareSettings):
    """What the program is given: the sample of tokenize.train, and how it cuts text, which a ready tokenizer leaves at its defaults."""

    train_bytes: int
    seed: int
    digits: int
    marks: str


def validation_texts(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(language, text) of validation documents, up to LANGUAGE_BYTES of each; "" where no step found languages."""
    measured: dict[str, int] = {}
    read = 0
    languages = {shard_of(path): path for path in args.languages}
    for path in args.corpus:
        shard = shard_of(path)
        language_of = languages_by_id([languages[shard]] if shard in languages else [])
        for row in rows(Manifest.read(path).file(f"validation/{shard}.parquet"), ["id", "text"]):
            language, size = language_of.get(row["id"], ""), len(row["text"].encode())
            read += size
            if measured.get(language, 0) < LANGUAGE_BYTES:
                measured[language] = measured.get(language, 0) + size
                yield language, row["text"]
        if read >= READ_BYTES:
            return


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    file = Manifest.read(args.tokenizer).verify_files("tokenizer.json").file("tokenizer.json")
    ready = Tokenizer.from_file(str(file))
    texts, _ = training_texts(args, min(settings.train_bytes, TRAIN_BYTES), settings.seed)
    empty = untrained_tokenizer(settings.digits, settings.marks)
    corpus_tokenizer = train_bpe(cut_long_pieces(texts, piece_expression(empty)), empty, ready.get_vocab_size())
    engines = {READY: choose_engine("auto", ready), OWN: choose_engine("auto", corpus_tokenizer)}
    seconds = dict.fromkeys(engines, 0.0)
    by_language: dict[str, dict[str, int]] = {}
    for language, text in validation_texts(args):
        counts = by_language.setdefault(language, dict.fromkeys(("documents", "bytes", *engines), 0))
        counts["documents"] += 1
        counts["bytes"] += len(text.encode())
        for name, engine in engines.items():
            began = time.monotonic()
            counts[name] += len(engine.encode([text])[0])
            seconds[name] += time.monotonic() - began
    size = sum(counts["bytes"] for counts in by_language.values())
    manifest.summary = {
        "vocabulary": {READY: ready.get_vocab_size(), OWN: corpus_tokenizer.get_vocab_size()},
        "by_language": dict(sorted(by_language.items(), key=lambda item: (-item[1]["bytes"], item[0]))),
        "engines": {name: engine.name for name, engine in engines.items()},
    }
    manifest.run["megabytes_per_second"] = {name: round(size / 1e6 / max(seconds[name], 1e-9), 3) for name in engines}
    for name in engines:
        tokens = sum(counts[name] for counts in by_language.values())
        log.info(
            "%s: %.3f bytes per token, %.2f MB/s",
            name,
            size / max(tokens, 1),
            manifest.run["megabytes_per_second"][name],
        )
    return []


main = Program("tokenize.compare", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
