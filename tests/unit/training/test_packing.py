"""Best-fit packing: against a plain loop, whole documents, every token, blocks, and the order of epochs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.training import data, packing
from tests.unit.stages.pretrain.conftest import write_indexed

CONTEXT = 16


def best_fit_decreasing(sizes: list[int], context: int) -> list[list[int]]:
    """The windows of documents of these sizes, each one by itself."""
    windows: list[list[int]] = []
    for size in sorted(sizes, reverse=True):
        fitting = [window for window in windows if sum(window) + size <= context]
        if fitting:
            max(fitting, key=sum).append(size)
        else:
            windows.append([size])
    return windows


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=80))
def test_lengths_fit_as_in_a_plain_loop(sizes: list[int]) -> None:
    packed = packing.fit_lengths(np.bincount(sizes, minlength=CONTEXT + 1))
    lengths = [
        [length for length, each in some.parts for _ in range(each)] for some in packed for _ in range(some.number)
    ]
    # Windows with as much room are alike: which of them a document goes to is open.
    assert sorted(map(sum, lengths)) == sorted(map(sum, best_fit_decreasing(sizes, CONTEXT)))
    assert sorted(length for window in lengths for length in window) == sorted(sizes)
    assert all(sum(n * each for n, each in some.parts) + some.room == CONTEXT for some in packed)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 3 * CONTEXT), min_size=1, max_size=60))
def test_documents_are_whole_and_every_window_is_full(sizes: list[int]) -> None:
    ends = np.cumsum(sizes)
    starts = ends - np.array(sizes)
    block = packing.pack_block(starts, np.array(sizes), CONTEXT)
    pieces = [block.pieces(window) for window in range(len(block.ends))]
    assert all(inside.sum() == CONTEXT for _, inside in pieces)
    covered = Counter(
        token for begins, inside in pieces for b, n in zip(begins, inside, strict=True) for token in range(b, b + n)
    )
    assert sorted(covered) == list(range(int(ends[-1])))
    for start, size in zip(starts.tolist(), sizes, strict=True):
        # Cut into windows of its own and a rest: each is a piece.
        for place in range(start, start + size, CONTEXT):
            length = min(CONTEXT, start + size - place)
            assert (place, length) in set(zip(block.starts.tolist(), block.sizes.tolist(), strict=True))
    assert set(block.starts.tolist()) <= {
        place for s, n in zip(starts, sizes, strict=True) for place in range(s, s + n, CONTEXT)
    }


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> data.Stream:
    """Three files of documents with 1 to 49 tokens: each has its number and ends with 0."""
    folder, pick, number, stems = tmp_path_factory.mktemp("stream"), np.random.default_rng(3), 0, []
    for file in range(3):
        sizes = pick.integers(1, 49, 70).tolist()
        write_indexed(folder / str(file), [[number + n + 1] * size + [0] for n, size in enumerate(sizes)])
        number += len(sizes)
        stems.append(folder / str(file))
    return data.Stream((stem.with_suffix(".bin"), stem.with_suffix(".idx")) for stem in stems)


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_stream_is_read_once_an_epoch(stream: data.Stream, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(packing, "BLOCK", -(-210 // blocks))
    packed = packing.Packing(stream, CONTEXT)
    assert packed.blocks == blocks and packed.totals["documents"] == 210 and packed.totals["tokens"] == len(stream)
    tokens = np.stack([packed.read(window) for window in range(len(packed))])
    assert tokens.shape == (len(packed), CONTEXT + 1)
    text = stream.read(0, len(stream))
    pieces = [(window, *piece) for window in range(len(packed)) for piece in packed.window_pieces(window)]
    assert {place for _, start, size in pieces for place in range(start, start + size)} == set(range(len(stream)))
    assert sum(size for *_, size in pieces) - len(stream) == packed.totals["tokens_repeated"]
    for window, row in enumerate(tokens):
        inside = [text[start : start + size] for _, start, size in (piece for piece in pieces if piece[0] == window)]
        assert row[1:].tolist() == np.concatenate(inside).tolist()
        assert row[0] in (0, row[1]), "end of text, or the document that is cut"
    for start, end in ((0, 1), (100, 131), (len(stream) - 1, len(stream))):
        expected = sorted({window for window, begin, size in pieces if begin < end and begin + size > start})
        assert packed.windows_holding(start, end).tolist() == expected
    size = len(packed)
    order = packed.windows_from(0, 2 * size, seed=5)
    assert sorted(order[:size]) == sorted(order[size:]) == list(range(size)) and (order[:size] != order[size:]).any()
    parts = [packed.windows_from(first, 7, seed=5) for first in range(0, 2 * size - 6, 7)]
    assert np.concatenate(parts).tolist() == order[: 7 * len(parts)].tolist()
    changes = np.diff(np.searchsorted(packed.bases, order[:size], side="right"))
    assert np.count_nonzero(changes) == blocks - 1, "block after block"


def test_spans_are_packed_by_themselves(stream: data.Stream) -> None:
    starts, sizes = (np.concatenate(part) for part in zip(*packing.Packing(stream, CONTEXT)._files(), strict=True))
    first, last = (
        np.array([3, 20, 100, 150]),
        np.array([9, 21, 140, 205]),
    )  # documents of two spans and what lies between
    spans = np.stack([starts[first], starts[last]])
    packed = packing.Packing(stream, CONTEXT, spans)
    documents = np.concatenate([np.arange(low, high) for low, high in zip(first, last, strict=True)])
    assert packed.totals["documents"] == len(documents) and packed.totals["tokens"] == sizes[documents].sum()
    tokens = {token for window in range(len(packed)) for token in packed.read(window)[1:].tolist()} - {0}
    assert tokens == set((documents + 1).tolist())
    assert not len(packed.windows_holding(int(starts[50]), int(starts[51])))
    assert packed.totals["documents_cut"] == (sizes[documents] > CONTEXT).sum()


def test_a_document_alone_fills_its_window(tmp_path: Path) -> None:
    write_indexed(tmp_path / "a", [[7, 8, 0]])
    packed = packing.Packing(data.Stream([(tmp_path / "a.bin", tmp_path / "a.idx")]), 8)
    assert packed.read(0).tolist() == [0, 7, 8, 0, 7, 8, 0, 7, 8]
    assert packing.totals_text(packed.totals).startswith("Best-fit packing: 1 documents in 1 windows, 0 of them")
