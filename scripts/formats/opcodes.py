"""What differs between two sequences, as difflib says it, in time that is linear in their lengths."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

# Pairs of equal items that difflib looks at in one piece: in the worst case 0.1 s for that many, and the time grows faster than they do. Of
# 1,000 words of prose there are as many, so two such texts are compared as a whole.
PAIRS = 10_000
LEAST = 64  # items of a piece, whatever is in them

Opcode = tuple[str, int, int, int, int]  # of difflib: what happens, `a[i1:i2]`, `b[j1:j2]`


def opcodes(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[Opcode]:
    """How to make `b` of `a`: as SequenceMatcher.get_opcodes, but long sequences are compared piece by piece, so that what equals
    something far behind it may count as different.
    """
    i = j = 0
    while i < len(a) or j < len(b):
        size = _piece(a, b, i, j)
        matcher = difflib.SequenceMatcher(None, a[i : i + size], b[j : j + size], autojunk=False)
        found = matcher.get_opcodes()
        if i + size < len(a) or j + size < len(b):
            # What is behind the last equal items may equal what the next piece begins with.
            sure = found[:-1] if found[-1][0] != "equal" else found
            if sure and max(sure[-1][2], sure[-1][4]) * 2 >= size:
                found = sure
        yield from ((kind, i + i1, i + i2, j + j1, j + j2) for kind, i1, i2, j1, j2 in found)
        i, j = i + found[-1][2], j + found[-1][4]


def _piece(a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int) -> int:
    """How many items from `a[i]` and `b[j]` on are compared: the most that have at most PAIRS pairs of equal ones."""
    left, right = Counter[Hashable](), Counter[Hashable]()
    pairs = size = 0
    longest = max(len(a) - i, len(b) - j)
    while size < longest and (pairs <= PAIRS or size < LEAST):
        if i + size < len(a):
            pairs += right[a[i + size]]
            left[a[i + size]] += 1
        if j + size < len(b):
            pairs += left[b[j + size]]
            right[b[j + size]] += 1
        size += 1
    return size
