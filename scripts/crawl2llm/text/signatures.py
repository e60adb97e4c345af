"""Signatures of texts: a hash of the whole, and MinHash bands of its shingles."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.shingles import (
    KEEP,
    ZERO,
    count_numbers,
    count_tokens,
    keeps_numbers,
    normalise,
    shingle_hashes,
    sorted_distinct,
)


def band_name(band: int) -> str:
    """The column of a band's hashes."""
    return f"band_{band:02d}"


def band_names(bands: int) -> list[str]:
    """The columns of all bands' hashes."""
    return [band_name(band) for band in range(bands)]


def compute_signals(texts: list[str], k: int, hasher: MinHasher, numbers: str = ZERO) -> list[dict[str, Any]]:
    """The signals of many texts, without their ids and sources. numbers: as for `normalise`."""
    zeroed = [normalise(text) for text in texts]
    normals = [
        normalise(text, KEEP) if keeps_numbers(zero, numbers) else zero
        for text, zero in zip(texts, zeroed, strict=True)
    ]
    hashes, counts = shingle_hashes([normal for normal in normals if normal], k)
    signed = zip(hasher.signatures(hashes, counts), np.split(hashes, np.cumsum(counts)[:-1]), strict=True)
    columns = band_names(hasher.bands)
    signals = []
    for text, normal, zero in zip(texts, normals, zeroed, strict=True):
        signature, document_hashes = next(signed) if normal else (None, hashes[:0])
        bands = [None] * hasher.bands if signature is None else hasher.band_hashes(signature)
        signals.append(
            {
                "text_hash": xxhash.xxh3_128_digest(text.encode()),
                "words": count_tokens(normal),
                "numbers": count_numbers(zero),
                "shingles": len(sorted_distinct(document_hashes)),
                **dict(zip(columns, bands, strict=True)),
            }
        )
    return signals
