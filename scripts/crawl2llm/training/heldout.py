"""The held-out text of a run: which validation documents are scored, and in which windows.

One measure for validation while a model trains and for its evaluation. Documents are scored one by one, in windows of at most
`context` tokens. Each window begins with up to `carry` of itself in tokens that are already scored, so that what it
scores has text before it; a document's first token is conditioned on the end-of-text token. Every token is scored
once, the document's own end-of-text token too, so that the loss is that of coding whole documents, and every byte counts
once in bits per byte.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats.documents import rows, uniform
from crawl2llm.formats.megatron import most_open, open_indexed
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.data import Tokens
from crawl2llm.training.measures import bits_per_byte

Piece = tuple[
    Tokens, int, int
]  # ids, how many of the last ones are scored, the number of the source, or of the document
CARRY = 0.5


@dataclass(frozen=True, order=True)
class Document:
    """Where one validation document's tokens lie; ordered by its hash."""

    rank: float
    id: str
    stem: Path  # of .bin and .idx
    offset: int  # tokens
    tokens: int
    bytes: int
    source: str = ""


def sources(documents: Iterable[Document]) -> list[str]:
    """The names of their sources, in order."""
    return sorted({document.source for document in documents})


def choose(manifests: Iterable[Path], limit: int, seed: int) -> tuple[list[Document], int]:
    """(validation documents in the order of a hash of (seed, id) until they hold `limit` tokens, how many there are).

    At least one document, where there is any; the choice does not depend on the shards. Memory: the chosen documents alone.
    """
    heap: list[tuple[float, str, Document]] = []  # the last document first
    held = number = 0
    for path in sorted(manifests):
        manifest = Manifest.read(path)
        for name in sorted(name for name in manifest.files if name.startswith("validation/")):
            if not name.endswith(".docs.parquet"):
                continue
            file = manifest.file(name)
            stem = file.with_name(file.name.removesuffix(".docs.parquet"))
            source = "/".join(name.split("/")[1:-1])  # as tokenize.encode writes them
            for row in rows(file):
                number += 1
                document = Document(uniform(seed, row["id"], "validation"), stem=stem, source=source, **row)
                heapq.heappush(heap, (-document.rank, document.id, document))
                held += document.tokens
                while held - heap[0][2].tokens >= limit:
                    held -= heapq.heappop(heap)[2].tokens
    return sorted(entry[2] for entry in heap), number


def windows(tokens: npt.NDArray[Any], first: int, context: int, carry: float) -> Iterator[tuple[Tokens, int]]:
    """(ids of length at most context + 1, how many of the last ones are scored) until every token is scored once.

    tokens: shape [n]. first: the id that the first token is conditioned on.
    """
    stream = np.concatenate([np.array([first], dtype=np.int64), tokens.astype(np.int64)])
    done, kept = 0, min(int(carry * context), context - 1)
    while done < len(tokens):
        before = min(kept, done)
        new = min(context - before, len(tokens) - done)
        yield stream[done - before : done + new + 1], new
        done += new


def pieces(
    documents: Sequence[Document], first: int, context: int, carry: float, *, apart: bool = False
) -> Iterator[Piece]:
    """The windows of all documents, see `windows`, with their source's place in `sources`, or where `apart` their own in `documents`.

    Raises ManifestError for tokens that are not there.
    """
    place = {name: number for number, name in enumerate(sources(documents))}
    file = lru_cache(most_open())(lambda stem: open_indexed(stem.with_suffix(".bin"), stem.with_suffix(".idx")))
    for number, document in enumerate(documents):
        whole = file(document.stem)
        found = whole[document.offset : document.offset + document.tokens]
        if len(found) < document.tokens:
            raise ManifestError(f"{document.stem}.bin has {len(whole)} tokens; document {document.id} ends beyond")
        for ids, new in windows(found, first, context, carry):
            yield ids, new, number if apart else place[document.source]


def sizes(documents: Sequence[Document], source: str | None = None) -> dict[str, int]:
    """Tokens, bytes and number of documents, of those of a source or of all."""
    some = [document for document in documents if source in (None, document.source)]
    tokens, size = sum(document.tokens for document in some), sum(document.bytes for document in some)
    return {"tokens": tokens, "bytes": size, "documents": len(some)}


def scores(documents: Sequence[Document], nats: Sequence[float]) -> dict[str, Any]:
    """The loss in nats a token and bits per byte of `documents`, in all and `by_source`, with what they were measured on.

    nats: summed over every token, for each of `sources`. The whole is the sum of the parts; bits_per_byte is None without text.
    """

    def of(total: float, source: str | None = None) -> dict[str, Any]:
        found = sizes(documents, source)
        bits = bits_per_byte(total, found["bytes"]) if found["bytes"] else None
        return {"loss": total / found["tokens"], "bits_per_byte": bits, **found}

    return {
        **of(sum(nats)),
        "by_source": {name: of(part, name) for name, part in zip(sources(documents), nats, strict=True)},
    }


def padded(batch: Sequence[Piece], pad: int) -> tuple[Tokens, Tokens]:
    """Inputs and targets of windows, each [windows, the longest's tokens]; targets that are not scored are IGNORE.

    Padding is on the right of a causal model, so that no scored token sees it.
    """
    width = max(len(ids) for ids, *_ in batch) - 1
    inputs, targets = np.full((len(batch), width), pad, np.int64), np.full((len(batch), width), IGNORE, np.int64)
    for row, (ids, new, _) in enumerate(batch):
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(ids) - 1 - new : len(ids) - 1] = ids[len(ids) - new :]
    return inputs, targets
