"""Held-out loss over a token stream, document by document.

A document's tokens are scored in windows of at most `context` tokens. Each window begins with up to `carry` of itself in
tokens that are already scored, so that what it scores has text before it; the first token of a document is conditioned on
the end-of-text token. Every token is scored once, the document's own end-of-text token too, so that the loss is that
of coding whole documents, and every byte counts once in bits per byte.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts.common.cli import InputError
from scripts.common.console import Progress
from scripts.common.documents import rows, uniform
from scripts.common.manifest import Manifest, ManifestError
from scripts.tokenize.indexed import CODES, MAGIC

SORTED = 64  # batches' worth of windows that are put in order of length before they are batched


@dataclass(frozen=True, order=True)
class Document:
    """Where one validation document's tokens lie; ordered by its hash."""

    rank: float
    id: str
    stem: Path  # of .bin and .idx
    offset: int  # tokens
    tokens: int
    bytes: int


def token_file(stem: Path) -> npt.NDArray[Any]:
    """The ids of `<stem>.bin`, memory-mapped, shape [tokens]; ManifestError for a damaged or foreign `.idx`."""
    head = stem.with_suffix(".idx").read_bytes()[: len(MAGIC) + 9]
    if len(head) < len(MAGIC) + 9 or not head.startswith(MAGIC):
        raise ManifestError(f"{stem}.idx is not an index of Megatron's version 1")
    version, code = struct.unpack_from("<QB", head, len(MAGIC))
    kinds: dict[int, Any] = {number: dtype for dtype, number in CODES.items()}
    if version != 1 or code not in kinds:
        raise ManifestError(
            f"{stem}.idx: version {version}, token type {code}; known are version 1, types {sorted(kinds)}"
        )
    path = stem.with_suffix(".bin")
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype=kinds[code])
    return np.memmap(path, dtype=kinds[code], mode="r")


def choose(manifests: list[Path], limit: int, seed: int) -> tuple[list[Document], int]:
    """(the documents of the lowest hash until they hold `limit` tokens, number of all documents).

    manifests: those of tokenize.encode. Only what may be chosen is held in memory.
    """
    heap: list[tuple[float, str, Document]] = []  # the highest rank first
    held = number = 0
    for path in manifests:
        manifest = Manifest.read(path)
        for name in sorted(manifest.files):
            if not (name.startswith("validation/") and name.endswith(".docs.parquet")):
                continue
            file = manifest.file(name)
            stem = file.with_name(file.name.removesuffix(".docs.parquet"))
            for row in rows(file):
                number += 1
                document = Document(uniform(seed, row["id"], "evaluate"), stem=stem, **row)
                heapq.heappush(heap, (-document.rank, document.id, document))
                held += document.tokens
                while held - heap[0][2].tokens >= limit:
                    held -= heapq.heappop(heap)[2].tokens
    return sorted(entry[2] for entry in heap), number


def windows(tokens: npt.NDArray[Any], first: int, context: int, carry: float) -> Iterator[tuple[npt.NDArray[Any], int]]:
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


def _nats(model: Any, batch: list[tuple[npt.NDArray[Any], int]], pad: int) -> float:
    """The negative log-likelihood of the scored tokens of a batch of windows, in nats."""
    import torch

    width = max(len(ids) for ids, _ in batch)
    given = torch.full((len(batch), width), pad)
    scored = torch.zeros((len(batch), width), dtype=torch.bool)
    for row, (ids, new) in enumerate(batch):
        given[row, : len(ids)] = torch.from_numpy(ids)
        scored[row, len(ids) - new : len(ids)] = True
    given, scored = given.to(model.device), scored.to(model.device)
    with torch.no_grad():
        # Padding is on the right of a causal model, so that no scored token sees it.
        logits = model(input_ids=given[:, :-1]).logits[scored[:, 1:]]
        nats = torch.nn.functional.cross_entropy(logits.float(), given[:, 1:][scored[:, 1:]], reduction="none")
    return float(nats.double().sum())


def heldout(
    model: Any, eos: int, documents: list[Document], context: int, carry: float, batch_size: int
) -> dict[str, Any]:
    """Loss (nats a token), perplexity and bits per byte over `documents`, and what they were measured on."""
    tokens = sum(document.tokens for document in documents)
    size = sum(document.bytes for document in documents)
    if not tokens or not size:
        raise InputError("the validation split holds no text; raise its share (corpus.write), or add documents")
    files: dict[Path, npt.NDArray[Any]] = {}
    progress = Progress(tokens, "validation tokens")

    def pieces() -> Iterator[tuple[npt.NDArray[Any], int]]:
        for document in documents:
            file = files.setdefault(document.stem, token_file(document.stem))
            if document.offset + document.tokens > len(file):
                raise ManifestError(f"{document.stem}.bin has {len(file)} tokens; document {document.id} ends beyond")
            yield from windows(file[document.offset : document.offset + document.tokens], eos, context, carry)

    total, stream = 0.0, pieces()
    while part := list(islice(stream, batch_size * SORTED)):
        part.sort(key=lambda piece: len(piece[0]))
        for start in range(0, len(part), batch_size):
            batch = part[start : start + batch_size]
            total += _nats(model, batch, eos)
            progress.add(sum(new for _, new in batch))
    loss = total / tokens
    return {
        "loss": round(loss, 6),
        "perplexity": round(math.exp(min(loss, 700.0)), 4),
        "bits_per_byte": round(total / math.log(2) / size, 6),
        "tokens": tokens,
        "bytes": size,
        "documents": len(documents),
        "context": context,
        "carry": carry,
    }
