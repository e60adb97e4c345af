"""The token stream: the reader, the order of the windows, the validation text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.training import data, heldout
from tests.unit.stages.pretrain.conftest import write_indexed


def test_reads_every_token_of_the_shards(shards: list[Path]) -> None:
    stream = data.open_split(shards, "train")
    files = [Manifest.read(path).file(f"train/{path.name[:5]}.bin") for path in shards]
    expected = np.concatenate([np.fromfile(path, np.uint16) for path in files])
    assert len(stream) == len(expected) and (stream.read(0, len(stream)) == expected).all()
    border = len(np.fromfile(files[0], np.uint16))
    assert (stream.read(border - 5, 9) == expected[border - 5 : border + 4]).all()


def test_more_datasets_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    """4,096 shards of several sources are more than the 1,024 files that many systems allow."""
    import resource

    stems = [tmp_path / f"{number:05d}" for number in range(400)]
    for number, stem in enumerate(stems):
        write_indexed(stem, [[number, number]])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 350), hard))
    try:
        stream = data.Stream((stem.with_suffix(".bin"), stem.with_suffix(".idx")) for stem in stems)
        found = stream.read(0, 800)
        held = [heldout.Document(0.0, str(n), stem, 0, 2, 9) for n, stem in enumerate(stems)]
        scored = [ids.tolist() for ids, *_ in heldout.scoring_pieces(held, 7, 8, 0.5)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.tolist() == [number for number in range(400) for _ in range(2)]
    assert scored == [[7, number, number] for number in range(400)]


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_a_permutation_takes_every_place_once(size: int, seed: int, epoch: int) -> None:
    assert sorted(data.permute(np.arange(size), size, seed, epoch)) == list(range(size))


def test_permutations_differ_and_spread() -> None:
    size = 100_000
    first, second = (data.permute(np.arange(size), size, 7, epoch) for epoch in (0, 1))
    assert (first == second).mean() < 0.001
    # Neighbours go far apart: uniform places are a third of the range apart on average.
    assert np.abs(np.diff(first)).mean() == pytest.approx(size / 3, rel=0.02)
    assert np.corrcoef(first, np.arange(size))[0, 1] == pytest.approx(0, abs=0.02)


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 99))
def test_an_epoch_covers_every_window_once(windows: int, sequences: int, seed: int) -> None:
    steps = -(-2 * windows // sequences)
    order = np.concatenate([data.windows_from(step * sequences, sequences, windows, seed) for step in range(steps)])
    for epoch in (0, 1):
        assert sorted(order[epoch * windows : (epoch + 1) * windows]) == list(range(windows))


@settings(deadline=None)  # the machine may be busy
@given(st.sampled_from([(1, 12), (2, 6), (3, 2), (4, 3), (6, 1), (12, 1)]), st.integers(1, 9))
def test_any_number_of_processes_sees_the_same_batch(place: tuple[int, int], step: int) -> None:
    processes, micro = place
    batch = data.windows_from((step - 1) * 12, 12, 50, 3)
    parts = [data.process_share(batch, rank, processes, micro) for rank in range(processes)]
    assert all(part.shape == (12 // processes // micro, micro) for part in parts)
    assert sorted(np.concatenate([part.ravel() for part in parts])) == sorted(batch)


def test_windows_overlap_by_one_so_that_every_token_is_predicted_once(shards: list[Path]) -> None:
    stream = data.open_split(shards, "train")
    found = data.read_windows(stream, np.arange(6).reshape(2, 3), 10)
    assert found.shape == (2, 3, 11)
    assert (found[..., 1:].ravel() == stream.read(1, 60)).all()
    assert (found[..., :-1].ravel() == stream.read(0, 60)).all()


def test_reading_ahead_gives_each_step_its_batch_and_begins_again_after_a_roll_back() -> None:
    steps: list[int] = []

    def read(step: int) -> int:
        steps.append(step)
        if step == 5:
            raise ValueError("no such batch")
        return step * 10

    ahead = data.ReadAhead(read)
    assert [ahead(1), ahead(2), ahead(3)] == [10, 20, 30]
    assert ahead(2) == 20  # step 4 was read, and is forgotten
    ahead.close()
    assert ahead.following is None and sorted(steps) == [1, 2, 2, 3, 3, 4]
    assert ahead(4) == 40
    with pytest.raises(ValueError, match="no such batch"):
        ahead(5)
    ahead.close()
