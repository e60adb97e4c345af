"""The text between two tags: its references replaced, its white space folded. Part of crawl2llm_native.pyx."""

import html
import html.entities

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_FromKindAndData, PyUnicode_WRITE

cdef Py_ssize_t REFERENCE = 32  # characters of a named reference that html.unescape looks at


cdef str folded(str text):
    """The text with each run of white space as one space and none at the ends; "\x00" is a line break; lines without text are left out."""
    cdef Py_ssize_t place, size = len(text), used = 0
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef bint space = False, line = False
    cdef Py_UCS4 c
    cdef void* out = PyMem_Malloc(max(size, 1) * kind)
    if out == NULL:
        raise MemoryError()
    try:
        for place in range(size):
            c = PyUnicode_READ(kind, data, place)
            if c == 0:
                line = True
            elif c.isspace():
                space = True
            else:
                if used and (line or space):
                    PyUnicode_WRITE(kind, out, used, <Py_UCS4>"\n" if line else <Py_UCS4>" ")
                    used += 1
                space = line = False
                PyUnicode_WRITE(kind, out, used, c)
                used += 1
        return PyUnicode_FromKindAndData(kind, out, used)
    finally:
        PyMem_Free(out)


cdef inline int digit(Py_UCS4 c) noexcept:
    """The value of a hexadecimal digit, or -1."""
    if 48 <= <int>c <= 57:
        return <int>c - 48
    return <int>lower(c) - 87 if 97 <= <int>lower(c) <= 102 else -1


cdef class References:
    """Replaces character references as html.unescape does."""

    cdef dict names, numbers

    def __cinit__(self):
        self.names, self.numbers = html.entities.html5, {}

    cdef str numbered(self, long number):
        """The character of a number. What HTML says of others than plain ones, the library knows."""
        if 160 <= number < 0xD800 or 0xE000 <= number < 0xFDD0 or (0xFDF0 <= number < 0x110000 and number & 0xFFFE != 0xFFFE):
            return chr(number)
        found = self.numbers.get(number)
        if found is None:
            found = self.numbers[number] = html.unescape(f"&#{number};")
        return found

    cdef str named(self, str name):
        """The characters of a name, which may be known by its beginning alone (`&notit`: one without a semicolon has at most 6 letters)."""
        cdef Py_ssize_t size
        found = self.names.get(name)
        if found is not None:
            return found
        for size in range(min(len(name) - 1, 6), 1, -1):
            found = self.names.get(name[:size])
            if found is not None:
                return found + name[size:]
        return "&" + name

    cdef str replaced(self, str page):
        cdef Characters text = Characters(page)
        # No reference is shorter than what it stands for.
        cdef Py_UCS4* out = <Py_UCS4*>PyMem_Malloc(max(text.size, 1) * sizeof(Py_UCS4))
        if out == NULL:
            raise MemoryError()
        try:
            return PyUnicode_FromKindAndData(4, out, self.fill(text, out))
        finally:
            PyMem_Free(out)

    cdef Py_ssize_t fill(self, Characters text, Py_UCS4* out) except -1:
        """Write the text with its references replaced; the number of characters."""
        cdef Py_ssize_t at = 0, place, first, used = 0, end
        cdef long number
        cdef int base
        cdef Py_UCS4 c
        cdef str found
        while at < text.size:
            c = text.at(at)
            place = first = at + 1
            if c == "&" and text.at(place) == "#":
                base = 16 if lower(text.at(place + 1)) == "x" else 10
                place = first = place + 1 + (base == 16)
                number = 0
                while 0 <= digit(text.at(place)) < base:
                    number = min(number * base + digit(text.at(place)), 0x110000)
                    place += 1
            elif c == "&":
                while place < text.size and place - first < REFERENCE and text.at(place) not in "\t\n\f <&#;":
                    place += 1
            if place == first:  # no reference
                out[used] = c
                used, at = used + 1, at + 1
                continue
            end = place + (text.at(place) == ";")
            found = self.numbered(number) if text.at(at + 1) == "#" else self.named(text.cut(first, end))
            for c in found:
                out[used] = c
                used += 1
            at = end
        return used
