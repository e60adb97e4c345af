"""The encoded documents of a split: a few of them by hash, whatever the shards, and their tokens and texts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest, ManifestError, canonical_json, digest
from crawl2llm.formats.documents import rows, uniform_hash
from crawl2llm.formats.megatron import most_open_datasets, open_indexed
from crawl2llm.training.heldout import Document

LONGEST = 32_768  # tokens of a document that are read as text: a book is as good as its beginning
Ids = npt.NDArray[np.int64]  # shape [tokens]


def encoded_rows(manifests: Iterable[Path], split: str) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """(stem of .bin and .idx, source, row of .docs.parquet) of every document of a split, by the manifests of a step that encodes."""
    for path in sorted(manifests):
        manifest = Manifest.read(path)
        for name in sorted(n for n in manifest.files if n.startswith(f"{split}/") and n.endswith(".docs.parquet")):
            file = manifest.file(name)
            stem, source = file.with_name(file.name.removesuffix(".docs.parquet")), "/".join(name.split("/")[1:-1])
            yield from ((stem, source, row) for row in rows(file))


def choose_by_hash(
    manifests: Iterable[Path], split: str, limit: int, seed: int, salt: str, size: Callable[[Document], int]
) -> tuple[list[Document], int]:
    """(documents in the order of a hash of (seed, id) until their sizes sum up to `limit`, how many there are).

    manifests: of tokenize.encode. The choice does not depend on the shards. Memory: the chosen documents alone.
    """
    heap: list[tuple[float, str, Document]] = []  # the last document first
    total_size = number = 0
    for stem, source, row in encoded_rows(manifests, split):
        number += 1
        rank = uniform_hash(seed, row["id"], salt)
        if heap and total_size >= limit and (-rank, row["id"]) < heap[0][:2]:
            continue  # as it would fall out at once
        document = Document(rank, stem=stem, source=source, **row)
        heapq.heappush(heap, (-rank, document.id, document))
        total_size += size(document)
        while total_size - size(heap[0][2]) >= limit:
            total_size -= size(heapq.heappop(heap)[2])
    return sorted(entry[2] for entry in heap), number


def find_in_tokens(documents: list[Document], manifests: Iterable[Path]) -> list[Document]:
    """The same validation documents, in the same order, where other tokens of them lie: those of a published model.

    So models of several tokenizers are scored on one text, however many tokens each takes for it. manifests: of a step that encodes.
    Raises ManifestError for a document that is not there, or is there with another number of bytes.
    """
    wanted = {document.id: document for document in documents}
    places: dict[str, Document] = {}
    for stem, source, row in encoded_rows(manifests, "validation"):
        if row["id"] in wanted:
            places[row["id"]] = Document(wanted[row["id"]].rank, stem=stem, source=source, **row)
    for document in documents:
        size = places[document.id].bytes if document.id in places else "no"
        if size != document.bytes:
            raise ManifestError(
                f"the held-out document {document.id} has {document.bytes} bytes in {document.stem}.docs.parquet, and {size} in the "
                "model's own tokens: remove the manifests of tokenize.encode and tokenize.reencode, and run again"
            )
    return [places[document.id] for document in documents]


def documents_digest(documents: Iterable[Document]) -> str:
    """A digest of the ids and sizes of documents, in their order: who scored the same text has the same."""
    return digest(canonical_json([[document.id, document.bytes] for document in documents]))


def document_tokens(documents: Iterable[Document], limit: int | None = None) -> Iterator[tuple[Document, Ids]]:
    """Each document with its first `limit` ids (None: all), its end-of-text token among them; ManifestError for absent ones."""
    file = lru_cache(most_open_datasets())(
        lambda stem: open_indexed(stem.with_suffix(".bin"), stem.with_suffix(".idx"))
    )
    for document in documents:
        shard_tokens: Any = file(document.stem)
        ids = shard_tokens[document.offset : document.offset + document.tokens]
        if len(ids) < document.tokens:
            raise ManifestError(
                f"{document.stem}.bin has {len(shard_tokens)} tokens; document {document.id} ends beyond"
            )
        yield document, ids[:limit].astype(np.int64)


def text_of(tokenizer: Tokenizer, document: Document, ids: Ids) -> str:
    """The text that a document's ids stand for: exactly what was encoded, or "" where a ready tokenizer's normaliser changed it.

    ids: all of them, or the first ones; then the text ends with its last white space, so that no word is cut in two (without any, with
    its last whole character). Raises ManifestError if the bytes of the text are not as many as tokenize.encode counted.
    """
    if len(ids) < document.tokens:
        text = str(tokenizer.decode(ids.tolist(), skip_special_tokens=False)).rstrip("\N{REPLACEMENT CHARACTER}")
        space = next((at for at in range(len(text) - 1, -1, -1) if text[at].isspace()), len(text))
        return text[: space + 1]
    text = str(tokenizer.decode(ids[:-1].tolist(), skip_special_tokens=False))
    if len(text.encode()) != document.bytes and tokenizer.normalizer is not None:
        return ""
    if len(text.encode()) != document.bytes:
        raise ManifestError(
            f"{document.stem}.bin: document {document.id} decodes to {len(text.encode())} bytes, and tokenize.encode read "
            f"{document.bytes}: remove its manifest, and run again"
        )
    return text
