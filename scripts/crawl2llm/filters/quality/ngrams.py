"""What the quality classifier learnt: the words and bigrams that speak most for curated documents, and most against.

A fastText classifier of two labels says log(p / (1 - p)) = the mean, over the words and word n-grams of a text, of x · (o⁺ - o⁻), where x
is the n-gram's row of the input matrix and o the labels' rows of the output matrix (Joulin et al. 2016, arXiv:1607.01759). That product is
the effect of an n-gram. Words have rows of their own; longer n-grams share `buckets` rows by hash, so only those that occur in a
sample of documents are looked at.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE, Classifier, one_line
from crawl2llm.filters.quality.settings import NgramsSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import count_rows, parquet_file, shard_of, uniform_hash

END = "</s>"  # fastText's word for the end of a line
MOST_WORDS = 2000  # of a document, from its beginning


def hash_of_word(word: str) -> int:
    """fastText's hash of a word (dictionary.cc, hash): FNV-1a of 32 bits over bytes with a sign, as a signed number."""
    value = 2166136261
    for byte in word.encode():
        value = ((value ^ (byte | (0xFFFFFF00 if byte > 127 else 0))) * 16777619) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def ngram_bucket(words: Sequence[str], buckets: int) -> int:
    """The bucket of a word n-gram (dictionary.cc, addWordNgrams): in 64 bits without a sign, hashes of words with one."""
    value = hash_of_word(words[0])
    for word in words[1:]:
        value = (value * 116049371 + hash_of_word(word)) & 0xFFFFFFFFFFFFFFFF
    return (value & 0xFFFFFFFFFFFFFFFF) % buckets


def word_ngrams(words: Sequence[str], longest: int) -> Iterator[tuple[str, ...]]:
    """The n-grams of words, from two words to `longest`."""
    for first in range(len(words)):
        for length in range(2, min(longest, len(words) - first) + 1):
            yield tuple(words[first : first + length])


class Effects:
    """The effect of words and n-grams on the log-odds of `curated`."""

    def __init__(self, classifier: Classifier) -> None:
        self.model = classifier.model.f
        options, output = self.model.getArgs(), np.asarray(self.model.getOutputMatrix())
        labels = classifier.model.labels
        self.difference = output[labels.index(POSITIVE)] - output[labels.index(NEGATIVE)]
        self.words, self.buckets, self.longest = len(classifier.model.words), options.bucket, options.wordNgrams
        self.vector = classifier.model.get_input_vector

    def effect_of_word(self, word: str) -> float | None:
        """The effect of a word; None for one that the model does not know."""
        place = self.model.getWordId(word)
        return float(self.vector(place) @ self.difference) if place >= 0 else None

    def effect_of_ngram(self, words: Sequence[str]) -> float:
        """The effect of an n-gram of two words or more, and of all that share its bucket."""
        return float(self.vector(self.words + ngram_bucket(words, self.buckets)) @ self.difference)

    def log_odds(self, line: str) -> float:
        """log(p / (1 - p)) of a line: the mean effect of its words, its end and its n-grams."""
        words = [*line.split(), END]
        effects = [effect for word in words if (effect := self.effect_of_word(word)) is not None]
        effects += [self.effect_of_ngram(ngram) for ngram in word_ngrams(words, self.longest)]
        return float(np.mean(effects))


def strongest_ngrams(
    documents: Counter[tuple[str, ...]], effects: Effects, number: int, min_documents: int
) -> dict[str, list[dict[str, Any]]]:
    """The `number` words and n-grams with the highest effects (`for`) and the lowest (`against`), of those in `min_documents` documents or
    more.
    """
    ranked_ngrams = []
    for words, times in documents.items():
        if times >= min_documents:
            effect = effects.effect_of_word(words[0]) if len(words) == 1 else effects.effect_of_ngram(words)
            if effect is not None:
                ranked_ngrams.append((effect, " ".join(words), times))
    ranked_ngrams.sort(key=lambda entry: (-entry[0], entry[1]))

    def effect_rows(entries: list[tuple[float, str, int]]) -> list[dict[str, Any]]:
        return [{"ngram": text, "effect": round(effect, 4), "documents": times} for effect, text, times in entries]

    return {
        "for": effect_rows([ngram for ngram in ranked_ngrams if ngram[0] > 0][:number]),
        "against": effect_rows([ngram for ngram in reversed(ranked_ngrams) if ngram[0] < 0][:number]),
    }


def body(args: argparse.Namespace, settings: NgramsSettings, manifest: Manifest) -> list[Path]:
    trained = Manifest.read(args.model).verify_files("model.bin")
    if not trained.files:
        manifest.summary = {"documents": 0, "strongest": {}}
        return []
    effects = Effects(Classifier.load(trained.file("model.bin")))
    share = min(1.0, settings.documents / max(sum(count_rows(parquet_file(path)) for path in args.documents), 1))
    document_counts, documents_read = Counter[tuple[str, ...]](), 0
    progress = Progress(len(args.documents), "shards")
    for path in args.documents:
        verdicts = surviving_texts.manifest_of_shard(args.verdicts, shard_of(path))
        for row in surviving_texts.texts(path, verdicts, args.edits, []):
            if uniform_hash(settings.seed, row["id"], "ngrams") >= share:
                continue
            documents_read += 1
            words = one_line(row["text"]).split()[:MOST_WORDS]
            document_counts.update({(word,) for word in words} | set(word_ngrams(words, effects.longest)))
        progress.add()
    manifest.summary = {
        "documents": documents_read,
        "min_documents": settings.min_documents,
        "strongest": strongest_ngrams(document_counts, effects, settings.number, settings.min_documents),
    }
    return []


main = Program("quality.ngrams", __doc__, NgramsSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
