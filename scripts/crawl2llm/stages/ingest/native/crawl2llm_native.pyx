# cython: language_level=3, wraparound=False
"""The loops over the characters, the tags and the blocks of a page, and over the trees of a forest, and a set of ids.

What a tag means is in scripts/crawl2llm/stages/ingest/tags.py, which `Reader` is given. Nothing here knows a page's text but by its characters, and the work
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
include "forest.pxi"
include "bounds.pxi"


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
