"""MinHash signatures and their bands, equal to `datasketch.MinHash(scheme="affine32", hashfunc=xxh32)`.

A shingle's hash is mixed once (MurmurHash3's finaliser) and permuted by a·h + b mod 2³², a odd (datasketch 2.0,
datasketch/minhash.py). Two documents share a band's hash where all the band's `rows` minima agree, which happens with
probability similarity^rows; they are candidates where that holds in one band or more (Leskovec, Rajaraman and Ullman,
Mining of Massive Datasets, section 3.4).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.core.errors import InputError


class MinHasher:
    """Signatures of (permutations,) uint32 and hashes of their bands, (bands,) uint64.

    Raises InputError unless bands × rows = permutations.
    """

    def __init__(self, permutations: int, bands: int, rows: int, seed: int) -> None:
        if bands * rows != permutations:
            raise InputError(
                f"dedup.signature: bands × rows is {bands} × {rows} = {bands * rows}, but permutations is {permutations}; "
                "they must be equal"
            )
        from datasketch import MinHash  # here: it imports a good deal

        self.bands, self.bytes = bands, 4 * rows
        coefficients = MinHash(num_perm=permutations, seed=seed, scheme="affine32").permutations
        self.a, self.b = coefficients

    def signatures(self, hashes: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        """The minimum of every permutation over each document's shingle hashes, (documents, permutations).

        hashes: those of all documents, one after the other. counts: how many each has, at least one.
        """
        mixed = fmix32(hashes)
        permuted = np.empty_like(mixed)
        starts = np.cumsum(counts) - counts
        minima = np.empty((len(self.a), len(counts)), np.uint32)
        # One permutation over all documents at a time: long loops over memory that stays in the cache.
        for a, b, row in zip(self.a, self.b, minima, strict=True):
            np.multiply(mixed, a, out=permuted)
            np.add(permuted, b, out=permuted)
            np.minimum.reduceat(permuted, starts, out=row)
        return np.ascontiguousarray(minima.T)

    def band_hashes(self, signature: npt.NDArray[np.uint32]) -> list[int]:
        """xxh3-64 of each band's rows (little-endian bytes) of one signature, (permutations,)."""
        data, size = signature.astype("<u4", copy=False).tobytes(), self.bytes
        return [xxhash.xxh3_64_intdigest(data[start : start + size]) for start in range(0, len(data), size)]


def fmix32(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """MurmurHash3's 32-bit finaliser, a bijection, on every element."""
    mixed = hashes ^ (hashes >> np.uint32(16))
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
