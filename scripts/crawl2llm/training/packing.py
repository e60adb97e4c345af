"""Best-fit packing: windows that hold whole documents, from the window's start (`packing: best_fit` of pretrain.train).

A window is one token and `context` after it, as in the stream. A document of up to `context` tokens is in one window, whole; a longer one
is cut into windows of its own and a rest, which is packed as a document is. Documents and rests go, the longest first, into the window
that has the least room for them: best-fit decreasing (Ding et al. 2024, https://arxiv.org/abs/2404.10830; OLMo-core packs so in
src/olmo_core/data/utils.py, nanochat keeps documents whole from a window's start in nanochat/dataloader.py). What room is left has the
beginning of another document, which is read once more: nothing is padded or dropped, and every window has as many predictions as another.

The documents of a stream are packed in blocks of BLOCK, of which each has every n-th document. So memory is that of a block, whatever the
stream's size: a process keeps the number of windows of each block, and packs a block when it reads it. An epoch reads block after block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.formats.megatron import HEADER
from crawl2llm.training.data import Stream, Tokens, permute

KEY = "pretrain.train.packing"
STREAM, BEST_FIT = "stream", "best_fit"  # its values
BLOCK = 1 << 20  # documents that are packed together: 16 bytes each
SMALLEST_BLOCK = 1 << 14  # with many groups, which have a block each in memory
CACHED_BLOCKS = 2  # of a group: a step may end one and begin the next


def document_places(idx_path: Path) -> tuple[Tokens, Tokens]:
    """(first token, tokens) of each document with tokens of a dataset that `open_indexed` takes: int64 [documents]."""
    with idx_path.open("rb") as handle:
        _, _, _, sequences, _ = HEADER.unpack(handle.read(HEADER.size))
        sizes = np.fromfile(handle, "<i4", sequences).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    return starts[sizes > 0], sizes[sizes > 0]


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
class Block:
    """Packed documents. Pieces [ends[w - 1], ends[w]) are those of window w: the first token of each in the stream, and its tokens."""

    ends: Tokens
    starts: Tokens
    sizes: Tokens

    def pieces(self, window: int) -> tuple[Tokens, Tokens]:
        """(starts, sizes) of the pieces of a window."""
        inside = slice(int(self.ends[window - 1]) if window else 0, int(self.ends[window]))
        return self.starts[inside], self.sizes[inside]


def pack_block(starts: Tokens, sizes: Tokens, context: int) -> Block:
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
    document[np.argsort(-packed, kind="stable")] = np.argsort(-rests, kind="stable")
    ends = np.cumsum(piece_counts)
    fill_window, fill_starts, fill_sizes = _fill_rooms(starts, sizes, rooms)
    piece_starts = np.insert((starts + whole * context)[document], ends[fill_window], fill_starts)
    piece_sizes = np.insert(packed, ends[fill_window], fill_sizes)
    ends += np.cumsum(np.bincount(fill_window, minlength=len(ends)))
    first = np.repeat(np.cumsum(whole) - whole, whole)
    long_starts = np.repeat(starts, whole) + (np.arange(len(first)) - first) * context
    return Block(
        np.concatenate([np.arange(1, len(first) + 1), len(first) + ends]),
        np.concatenate([long_starts, piece_starts]),
        np.concatenate([np.full(len(first), context), piece_sizes]),
    )


def _fill_rooms(starts: Tokens, sizes: Tokens, rooms: Tokens) -> tuple[Tokens, Tokens, Tokens]:
    """(window, start, tokens) of what fills the room that windows have left: the beginnings of documents, in turn of those long enough."""
    with_room = np.flatnonzero(rooms)
    longest_first = np.argsort(-sizes, kind="stable")
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


class Packing:
    """The windows of the documents in spans of a stream, numbered through all blocks.

    spans: int64 [2, n], the first token of each in the stream and the token after its last, whole documents in the stream's order;
    None: the whole stream. groups: how many such packings a process has, which all have blocks in memory.
    """

    def __init__(
        self, stream: Stream, context: int, spans: npt.NDArray[np.int64] | None = None, groups: int = 1
    ) -> None:
        self.stream, self.context = stream, context
        self.spans = np.array([[0], [len(stream)]]) if spans is None else spans
        documents = sum(len(sizes) for _, sizes in self._files())
        self.blocks = max(1, -(-documents // max(SMALLEST_BLOCK, BLOCK // groups)))
        self.totals = {"documents": documents, "documents_cut": 0, "tokens": 0}
        self.sizes = self._count_windows()  # of each block
        self.bases = np.concatenate([[0], np.cumsum(self.sizes)])
        self.totals |= {"windows": len(self), "tokens_repeated": len(self) * context - self.totals["tokens"]}
        self.block = lru_cache(CACHED_BLOCKS)(self._pack)

    def __len__(self) -> int:
        return int(self.bases[-1])

    def _files(self) -> Iterator[tuple[Tokens, Tokens]]:
        """(first token in the stream, tokens) of the documents of each file that lie in the spans."""
        borders = self.stream.starts.tolist()
        for (path, _), base, end in zip(self.stream.parts, borders, borders[1:], strict=False):
            low = int(np.searchsorted(self.spans[1], base, side="right"))
            high = int(np.searchsorted(self.spans[0], end, side="left"))
            if low < high:
                starts, sizes = document_places(path.with_suffix(".idx"))
                starts += base
                first, last = np.searchsorted(starts, np.clip(self.spans[:, low:high], base, end))
                counts = last - first
                documents = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
                yield starts[documents], sizes[documents]

    def _count_windows(self) -> Tokens:
        """How many windows each block has: documents are counted, not packed."""
        counts, windows = np.zeros((self.blocks, self.context + 1), np.int64), np.zeros(self.blocks, np.int64)
        seen = 0
        for _, sizes in self._files():
            block, whole = (seen + np.arange(len(sizes))) % self.blocks, (sizes - 1) // self.context
            np.add.at(counts, (block, sizes - whole * self.context), 1)
            np.add.at(windows, block, whole)
            seen += len(sizes)
            self.totals["tokens"] += int(sizes.sum())
            self.totals["documents_cut"] += int((sizes > self.context).sum())
        return windows + np.array([sum(each.number for each in fit_lengths(row)) for row in counts], np.int64)

    def _pack(self, block: int) -> Block:
        starts, sizes, seen = [], [], 0
        for file_starts, file_sizes in self._files():
            mine = slice((block - seen) % self.blocks, None, self.blocks)
            starts.append(file_starts[mine])
            sizes.append(file_sizes[mine])
            seen += len(file_sizes)
        return pack_block(np.concatenate(starts), np.concatenate(sizes), self.context)

    def window_pieces(self, window: int) -> list[tuple[int, int]]:
        """(first token in the stream, tokens) of each piece of a window, in its order, without the token before the first."""
        number = int(np.searchsorted(self.bases, window, side="right")) - 1
        starts, sizes = self.block(number).pieces(window - int(self.bases[number]))
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))

    def read(self, window: int) -> Tokens:
        """The `context + 1` tokens of a window.

        The first is the one before the first piece in the stream: the end-of-text token, except for the later pieces of a long document.
        The stream's first document has the stream's last token before it, which is end-of-text too.
        """
        pieces = self.window_pieces(window)
        before = (pieces[0][0] or len(self.stream)) - 1
        return np.concatenate([self.stream.read(start, size) for start, size in [(before, 1), *pieces]])

    def windows_holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream, of documents of the packing."""
        numbers, seen = set[int](), 0  # of the blocks of these documents
        for starts, sizes in self._files():
            first, last = (
                np.searchsorted(starts + sizes, start, side="right"),
                np.searchsorted(starts, end, side="left"),
            )
            numbers |= {(seen + document) % self.blocks for document in range(int(first), int(last))}
            seen += len(starts)
        out = [np.empty(0, np.int64)]
        for number in sorted(numbers):
            block = self.block(number)
            holds = np.flatnonzero((block.starts < end) & (block.starts + block.sizes > start))
            out.append(self.bases[number] + np.unique(np.searchsorted(block.ends, holds, side="right")))
        return np.concatenate(out)

    def permute(self, places: Tokens, seed: int, epoch: int) -> Tokens:
        """The windows at places of an epoch: blocks in the order of (seed, epoch), and the windows of each in theirs."""
        if self.blocks == 1:
            return permute(places, len(self), seed, epoch)
        order = permute(np.arange(self.blocks), self.blocks, seed, epoch)
        ends = np.cumsum(self.sizes[order])
        turn = np.searchsorted(ends, places, side="right")
        inside, out = places - (ends - self.sizes[order])[turn], np.empty(len(places), np.int64)
        for each in np.unique(turn):
            block, here = int(order[each]), turn == each
            block_seed = xxhash.xxh3_64_intdigest(f"block\x1f{block}".encode(), seed=seed)
            out[here] = self.bases[block] + permute(inside[here], int(self.sizes[block]), block_seed, epoch)
        return out

    def windows_from(self, first: int, count: int, seed: int) -> Tokens:
        """As `data.windows_from`: the windows of a global batch, after `first` windows of the steps before."""
        order = np.arange(first, first + count, dtype=np.int64)
        epochs, out = order // len(self), np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            out[here] = self.permute(order[here] % len(self), seed, int(epoch))
        return out


def add_totals(packings: Iterable[Packing]) -> dict[str, int]:
    """`totals` of all packings together; {} for none."""
    totals = [packing.totals for packing in packings]
    return {key: sum(each[key] for each in totals) for key in totals[0]} if totals else {}


def totals_text(totals: dict[str, int]) -> str:
    """What best fit made of the documents, in words."""
    documents, windows, share = totals["documents"], totals["windows"], totals["tokens_repeated"] / totals["tokens"]
    return (
        f"Best-fit packing: {documents:,} documents in {windows:,} windows, {totals['documents_cut']:,} of them longer and cut; "
        f"{totals['tokens_repeated']:,} tokens ({100 * share:.2g} %) are read twice, to fill windows."
    )
