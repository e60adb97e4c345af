"""What n-grams, counted on training text, and compressors reach: on the tasks, and in bits per byte of the held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.measures import cut
from crawl2llm.stages.evaluate import compressors
from crawl2llm.stages.evaluate.documents import LONGEST, ranked, text_of, tokens
from crawl2llm.stages.evaluate.ngrams import Counts
from crawl2llm.training.heldout import Document
from crawl2llm.training.special_tokens import EOS

NGRAMS = ("unigram", "bigram")
OWN = "counted"  # the salt of what is taken of the training split


def counted(manifests: list[Path], settings: dict[str, Any], tokenizer: Tokenizer) -> tuple[Counts, list[bytes]]:
    """(counts of the training documents of the lowest hash, texts of the first of these for zstd's dictionary)."""
    most: int = settings["counted_tokens"]
    chosen, _ = ranked(manifests, "train", most, settings["seed"], OWN, lambda document: document.tokens)
    samples: list[bytes] = []
    if (eos := tokenizer.token_to_id(EOS)) is None:
        raise InputError(f"the tokenizer has no {EOS}, with which documents end")

    def ids() -> Iterator[Any]:
        size = 0
        progress = Progress(len(chosen), "training documents")
        for document, found in tokens(chosen, most):
            if size < compressors.SAMPLES:
                samples.append(text_of(tokenizer, document, found[:LONGEST]).encode())
                size += len(samples[-1])
            yield found
            progress.add()

    return Counts(ids(), tokenizer.get_vocab_size(), eos, most), samples


def likelihoods(counts: Counts, tokenizer: Tokenizer, rows: Iterable[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """By n-gram model: the log-likelihood of each choice of each row, in nats."""
    found: dict[str, list[list[float]]] = {name: [] for name in NGRAMS}
    for item in rows:
        before, choices = cut(lambda text: tokenizer.encode(text).ids, item["context"], item["choices"])
        last = before[-1] if before else None
        for name, nats in found.items():
            nats.append([-counts.nats(name, np.array(ids, np.int64), last) for ids in choices])
    return found


def heldout_bits(
    counts: Counts, samples: list[bytes], documents: list[Document], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Bits per byte of the held-out text of evaluate.model, by n-grams and by compressors; None of a text without a byte."""
    size, nats = sum(document.bytes for document in documents), dict.fromkeys(NGRAMS, 0.0)
    for _, ids in tokens(documents):
        for name in NGRAMS:
            nats[name] += counts.nats(name, ids)
    texts = lambda: (text_of(tokenizer, document, ids).encode() for document, ids in tokens(documents))  # noqa: E731
    found = {name: total / math.log(2) / size if size else None for name, total in nats.items()}
    found["xz"] = compressors.xz(texts())
    found["zstd"], dictionary = compressors.zstd(texts(), samples)
    return {
        "bits_per_byte": {name: value and round(value, 6) for name, value in found.items()},
        "documents": len(documents),
        "bytes": size,
        "dictionary_bytes": dictionary,
    }
