"""The trees of a forest, for many blocks at a time, and which blocks their scores keep. Part of crawl2llm_native.pyx."""

from libc.stdint cimport int32_t
from libc.stdlib cimport qsort

cdef enum:
    DEEPEST = 8  # levels of a tree
    MOST_TREES = 60000  # so that the sum of their leaves is a whole number of 32 bits

cdef extern from *:
    """
    #include <string.h>

    /* A processor with wider registers does more blocks at a time; whole numbers are the same in all. */
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #if __GNUC__ >= 12
    #define AS_WIDE_AS_CAN_BE __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
    #else
    #define AS_WIDE_AS_CAN_BE __attribute__((target_clones("avx2", "default")))
    #endif
    #else
    #define AS_WIDE_AS_CAN_BE
    #endif
    #define AT_ONCE 64 /* blocks that go through the trees together: their measures stay in the nearest cache */

    /* Adds to total[block] what the trees say of AT_ONCE blocks. From the leaves up each node takes one of two values, for all blocks: without
       a branch a processor does several at a time. rows: [measure][block]. */
    AS_WIDE_AS_CAN_BE static void
    trees_say(const short *rows, const int *measures, const short *limits, const short *leaves, int nodes, int trees, int32_t *total)
    {
        short held[1 << 8][AT_ONCE], mask;
        int node, block;
        for (; trees > 0; trees--, measures += nodes, limits += nodes, leaves += nodes + 1) {
            for (node = nodes - 1; node >= nodes / 2; node--) {
                const short *row = rows + (size_t)measures[node] * AT_ONCE, limit = limits[node];
                const short no = leaves[2 * node + 1 - nodes], yes = leaves[2 * node + 2 - nodes];
                for (block = 0; block < AT_ONCE; block++)
                    mask = -(short)(row[block] > limit), held[node][block] = (yes & mask) | (no & ~mask);
            }
            for (; node >= 0; node--) {
                const short *row = rows + (size_t)measures[node] * AT_ONCE, limit = limits[node];
                const short *no = held[2 * node + 1], *yes = held[2 * node + 2];
                for (block = 0; block < AT_ONCE; block++)
                    mask = -(short)(row[block] > limit), held[node][block] = (yes[block] & mask) | (no[block] & ~mask);
            }
            for (block = 0; block < AT_ONCE; block++)
                total[block] += held[0][block];
        }
    }
    """
    enum: AT_ONCE
    void trees_say(const short* rows, const int* measures, const short* limits, const short* leaves, int nodes, int trees, int32_t* total) noexcept nogil


@cython.boundscheck(False)
def scores(const short[:, ::1] rows, const int[:, ::1] measures, const short[:, ::1] limits, const short[:, ::1] leaves, long long base):
    """The score of each block by complete trees of one depth: see Forest in scripts/crawl2llm/stages/ingest/forest.py.

    rows[m, n]: measure m of block n. measures, limits: [tree, node]; leaves: [tree, leaf]. Raises ValueError for a measure that no row has, or
    trees that are not complete, too deep, or too many.
    """
    cdef Py_ssize_t trees = limits.shape[0], nodes = limits.shape[1], tree, node, block, begin, size, row, count = rows.shape[1]
    whole = measures.shape[0] == leaves.shape[0] == trees and measures.shape[1] == nodes and leaves.shape[1] == nodes + 1
    if not whole or nodes & (nodes + 1):
        raise ValueError(f"trees of {nodes} nodes have {leaves.shape[1]} leaves, and {measures.shape[1]} nodes that ask")
    if not 0 < nodes < 1 << DEEPEST:
        raise ValueError(f"trees of {nodes} nodes, at most {(1 << DEEPEST) - 1}")
    if trees > MOST_TREES:
        raise ValueError(f"{trees} trees, at most {MOST_TREES}")
    for tree in range(trees):
        for node in range(nodes):
            if not 0 <= measures[tree, node] < rows.shape[0]:
                raise ValueError(f"tree {tree} asks for measure {measures[tree, node]} of {rows.shape[0]}")
    out = array("q", [base]) * count
    cdef long long[::1] total = out
    cdef int32_t sums[AT_ONCE]
    cdef short* held = <short*>calloc(rows.shape[0], AT_ONCE * sizeof(short))
    if held == NULL:
        raise MemoryError()
    for begin in range(0, count if trees else 0, AT_ONCE):
        size = min(count - begin, AT_ONCE)
        for row in range(rows.shape[0]):
            memcpy(held + row * AT_ONCE, &rows[row, begin], size * sizeof(short))
        memset(sums, 0, sizeof(sums))
        trees_say(held, &measures[0, 0], &limits[0, 0], &leaves[0, 0], nodes, trees, sums)
        for block in range(size):
            total[begin + block] += sums[block]
    free(held)
    return out


cdef struct Scored:
    long long score
    Py_ssize_t block


cdef int by_score(const void* one, const void* other) noexcept nogil:
    """The highest first; of the same those that come first."""
    cdef const Scored* a = <const Scored*>one
    cdef const Scored* b = <const Scored*>other
    if a.score != b.score:
        return -1 if a.score > b.score else 1
    return -1 if a.block < b.block else 1


@cython.boundscheck(False)
@cython.cdivision(True)  # all numbers are over zero
def cut(const long long[::1] scores, const long long[::1] length, const long long[::1] chance, long long precision, long long recall):
    """See `cut` in scripts/crawl2llm/stages/ingest/blocks.py. length: of each block, over zero. chance: of the scores from -s to s. Raises ValueError."""
    cdef Py_ssize_t count = scores.shape[0], at
    cdef long long sure = chance.shape[0] // 2, right = 0, whole = 0, taken = 0, measure, most = -1, least = 0
    cdef Scored* order
    if not count or length.shape[0] != count or chance.shape[0] != 2 * sure + 1:
        raise ValueError(f"{count} scores, {length.shape[0]} lengths and {chance.shape[0]} chances")
    order = <Scored*>malloc(count * sizeof(Scored))
    if order == NULL:
        raise MemoryError()
    for at in range(count):
        order[at].score, order[at].block = scores[at], at
        whole += chance[min(max(scores[at], -sure), sure) + sure] * length[at]
    qsort(order, count, sizeof(Scored), by_score)
    for at in range(count):
        right += chance[min(max(order[at].score, -sure), sure) + sure] * length[order[at].block]
        taken += length[order[at].block]
        measure = right * 1000000 // max(precision * taken * 1000 + recall * whole, 1)
        if measure > most:
            most, least = measure, order[at].score
    free(order)
    return least


@cython.boundscheck(False)
def kept(const long long[::1] scores, long long least, const long long[::1] code, const unsigned char[::1] heading, long long unlikely):
    """See `kept` in scripts/crawl2llm/stages/ingest/blocks.py: the numbers of the blocks with such a score, and of the headings that one of them follows.

    code: of each block's element. heading[code]: whether it is a heading. Raises ValueError.
    """
    cdef Py_ssize_t count = scores.shape[0], block
    cdef bint good = False
    if code.shape[0] != count:
        raise ValueError(f"{count} scores and {code.shape[0]} codes")
    cdef list out = []
    for block in range(count - 1, -1, -1):
        if not 0 <= code[block] < heading.shape[0]:
            raise ValueError(f"{code[block]} is the code of no element")
        good = scores[block] >= least or (good and scores[block] > unlikely and heading[code[block]])
        if good:
            out.append(block)
    out.reverse()
    return out
