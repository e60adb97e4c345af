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
from crawl2llm.formats.public_tasks.measures import split_tokens
from crawl2llm.stages.evaluate import compressors
from crawl2llm.stages.evaluate.documents import LONGEST, choose_by_hash, document_tokens, text_of
from crawl2llm.stages.evaluate.ngrams import Counts
from crawl2llm.training.heldout import Document
from crawl2llm.training.special_tokens import EOS

NGRAMS = ("unigram", "bigram")
TRAINING_SALT = "counted"  # the salt of what is taken of the training split


def count_training_text(
    manifests: list[Path], token_limit: int, seed: int, tokenizer: Tokenizer
) -> tuple[Counts, list[bytes]]:
    """(counts of the training documents of the lowest hash, texts of the first of these for zstd's dictionary)."""
    documents, _ = choose_by_hash(
        manifests, "train", token_limit, seed, TRAINING_SALT, lambda document: document.tokens
    )
    samples: list[bytes] = []
    if (eos := tokenizer.token_to_id(EOS)) is None:
        raise InputError(f"the tokenizer has no {EOS}, with which documents end")

    def document_ids() -> Iterator[Any]:
        size = 0
        progress = Progress(len(documents), "training documents")
        for document, token_ids in document_tokens(documents, token_limit):
            if size < compressors.SAMPLES:
                samples.append(text_of(tokenizer, document, token_ids[:LONGEST]).encode())
                size += len(samples[-1])
            yield token_ids
            progress.add()

    return Counts(document_ids(), tokenizer.get_vocab_size(), eos, token_limit), samples


def ngram_likelihoods(
    counts: Counts, tokenizer: Tokenizer, rows: Iterable[dict[str, Any]]
) -> dict[str, list[list[float]]]:
    """By n-gram model: the log-likelihood of each choice of each row, in nats."""
    nats_by_model: dict[str, list[list[float]]] = {name: [] for name in NGRAMS}
    for item in rows:
        context_ids, choices = split_tokens(lambda text: tokenizer.encode(text).ids, item["context"], item["choices"])
        last = context_ids[-1] if context_ids else None
        for name, nats in nats_by_model.items():
            nats.append([-counts.total_nats(name, np.array(ids, np.int64), last) for ids in choices])
    return nats_by_model


def heldout_bits(
    counts: Counts, samples: list[bytes], documents: list[Document], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Bits per byte of the held-out text of evaluate.model, by n-grams and by compressors; None of a text without a byte."""
    size, nats = sum(document.bytes for document in documents), dict.fromkeys(NGRAMS, 0.0)
    for _, ids in document_tokens(documents):
        for name in NGRAMS:
            nats[name] += counts.total_nats(name, ids)
    texts = lambda: (text_of(tokenizer, document, ids).encode() for document, ids in document_tokens(documents))  # noqa: E731
    bits = {name: total / math.log(2) / size if size else None for name, total in nats.items()}
    bits["xz"] = compressors.xz_bits_per_byte(texts())
    bits["zstd"], dictionary = compressors.zstd_bits_per_byte(texts(), samples)
    return {
        "bits_per_byte": {name: value and round(value, 6) for name, value in bits.items()},
        "documents": len(documents),
        "bytes": size,
        "dictionary_bytes": dictionary,
    }
