"""Hashes dealt out to parts and back: each row is in one part, all rows of a hash are in one piece, and each shard gets its own answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats import hash_shuffle
from crawl2llm.formats.external_partition import part_by_hash
from crawl2llm.formats.first_occurrence import UNIT, merge_units, unit_rows
from crawl2llm.formats.hash_shuffle import (
    ANSWER,
    Answers,
    Dealer,
    HashTable,
    hash_bounds,
    pieces_of_part,
    read_answers,
    rows_between,
    rows_of_part,
)

HASH = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 1 << 32, 1 << 63, (1 << 64) - 1])


@given(st.lists(HASH, min_size=1, max_size=20), st.integers(1, 256))
def test_bounds_are_those_of_the_parts(hashes: list[int], parts: int) -> None:
    for value, part in zip(hashes, part_by_hash(np.array(hashes, np.uint64), parts).tolist(), strict=True):
        first, last = hash_bounds(part, parts)
        assert first <= value <= last
    assert hash_bounds(0, parts)[0] == 0 and hash_bounds(parts - 1, parts)[1] == (1 << 64) - 1
    assert all(hash_bounds(part, parts)[1] + 1 == hash_bounds(part + 1, parts)[0] for part in range(parts - 1))


def dealt_out(folder: Path, shards: list[list[int]]) -> list[Path]:
    made = []
    for number, hashes in enumerate(shards):
        path = folder / f"{number:05d}.parquet"
        with Dealer(path, UNIT, merge_units) as dealer:
            for at, value in enumerate(hashes):
                dealer.add(unit_rows(np.array([value], np.uint64), 0, number << 32, np.array([at])))
        Manifest("some.hash", "test").write(folder / f"{number:05d}.manifest.json", [path])
        made.append(folder / f"{number:05d}.manifest.json")
    return made


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(HASH, max_size=12), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 4))
def test_every_row_is_in_one_piece_with_all_of_its_hash(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    shards: list[list[int]],
    parts: int,
    size: int,
) -> None:
    for name in ("BLOCK", "GROUP_ROWS", "HELD_ROWS"):
        monkeypatch.setattr(hash_shuffle, name, size)
    folder = tmp_path_factory.mktemp("dealt")
    files = dealt_out(folder, shards)
    seen: dict[int, tuple[int, int]] = {}
    total = {(number, value): 0 for number, hashes in enumerate(shards) for value in hashes}
    for part in range(parts):
        for place, (shard, rows) in enumerate(pieces_of_part(files, part, parts, UNIT, folder / f"{part}")):
            for number, row in zip(shard.tolist(), rows, strict=True):
                value = int(row["hash"])
                assert seen.setdefault(value, (part, place)) == (part, place)
                total[number, value] -= int(row["count"])
        assert sum(len(rows) for _, rows in rows_of_part(files, part, parts, UNIT)) <= sum(map(len, shards))
    assert all(-left == shards[number].count(value) for (number, value), left in total.items())


@given(st.lists(st.tuples(st.integers(0, 40), HASH, st.integers(-1, 3)), max_size=20))
def test_each_shard_gets_its_answers(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("answers")
    files = [folder / f"{number:05d}.manifest.json" for number in range(41)]
    found = Answers(folder / "scratch", files)
    for shard, value, document in said:
        found.add(np.array([shard]), np.array([value], np.uint64), document, document)
    found.write(folder / "000.parquet")
    Manifest("some.repeated", "test").write(folder / "000.manifest.json", [folder / "000.parquet"])
    for shard in (0, 16, 40):
        rows = read_answers([folder / "000.manifest.json"], shard)
        best = {
            value: max(place for own, other, place in said if (own, other) == (shard, value))
            for own, value, _ in said
            if own == shard
        }
        assert dict(zip(rows["hash"].tolist(), rows["document"].tolist(), strict=True)) == best
        assert rows["hash"].tolist() == sorted(best)


@given(st.sets(HASH, max_size=12), st.lists(HASH, max_size=20))
def test_a_table_finds_what_is_there(there: set[int], asked: list[int]) -> None:
    rows = np.zeros(len(there), ANSWER)
    rows["hash"] = sorted(there)
    here, which = HashTable(rows).find(np.array(asked, np.uint64))
    assert here.tolist() == [number for number, value in enumerate(asked) if value in there]
    assert rows["hash"][which].tolist() == [asked[number] for number in here]


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    (path,) = dealt_out(tmp_path, [[1, 2]])
    with pytest.raises(ManifestError, match="has the columns"):
        list(rows_between(path.with_name("00000.parquet"), ANSWER, "hash", 0, 9))
