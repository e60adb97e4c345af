"""The documents that all variants are scored on: some of those that main holds out, by hash, as texts for any tokenizer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crawl2llm.core.manifest import Manifest, canonical_json, digest
from crawl2llm.formats.documents import rows, shard_of, uniform_hash
from crawl2llm.formats.megatron import IndexedWriter, token_dtype
from crawl2llm.training.heldout import Document

SALT = "evaluate.common"


@dataclass(frozen=True, order=True)
class Text:
    """A document that main holds out; ordered by its hash."""

    rank: float
    id: str
    source: str
    text: str
    bytes: int  # of the text in UTF-8


def choose_texts(corpus: Iterable[Path], limit: int, seed: int) -> tuple[list[Text], int]:
    """(documents in the order of a hash of (seed, id) until they hold `limit` bytes, how many there are); empty texts do not count.

    corpus: manifests of main's corpus.write. At least one document, if there is any; the choice depends neither on the shards nor on
    any tokenizer. Memory: the chosen texts alone.
    """
    heap: list[tuple[float, str, Text]] = []  # the last document first
    total_bytes = number = 0
    for path in sorted(corpus):
        for row in rows(Manifest.read(path).file(f"validation/{shard_of(path)}.parquet"), ["id", "source", "text"]):
            size = len(row["text"].encode())
            number += bool(size)
            rank = uniform_hash(seed, row["id"], SALT)
            if not size or (heap and total_bytes >= limit and (-rank, row["id"]) < heap[0][:2]):
                continue
            heapq.heappush(heap, (-rank, row["id"], Text(rank, row["id"], row["source"], row["text"], size)))
            total_bytes += size
            while total_bytes - heap[0][2].bytes >= limit:
                total_bytes -= heapq.heappop(heap)[2].bytes
    return sorted(entry[2] for entry in heap), number


def texts_digest(texts: Iterable[Text]) -> str:
    """A digest of the documents' ids and texts, in their order: who scored the same has the same."""
    return digest(canonical_json([[text.id, xxhash.xxh3_128_hexdigest(text.text.encode())] for text in texts]))


def encode_texts(texts: list[Text], tokenizer: Any, folder: Path) -> list[Document]:
    """The texts as a model's tokens in a file of `folder`, each with its end-of-text token, as tokenize.encode writes them.

    tokenizer: of transformers. Special tokens are not recognised in text.
    """
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    stem, dtype = folder / "common", token_dtype(len(tokenizer))
    out: list[Document] = []
    offset = 0
    with IndexedWriter(stem, dtype) as writer:
        for text in texts:
            ids = backend.encode(text.text, add_special_tokens=False).ids
            writer.add(np.array([*ids, tokenizer.eos_token_id], dtype))
            out.append(Document(text.rank, text.id, stem, offset, len(ids) + 1, text.bytes, text.source))
            offset += len(ids) + 1
    return out
