"""Best-fit packing: against a plain loop, whole documents, every token, blocks, groups, and files that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.training import data, packing
from crawl2llm.training.packed_windows import PACKING, Packing, packing_files, read_totals, totals_text
from crawl2llm.training.schedule import Plan
from crawl2llm.training.window_readers import open_reader
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
    pieces = set(zip(block.starts.tolist(), block.sizes.tolist(), strict=True))
    windows = np.split(block.sizes, block.ends)[:-1]
    assert all(inside.sum() == CONTEXT for inside in windows)
    covered = Counter(token for begin, size in pieces for token in range(begin, begin + size))
    assert sorted(covered) == list(range(int(ends[-1])))
    for start, size in zip(starts.tolist(), sizes, strict=True):
        # Cut into windows of its own and a rest: each is a piece.
        for place in range(start, start + size, CONTEXT):
            assert (place, min(CONTEXT, start + size - place)) in pieces
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


def documents_of(stream: data.Stream) -> tuple[data.Tokens, data.Tokens]:
    """(first token, tokens) of all documents, which end with 0."""
    ends = np.flatnonzero(stream.read(0, len(stream)) == 0) + 1
    return np.concatenate([[0], ends[:-1]]), np.diff(ends, prepend=0)


def pack(
    stream: data.Stream, folder: Path, groups: Sequence[packing.Spans] = ()
) -> tuple[Packing, list[dict[str, int]]]:
    """The windows as a training maps them, and what was made of each group."""
    files, totals = packing.write_packing(stream, CONTEXT, folder, groups)
    manifest = Manifest("pretrain.pack", "test", summary={PACKING: {str(CONTEXT): packing.add_totals(totals)}})
    manifest.write(folder / "manifest.json", files)
    return Packing(Manifest.read(folder / "manifest.json"), stream, CONTEXT), totals


@pytest.mark.parametrize(("largest", "blocks"), [(210, 1), (120, 3), (50, 8)])
def test_every_token_is_in_a_window(
    stream: data.Stream, largest: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "BLOCK_DOCUMENTS", largest)
    packed, (totals,) = pack(stream, tmp_path)
    assert len(packed.blocks) == blocks and totals["documents"] == 210 and totals["tokens"] == len(stream)
    tokens = np.stack([packed.read(window) for window in range(len(packed))])
    assert tokens.shape == (totals["windows"], CONTEXT + 1)
    text = stream.read(0, len(stream))
    pieces = [(window, *piece) for window in range(len(packed)) for piece in packed.window_pieces(window)]
    assert {place for _, start, size in pieces for place in range(start, start + size)} == set(range(len(stream)))
    assert sum(size for *_, size in pieces) - len(stream) == totals["tokens_repeated"]
    for window, row in enumerate(tokens):
        inside = [text[start : start + size] for _, start, size in (piece for piece in pieces if piece[0] == window)]
        assert row[1:].tolist() == np.concatenate(inside).tolist()
        assert row[0] in (0, row[1]), "end of text, or the document that is cut"
    for start, end in ((0, 1), (100, 131), (len(stream) - 1, len(stream))):
        expected = sorted({window for window, begin, size in pieces if begin < end and begin + size > start})
        assert packed.windows_holding(start, end).tolist() == expected


@settings(deadline=None, max_examples=12)
@given(data_=st.data(), largest=st.integers(1, 70))
def test_groups_are_packed_by_themselves(
    stream: data.Stream, tmp_path_factory: pytest.TempPathFactory, data_: st.DataObject, largest: int
) -> None:
    """Groups of runs of documents, some of none: each token of a group is in one of its windows, and no other token is."""
    starts, sizes = documents_of(stream)
    group_of = np.repeat(data_.draw(st.lists(st.integers(0, 2), min_size=21, max_size=21)), 10)
    group_of[0] = 0
    groups, wanted = [], []
    for group in sorted(set(group_of.tolist())):
        mine = np.flatnonzero(group_of == group)
        first = mine[np.flatnonzero(np.diff(mine, prepend=-2) > 1)]
        insides = np.cumsum(np.where(group_of == group, sizes, 0)) - sizes
        groups.append(packing.Spans(starts[first], insides[first], int(sizes[mine].sum())))
        wanted.append({token for place in mine for token in range(starts[place], starts[place] + sizes[place])})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK_DOCUMENTS", largest)
        packed, totals = pack(stream, tmp_path_factory.mktemp("packed"), groups)
        assert all(len(some) <= largest for *_, some in packing.blocks_of(stream, groups)), "so memory is bounded"
    base = 0
    for made, tokens in zip(totals, wanted, strict=True):
        pieces = [piece for window in range(base, base + made["windows"]) for piece in packed.window_pieces(window)]
        assert {token for start, size in pieces for token in range(start, start + size)} == tokens
        assert made["tokens"] == len(tokens)
        base += made["windows"]
    assert base == len(packed)


def test_a_small_group_has_no_window(stream: data.Stream, tmp_path: Path) -> None:
    starts, sizes = documents_of(stream)
    number = int(np.argmin(sizes))
    spans = packing.Spans(starts[number : number + 1], np.zeros(1, np.int64), int(sizes[number]))
    packed, (totals,) = pack(stream, tmp_path, [spans])
    assert len(packed) == totals["windows"] == 0 and "0 documents in 0 windows" in totals_text(totals)


def test_a_group_is_filled_by_its_own_documents(tmp_path: Path) -> None:
    write_indexed(tmp_path / "a", [[7, 8, 0], [5] * CONTEXT])
    stream = data.Stream([(tmp_path / "a.bin", tmp_path / "a.idx")])
    block = packing.pack_block(np.array([0]), np.array([3]), 8)
    assert [stream.read(*piece).tolist() for piece in zip(block.starts, block.sizes, strict=True)] == [
        [7, 8, 0], [7, 8, 0], [7, 8],
    ]  # fmt: skip


def test_windows_of_another_context_or_stream_are_refused(stream: data.Stream, tmp_path: Path) -> None:
    pack(stream, tmp_path)
    path = tmp_path / "manifest.json"
    assert read_totals([path], CONTEXT, verify=True)["documents"] == 210
    with pytest.raises(InputError, match=r"no packed windows of 8 tokens.*run its step again"):
        read_totals([path], 8)
    shorter = data.Stream([(stream.parts[0][0], stream.parts[0][0].with_suffix(".idx"))])
    with pytest.raises(InputError, match="made of other tokens"):
        Packing(Manifest.read(path), shorter, CONTEXT)
    longer = data.Stream((part, part.with_suffix(".idx")) for part, _ in [*stream.parts, stream.parts[0]])
    plan = Plan(1, 1, CONTEXT, 1)
    with pytest.raises(InputError, match=rf"made of {len(stream):,} tokens, and this training has {len(longer):,}"):
        open_reader("best_fit", longer, plan, 0, packs=[path])
    write_indexed(tmp_path / "other", [[1] * (len(stream) % 40 or 40), *[[1] * 40] * ((len(stream) - 1) // 40)])
    other = data.Stream([(tmp_path / "other.bin", tmp_path / "other.idx")])
    assert len(other) == len(stream)
    with pytest.raises(InputError, match="made of other documents than the training's"):
        open_reader("best_fit", other, plan, 0, packs=[path])
    assert len(open_reader("best_fit", stream, plan, 0, packs=[path]).windows_at(0, 3)) == 3
    pieces = tmp_path / packing_files(CONTEXT)[1]
    content = bytearray(pieces.read_bytes())
    content[8] ^= 1
    pieces.write_bytes(content)
    with pytest.raises(ManifestError, match="checksum"):
        read_totals([path], CONTEXT, verify=True)
    with pytest.raises(InputError, match="window 0 is damaged"):
        Packing(Manifest.read(path), stream, CONTEXT).window_pieces(0)
