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
from crawl2llm.formats.documents import rows, uniform_hash
from crawl2llm.formats.megatron import most_open_datasets, open_indexed
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


def source_names(documents: Iterable[Document]) -> list[str]:
    """The names of their sources, in order."""
    return sorted({document.source for document in documents})


def choose_documents(manifests: Iterable[Path], limit: int, seed: int) -> tuple[list[Document], int]:
    """(validation documents in the order of a hash of (seed, id) until they hold `limit` tokens, how many there are).

    At least one document, if there is any; the choice does not depend on the shards. Memory: the chosen documents alone.
    """
    heap: list[tuple[float, str, Document]] = []  # the last document first
    chosen_tokens = number = 0
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
                document = Document(uniform_hash(seed, row["id"], "validation"), stem=stem, source=source, **row)
                heapq.heappush(heap, (-document.rank, document.id, document))
                chosen_tokens += document.tokens
                while chosen_tokens - heap[0][2].tokens >= limit:
                    chosen_tokens -= heapq.heappop(heap)[2].tokens
    return sorted(entry[2] for entry in heap), number


def document_windows(tokens: npt.NDArray[Any], first: int, context: int, carry: float) -> Iterator[tuple[Tokens, int]]:
    """(ids of length at most context + 1, how many of the last ones are scored) until every token is scored once.

    tokens: shape [n]. first: the id that the first token is conditioned on.
    """
    stream = np.concatenate([np.array([first], dtype=np.int64), tokens.astype(np.int64)])
    done, most_carried = 0, min(int(carry * context), context - 1)
    while done < len(tokens):
        before = min(most_carried, done)
        new = min(context - before, len(tokens) - done)
        yield stream[done - before : done + new + 1], new
        done += new


def scoring_pieces(
    documents: Sequence[Document], first: int, context: int, carry: float, *, by_document: bool = False
) -> Iterator[Piece]:
    """The windows of all documents, see `document_windows`, with their source's place in `source_names`, or where `by_document` their own
    in `documents`.

    Raises ManifestError for tokens that are not there.
    """
    place = {name: number for number, name in enumerate(source_names(documents))}
    file = lru_cache(most_open_datasets())(
        lambda stem: open_indexed(stem.with_suffix(".bin"), stem.with_suffix(".idx"))
    )
    for number, document in enumerate(documents):
        dataset = file(document.stem)
        document_tokens = dataset[document.offset : document.offset + document.tokens]
        if len(document_tokens) < document.tokens:
            raise ManifestError(f"{document.stem}.bin has {len(dataset)} tokens; document {document.id} ends beyond")
        for ids, new in document_windows(document_tokens, first, context, carry):
            yield ids, new, number if by_document else place[document.source]


def count_sizes(documents: Sequence[Document], source: str | None = None) -> dict[str, int]:
    """Tokens, bytes and number of documents, of those of a source or of all."""
    selected = [document for document in documents if source in (None, document.source)]
    tokens, size = sum(document.tokens for document in selected), sum(document.bytes for document in selected)
    return {"tokens": tokens, "bytes": size, "documents": len(selected)}


def summarize_scores(documents: Sequence[Document], nats: Sequence[float]) -> dict[str, Any]:
    """The loss in nats a token and bits per byte of `documents`, in all and `by_source`, with what they were measured on.

    nats: summed over every token, for each of `source_names`. The whole is the sum of the parts; bits_per_byte is None without text.
    """

    def part_scores(total: float, source: str | None = None) -> dict[str, Any]:
        totals = count_sizes(documents, source)
        bits = bits_per_byte(total, totals["bytes"]) if totals["bytes"] else None
        return {"loss": total / totals["tokens"], "bits_per_byte": bits, **totals}

    return {
        **part_scores(sum(nats)),
        "by_source": {name: part_scores(part, name) for name, part in zip(source_names(documents), nats, strict=True)},
    }


def pad_windows(batch: Sequence[Piece], pad: int) -> tuple[Tokens, Tokens]:
    """Inputs and targets of windows, each [windows, the longest's tokens]; targets that are not scored are IGNORE.

    Padding is on the right of a causal model, so that no scored token sees it.
    """
    width = max(len(ids) for ids, *_ in batch) - 1
    inputs, targets = np.full((len(batch), width), pad, np.int64), np.full((len(batch), width), IGNORE, np.int64)
    for row, (ids, new, _) in enumerate(batch):
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(ids) - 1 - new : len(ids) - 1] = ids[len(ids) - new :]
    return inputs, targets
