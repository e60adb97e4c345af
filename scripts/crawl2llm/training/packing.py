"""Best-fit packing: windows that hold whole documents, from the window's start (`packing: best_fit` of pretrain.train).

A window is one token and `context` after it, as in the stream. A document of up to `context` tokens is in one window, whole; a longer one
is cut into windows of its own and a rest, which is packed as a document is. Documents and rests go, the longest first, into the window
that has the least room for them: best-fit decreasing (Ding et al. 2024, https://arxiv.org/abs/2404.10830; OLMo-core packs so in
src/olmo_core/data/utils.py, nanochat keeps documents whole from a window's start in nanochat/dataloader.py). What room is left has the
beginning of another document, which is read once more: nothing is padded or dropped, and every window has as many predictions as another.

The documents of a stream, or of each group of a mix, are packed in blocks of up to BLOCK_DOCUMENTS, one block after another as the lengths
are read. So memory is that of a block, and of what waits for one, whatever the stream's size. The windows are written as files, which
training maps (training/packed_windows.py).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from crawl2llm.formats.megatron import HEADER
from crawl2llm.training.data import Stream, Tokens
from crawl2llm.training.packed_windows import BLOCK, END, PIECE, packing_files

BLOCK_DOCUMENTS = 1 << 20  # that are packed together at most
WAITING_DOCUMENTS = 1 << 24  # of all groups, each of which waits for a full block: 16 bytes each


@dataclass(frozen=True)
class Spans:
    """Where the documents of a group are: spans of whole documents, in the stream's order. tokens: of the group.

    starts, insides: int64 [spans], the first token of each in the stream, and among the tokens of the group.
    """

    starts: Tokens
    insides: Tokens
    tokens: int

    def between(self, begin: int, end: int) -> tuple[Tokens, Tokens]:
        """(first token, token after the last) of the spans that have tokens of [begin, end) of the stream, cut to it."""
        low = max(0, int(np.searchsorted(self.starts, begin, side="right")) - 1)
        high = int(np.searchsorted(self.starts, end, side="left"))
        after = self.insides[high] if high < len(self.insides) else self.tokens
        starts = np.asarray(self.starts[low:high])
        ends = starts + np.diff(self.insides[low:high], append=after)
        return np.clip(starts, begin, end), np.clip(ends, begin, end)


def document_sizes(idx_path: Path) -> Iterator[tuple[Tokens, Tokens]]:
    """(first token, tokens) of the documents with tokens of a dataset that `open_indexed` takes: int64, BLOCK_DOCUMENTS at a time."""
    with idx_path.open("rb") as handle:
        _, _, _, sequences, _ = HEADER.unpack(handle.read(HEADER.size))
        base = 0
        for first in range(0, sequences, BLOCK_DOCUMENTS):
            sizes = np.fromfile(handle, "<i4", min(BLOCK_DOCUMENTS, sequences - first)).astype(np.int64)
            ends = base + np.cumsum(sizes)
            yield (ends - sizes)[sizes > 0], sizes[sizes > 0]
            base = int(ends[-1])


def documents_by_group(stream: Stream, groups: Sequence[Spans]) -> Iterator[tuple[int, Tokens, Tokens]]:
    """(group, first token in the stream, tokens) of the documents of each part of the stream that has any of a group."""
    for (path, _), base in zip(stream.parts, stream.starts.tolist(), strict=False):
        for starts, sizes in document_sizes(path.with_suffix(".idx")):
            if not len(starts):
                continue
            starts += base
            for number, spans in enumerate(groups):
                first, last = np.searchsorted(starts, spans.between(int(starts[0]), int(starts[-1] + sizes[-1])))
                counts = last - first
                documents = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
                if len(documents):
                    yield number, starts[documents], sizes[documents]


def blocks_of(stream: Stream, groups: Sequence[Spans]) -> Iterator[tuple[int, Tokens, Tokens]]:
    """(group, first token in the stream, tokens) of the documents of each block: all of a group, or half a block to a whole one."""
    largest = min(BLOCK_DOCUMENTS, WAITING_DOCUMENTS // max(1, len(groups)))
    waiting: list[list[tuple[Tokens, Tokens]]] = [[] for _ in groups]
    counts = [0] * len(groups)
    for group, *documents in documents_by_group(stream, groups):
        waiting[group].append((documents[0], documents[1]))
        counts[group] += len(documents[0])
        if counts[group] > largest:
            starts, sizes = (np.concatenate(part) for part in zip(*waiting[group], strict=True))
            while len(starts) > largest:
                half = max(1, largest // 2)
                yield group, starts[:half], sizes[:half]
                starts, sizes = starts[half:], sizes[half:]
            waiting[group], counts[group] = [(starts, sizes)], len(starts)
    for group, parts in enumerate(waiting):
        if parts:
            starts, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
            yield group, starts, sizes


class PackingWriter:
    """Writes blocks of packed documents as the files that `packed_windows.Packing` reads. Use as a context manager."""

    def __init__(self, folder: Path, context: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.context, self.files = context, [folder / name for name in packing_files(context)]
        self.pieces = 0

    def __enter__(self) -> PackingWriter:
        self.outputs: list[BinaryIO] = [path.open("wb") for path in self.files]
        return self

    def __exit__(self, *_: object) -> None:
        for output in self.outputs:
            output.close()

    def add(self, group: int, starts: Tokens, sizes: Tokens) -> dict[str, int]:
        """Pack and write a block of documents of a group; what was made of them."""
        packed = pack_block(starts, sizes, self.context)
        pieces = np.empty(len(packed.starts), PIECE)
        pieces["start"], pieces["tokens"] = packed.starts, packed.sizes
        row = np.array([(group, len(packed.ends), starts[0], starts[-1] + sizes[-1])], BLOCK)
        for output, rows in zip(self.outputs, ((self.pieces + packed.ends).astype(END), pieces, row), strict=True):
            output.write(rows.tobytes())
        self.pieces += len(pieces)
        tokens = int(sizes.sum())
        return {
            "documents": len(sizes),
            "documents_cut": int((sizes > self.context).sum()),
            "tokens": tokens,
            "windows": len(packed.ends),
            "tokens_repeated": len(packed.ends) * self.context - tokens,
        }


TOTALS = ("documents", "documents_cut", "tokens", "windows", "tokens_repeated")


def write_packing(
    stream: Stream, context: int, folder: Path, groups: Sequence[Spans] = ()
) -> tuple[list[Path], list[dict[str, int]]]:
    """Pack the documents of each group, by default those of the whole stream as one: (files in `folder`, what was made of each group).

    A group that has no more than `context` tokens has no window: they are too few for one.
    """
    groups = groups or [Spans(np.zeros(1, np.int64), np.zeros(1, np.int64), len(stream))]
    totals = [dict.fromkeys(TOTALS, 0) for _ in groups]
    with PackingWriter(folder, context) as writer:
        for group, starts, sizes in blocks_of(stream, groups):
            if groups[group].tokens > context:
                block = writer.add(group, starts, sizes)
                totals[group] = {key: value + block[key] for key, value in totals[group].items()}
    return writer.files, totals


def add_totals(totals: Sequence[dict[str, int]]) -> dict[str, int]:
    """What was made of all groups together."""
    return {key: sum(each[key] for each in totals) for key in TOTALS}


@dataclass
class WindowsAlike:
    """Windows with documents of the same lengths. parts: (length, how many of it), the longest first; room: tokens that are left."""

    number: int
    parts: tuple[tuple[int, int], ...]
    room: int


def fit_lengths(counts: npt.NDArray[np.int64]) -> list[WindowsAlike]:
    """Best-fit decreasing of documents into windows of `len(counts) - 1` tokens. counts: how many documents have each length, from 0.

    Documents of one length go together, so that the time depends on the lengths that there are, not on the documents.
    """
    context = len(counts) - 1
    open_windows: dict[int, list[WindowsAlike]] = {}
    rooms: list[int] = []  # the keys of open_windows, sorted
    full: list[WindowsAlike] = []

    def put(number: int, parts: tuple[tuple[int, int], ...], room: int) -> None:
        if not room:
            full.append(WindowsAlike(number, parts, 0))
        elif room in open_windows:
            open_windows[room].append(WindowsAlike(number, parts, room))
        else:
            open_windows[room] = [WindowsAlike(number, parts, room)]
            insort(rooms, room)

    def fill(windows: WindowsAlike, length: int, left: int) -> int:
        """Put up to `left` documents of a length into windows; how many are left then."""
        each = windows.room // length
        filled, rest = min(windows.number, left // each), 0
        if filled:
            put(filled, (*windows.parts, (length, each)), windows.room - each * length)
        if filled < windows.number:
            if rest := left - filled * each:
                put(1, (*windows.parts, (length, rest)), windows.room - rest * length)
            if unused := windows.number - filled - bool(rest):
                put(unused, windows.parts, windows.room)
        return left - filled * each - rest

    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left and (place := bisect_left(rooms, length)) < len(rooms):
            # What is filled has less room than `length` then, or all documents are placed: no key comes again.
            for windows in open_windows.pop(rooms.pop(place)):
                if left:
                    left = fill(windows, length, left)
                else:
                    put(windows.number, windows.parts, windows.room)
        if left:
            fill(WindowsAlike(-(-left // (context // length)), (), context), length, left)
    return full + [windows for room in rooms for windows in open_windows[room]]


@dataclass(frozen=True)
class PackedBlock:
    """Packed documents. Pieces [ends[w - 1], ends[w]) are those of window w: the first token of each in the stream, and its tokens."""

    ends: Tokens
    starts: Tokens
    sizes: Tokens


def pack_block(starts: Tokens, sizes: Tokens, context: int) -> PackedBlock:
    """Pack documents, of which each is `sizes` tokens from `starts` on in the stream: windows of long ones, then of all others."""
    whole = (sizes - 1) // context  # windows that a document has for itself
    rests = sizes - whole * context
    windows = fit_lengths(np.bincount(rests, minlength=context + 1))
    numbers = [each.number for each in windows]
    lengths = [np.repeat(*np.array(each.parts).T) for each in windows]
    packed = np.concatenate([np.tile(some, number) for some, number in zip(lengths, numbers, strict=True)])
    piece_counts = np.repeat([len(some) for some in lengths], numbers)
    rooms = np.repeat([each.room for each in windows], numbers)
    # Both hold the same lengths: the documents of a length go to its places in order.
    document = np.empty(len(packed), np.int64)
    document[_longest_first(packed, context)] = _longest_first(rests, context)
    ends = np.cumsum(piece_counts)
    fill_window, fill_starts, fill_sizes = _fill_rooms(starts, np.minimum(sizes, context), rooms)
    piece_starts = np.insert((starts + whole * context)[document], ends[fill_window], fill_starts)
    piece_sizes = np.insert(packed, ends[fill_window], fill_sizes)
    ends += np.cumsum(np.bincount(fill_window, minlength=len(ends)))
    first = np.repeat(np.cumsum(whole) - whole, whole)
    long_starts = np.repeat(starts, whole) + (np.arange(len(first)) - first) * context
    return PackedBlock(
        np.concatenate([np.arange(1, len(first) + 1), len(first) + ends]),
        np.concatenate([long_starts, piece_starts]),
        np.concatenate([np.full(len(first), context), piece_sizes]),
    )


def _longest_first(sizes: Tokens, largest: int) -> Tokens:
    """The order of sizes up to `largest`, the longest first; those of one size stay in order. numpy sorts 16 bits eight times as fast."""
    keys = largest - sizes
    return np.argsort(keys.astype(np.uint16) if largest < 1 << 16 else keys, kind="stable")


def _fill_rooms(starts: Tokens, sizes: Tokens, rooms: Tokens) -> tuple[Tokens, Tokens, Tokens]:
    """(window, start, tokens) of what fills the room that windows have left: the beginnings of documents, in turn of those long enough."""
    with_room = np.flatnonzero(rooms)
    longest_first = _longest_first(sizes, int(sizes.max()))
    long_enough = np.searchsorted(-sizes[longest_first], -rooms[with_room], side="right")
    turn = np.arange(len(with_room)) % np.maximum(long_enough, 1)
    window, begin, size = with_room, starts[longest_first[turn]], rooms[with_room]
    if len(lacking := np.flatnonzero(long_enough == 0)):  # one window at most: another would have been put into it
        (place,) = lacking
        taken = [0]
        for document_size in cycle(sizes[longest_first].tolist()):
            taken.append(min(taken[-1] + document_size, int(size[place])))
            if taken[-1] == size[place]:
                break
        several = longest_first[np.arange(len(taken) - 1) % len(sizes)]
        window = np.concatenate([np.delete(window, place), np.full(len(several), window[place])])
        begin = np.concatenate([np.delete(begin, place), starts[several]])
        size = np.concatenate([np.delete(size, place), np.diff(taken)])
    return window, begin, size
