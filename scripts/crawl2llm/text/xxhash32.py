"""xxHash32 of many spans of one buffer at a time, with NumPy.

The library hashes one object a call, and a shingle would first have to be made an object: a span of the buffer costs
about a third of that. The algorithm is in https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md; a test holds
every length against the library.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CHUNK = 1 << 15  # spans hashed at a time: their state stays in the cache
PRIME = [np.uint32(value) for value in (2654435761, 2246822519, 3266489917, 668265263, 374761393)]
LANES = [np.uint32(value) for value in (606290984, 2246822519, 0, 1640531535)]  # the four accumulators of seed 0

Array32 = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


def xxh32(buffer: bytes, starts: Places, ends: Places) -> Array32:
    """The hash of buffer[start:end] for every pair of `starts` and `ends`, (spans,)."""
    padded = np.frombuffer(buffer + bytes(4), np.uint8)
    # The little-endian word at every byte.
    words = np.ascontiguousarray(np.ndarray(len(buffer) + 1, "<u4", padded, strides=1))
    hashes = [np.zeros(0, np.uint32)]
    for at in range(0, len(starts), CHUNK):
        hashes.append(_hash_spans(words, starts[at : at + CHUNK], ends[at : at + CHUNK]))
    return np.concatenate(hashes)


def _rotate_left(values: Array32, by: int) -> Array32:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def _hash_spans(words: Array32, starts: Places, ends: Places) -> Array32:
    # Sorted by length, the spans that still have bytes to read are a suffix in every round.
    lengths = ends - starts
    order = np.argsort(np.minimum(lengths, 65535).astype(np.uint16), kind="stable")
    if lengths[order[-1]] > 65535:
        order = np.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]

    state = np.full(len(order), PRIME[4])
    long = int(np.searchsorted(lengths, 16))
    if long < len(order):
        lanes = [np.full(len(order) - long, lane) for lane in LANES]
        for stripe in range(0, int(lengths[-1]) - 15, 16):
            first = int(np.searchsorted(lengths, stripe + 16))
            place = starts[first:] + stripe
            for lane, accumulators in enumerate(lanes):
                part = accumulators[first - long :]
                part += words[place + 4 * lane] * PRIME[1]
                part[:] = _rotate_left(part, 13) * PRIME[0]
        state[long:] = sum(_rotate_left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    state += lengths.astype(np.uint32)

    whole = starts + (lengths & ~15)
    for step in range(0, 12, 4):
        remaining = np.flatnonzero((lengths & 15) >= step + 4)
        state[remaining] = _rotate_left(state[remaining] + words[whole[remaining] + step] * PRIME[2], 17) * PRIME[3]
    whole = starts + (lengths & ~3)
    for step in range(3):
        remaining = np.flatnonzero((lengths & 3) > step)
        state[remaining] = (
            _rotate_left(state[remaining] + (words[whole[remaining] + step] & np.uint32(255)) * PRIME[4], 11) * PRIME[0]
        )

    state ^= state >> np.uint32(15)
    state *= PRIME[1]
    state ^= state >> np.uint32(13)
    state *= PRIME[2]
    state ^= state >> np.uint32(16)
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes
