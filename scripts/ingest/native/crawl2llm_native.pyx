# cython: language_level=3, wraparound=False
"""The loops over the characters, the tags and the blocks of a page, and over the trees of a forest, and a set of ids.

What a tag means is in scripts/ingest/tags.py, which `Reader` is given. Nothing here knows a page's text but by its characters, and the work
is linear in the size of the page, whatever it holds.
"""

from array import array

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ

cdef extern from *:
    const char* BUILT_FROM

SOURCE = BUILT_FROM.decode()  # SHA-256 of this file, and of those that it includes, when they were compiled


cdef inline bint letter(Py_UCS4 c) noexcept:
    return 97 <= <int>c <= 122 or 65 <= <int>c <= 90


cdef inline Py_UCS4 lower(Py_UCS4 c) noexcept:
    return <Py_UCS4>(<int>c + 32) if 65 <= <int>c <= 90 else c


include "lexbor.pxi"
include "reading.pxi"
include "measures.pxi"
include "bounds.pxi"


cdef enum:
    AT_ONCE = 128  # blocks that go through a tree together: their measures stay in the processor's nearest cache
    DEEPEST = 8  # levels of a tree


@cython.boundscheck(False)
cdef void through(
    const short[:, ::1] rows, Py_ssize_t begin, Py_ssize_t count,
    const int* measures, const short* limits, const short* leaves, Py_ssize_t nodes, short* held,
) noexcept:
    """What one tree says of `count` blocks from `begin` on: held[block]. held: AT_ONCE places for each leaf.

    From the leaves up each node takes one of two values, for all blocks: without a branch a processor does several at a time.
    """
    cdef Py_ssize_t node = nodes, leaf, block
    cdef const short* row
    cdef short* no
    cdef short* yes
    cdef short* out
    cdef short limit, least, most, mask
    while node > nodes // 2:  # the lowest nodes, between two leaves each
        node -= 1
        leaf = 2 * node + 1 - nodes
        row, limit, least, most = &rows[measures[node], begin], limits[node], leaves[leaf], leaves[leaf + 1]
        out = held + node * AT_ONCE
        for block in range(count):
            mask = -<short>(row[block] > limit)
            out[block] = (most & mask) | (least & ~mask)
    while node > 0:
        node -= 1
        row, limit = &rows[measures[node], begin], limits[node]
        no, yes, out = held + (2 * node + 1) * AT_ONCE, held + (2 * node + 2) * AT_ONCE, held + node * AT_ONCE
        for block in range(count):
            mask = -<short>(row[block] > limit)
            out[block] = (yes[block] & mask) | (no[block] & ~mask)


def scores(const short[:, ::1] rows, const int[:, ::1] measures, const short[:, ::1] limits, const short[:, ::1] leaves, long long base):
    """The score of each block by complete trees of one depth: see Forest in scripts/ingest/forest.py.

    rows[m, n]: measure m of block n. measures, limits: [tree, node]; leaves: [tree, leaf]. Raises ValueError for a measure that no row has, or
    trees that are not complete, or too deep.
    """
    cdef Py_ssize_t trees = limits.shape[0], nodes = limits.shape[1], tree, node, block, begin, size, count = rows.shape[1]
    cdef short held[(1 << DEEPEST) * AT_ONCE]
    whole = measures.shape[0] == leaves.shape[0] == trees and measures.shape[1] == nodes and leaves.shape[1] == nodes + 1
    if not whole or nodes & (nodes + 1):
        raise ValueError(f"trees of {nodes} nodes have {leaves.shape[1]} leaves, and {measures.shape[1]} nodes that ask")
    if not 0 < nodes < 1 << DEEPEST:
        raise ValueError(f"trees of {nodes} nodes, at most {(1 << DEEPEST) - 1}")
    for tree in range(trees):
        for node in range(nodes):
            if not 0 <= measures[tree, node] < rows.shape[0]:
                raise ValueError(f"tree {tree} asks for measure {measures[tree, node]} of {rows.shape[0]}")
    out = array("q", [base]) * count
    cdef long long[::1] total = out
    for begin in range(0, count, AT_ONCE):
        size = min(count - begin, AT_ONCE)
        for tree in range(trees):
            through(rows, begin, size, &measures[tree, 0], &limits[tree, 0], &leaves[tree, 0], nodes, held)
            for block in range(size):
                total[begin + block] += held[block]
    return out


cdef struct Slot:
    uint64_t high, low


cdef class Ids:
    """A set of ids of 32 hexadecimal digits, in 21 to 43 bytes for each: Python's takes 130."""

    cdef Slot* slots
    cdef size_t size, used
    cdef bint zero  # a free slot is one of zeros

    def __cinit__(self):
        self.size, self.used, self.zero = 1024, 0, False
        self.slots = <Slot*>calloc(self.size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.used + self.zero

    cdef bint put(self, Slot one) noexcept:
        """Whether it was not there yet."""
        cdef size_t place = (one.high ^ one.low) & (self.size - 1)
        while self.slots[place].high or self.slots[place].low:
            if self.slots[place].high == one.high and self.slots[place].low == one.low:
                return False
            place = (place + 1) & (self.size - 1)
        self.slots[place] = one
        return True

    cdef bint grow(self) except -1:
        cdef Slot* before = self.slots
        cdef size_t number, size = self.size
        cdef Slot* after = <Slot*>calloc(2 * size, sizeof(Slot))
        if after == NULL:
            raise MemoryError()
        self.slots, self.size = after, 2 * size
        for number in range(size):
            if before[number].high or before[number].low:
                self.put(before[number])
        free(before)
        return True

    def add(self, str id not None):
        """Add an id; whether it was not there yet. Raises ValueError for one that is not of 32 hexadecimal digits."""
        cdef Slot one
        cdef bytes raw = bytes.fromhex(id)
        if len(raw) != 16 or len(id) != 32:
            raise ValueError(f"{id!r} is not of 32 hexadecimal digits")
        memcpy(&one, <const char*>raw, sizeof(Slot))
        if not one.high and not one.low:
            new, self.zero = not self.zero, True
            return new
        if 4 * self.used >= 3 * self.size:
            self.grow()
        new = self.put(one)
        self.used += new
        return bool(new)
