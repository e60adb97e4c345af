"""What differs between two sequences, as difflib says it, in time that is linear in their lengths."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

# What difflib is given at a time, for its time may grow with the cube of that: pairs of equal items (1,000 words of prose have as many), or
# LEAST items if that is more, and LARGEST items at most. A piece takes up to 30 ms.
PAIRS, LEAST, LARGEST = 10_000, 64, 500

Opcode = tuple[str, int, int, int, int]  # of difflib: what happens, `a[i1:i2]`, `b[j1:j2]`


def opcodes(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[Opcode]:
    """How to make `b` of `a`: as SequenceMatcher.get_opcodes, but long sequences are compared piece by piece, so that what equals
    something far behind it may count as different.
    """
    i = j = 0
    while i < len(a) or j < len(b):
        size = _piece_size(a, b, i, j)
        matcher = difflib.SequenceMatcher(None, a[i : i + size], b[j : j + size], autojunk=False)
        codes = matcher.get_opcodes()
        if i + size < len(a) or j + size < len(b):
            # What is behind the last equal items may equal what the next piece begins with.
            sure = codes[:-1] if codes[-1][0] != "equal" else codes
            if sure and max(sure[-1][2], sure[-1][4]) * 2 >= size:
                codes = sure
        yield from ((kind, i + i1, i + i2, j + j1, j + j2) for kind, i1, i2, j1, j2 in codes)
        i, j = i + codes[-1][2], j + codes[-1][4]


def _piece_size(a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int) -> int:
    """How many items from `a[i]` and `b[j]` on are compared: the most that have at most PAIRS pairs of equal ones."""
    left, right = Counter[Hashable](), Counter[Hashable]()
    pairs = size = 0
    longest = min(max(len(a) - i, len(b) - j), LARGEST)
    while size < longest and (pairs <= PAIRS or size < LEAST):
        if i + size < len(a):
            pairs += right[a[i + size]]
            left[a[i + size]] += 1
        if j + size < len(b):
            pairs += left[b[j + size]]
            right[b[j + size]] += 1
        size += 1
    return size
