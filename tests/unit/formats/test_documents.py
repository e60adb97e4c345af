"""Documents and verdicts: the writer, what survives, and the one source of randomness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest, ManifestError, consumed_inputs, record_inputs
from crawl2llm.formats import documents
from crawl2llm.formats.documents import (
    DOCUMENT,
    GROUP,
    KEPT,
    REASON,
    VERDICT,
    VERDICT_COLUMNS,
    VERDICTS,
    Writer,
    add_counts,
    batches,
    by_row,
    count_rows,
    document_id,
    open_parquet,
    parquet_file,
    rows,
    select_shard,
    shard_of,
    surviving_documents,
    uniform_hash,
    verdict_digests,
    verdict_file,
)
from tests.unit import making

NAMES = pa.schema([("id", pa.string()), ("n", pa.int64())])


def written(path: Path, names: list[str], batch: int = 3) -> Path:
    with Writer(path, NAMES, batch) as writer:
        for number, name in enumerate(names):
            writer.add({"id": name, "n": number})
    return path


def test_the_same_bytes_however_rows_are_handed_over(tmp_path: Path) -> None:
    given = [
        {"id": f"{n:032x}", "kept": n % 3 > 0, "rule": None if n % 3 else "short", "rules": []} for n in range(150_000)
    ]
    table = pa.Table.from_pylist(given, schema=VERDICT)
    with Writer(tmp_path / "rows.parquet", VERDICT) as writer:
        for row in given:
            writer.add(row)
    with Writer(tmp_path / "tables.parquet", VERDICT) as writer:
        for start, end in ((0, 1), (1, 70_000), (70_000, 150_000)):
            writer.add_table(table.slice(start, end - start))
        assert writer.count == 150_000
    found = pq.ParquetFile(tmp_path / "rows.parquet")
    assert [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)] == [
        GROUP,
        GROUP,
        150_000 - 2 * GROUP,
    ]
    assert found.read() == table == pq.read_table(tmp_path / "tables.parquet")
    assert (tmp_path / "rows.parquet").read_bytes() == (tmp_path / "tables.parquet").read_bytes()


def test_tables_of_a_chosen_size_have_row_groups_of_their_own(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.parquet", NAMES, batch=3) as writer:
        for size in (2, 4, 1):
            writer.add_table(pa.table({"id": ["x"] * size, "n": [size] * size}))
    found = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [2, 3, 1, 1]


def test_only_what_repeats_has_a_dictionary(tmp_path: Path) -> None:
    row = {"id": "1", "kept": False, "rule": "short", "value": 1.0, "threshold": 2.0, "rules": ["short"]}
    with Writer(tmp_path / "a.parquet", VERDICT) as writer:
        writer.add(row)
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_one = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert with_one == {"rule", "detail", "rules.list.element"}


def test_writer_round_trip_in_small_row_groups(tmp_path: Path) -> None:
    path = written(tmp_path / "deep/a.parquet", list("abcdefg"))
    assert [row["id"] for row in rows(path)] == list("abcdefg")
    assert count_rows(path) == 7 and pq.ParquetFile(path).num_row_groups == 3
    assert path.read_bytes() == written(tmp_path / "b.parquet", list("abcdefg")).read_bytes()
    assert [len(batch) for batch in batches(path, ["n"], size=4)] == [4, 3]


def test_no_rows_is_a_file_too(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [])
    assert count_rows(path) == 0 and list(rows(path)) == [] and pq.read_schema(path).equals(NAMES)


def test_absent_columns_are_null_and_tables_keep_their_place(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.parquet", NAMES) as writer:
        writer.add({"id": "a"})
        writer.add_table(pa.table({"n": pa.array([1], pa.int32()), "id": ["b"], "more": [0]}))
        writer.add({"id": "c", "n": 2})
    assert writer.count == 3
    assert list(rows(tmp_path / "a.parquet")) == [{"id": "a", "n": None}, {"id": "b", "n": 1}, {"id": "c", "n": 2}]


def test_writer_leaves_nothing_on_an_exception(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Writer(tmp_path / "a.parquet", NAMES, 1) as writer:
        writer.add({"id": "a", "n": 1})
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(pa.ArrowInvalid), Writer(tmp_path / "a.parquet", NAMES) as writer:
        writer.add({"id": "a", "n": "no number"})
    assert list(tmp_path.iterdir()) == []


def test_writer_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["old"])
    before = path.read_bytes()
    with pytest.raises(RuntimeError), Writer(path, NAMES, 1) as writer:
        writer.add({"id": "new", "n": 1})
        assert path.read_bytes() == before
        raise RuntimeError
    assert path.read_bytes() == before


def test_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ManifestError, match=r"a\.parquet: not a readable Parquet file"):
        list(rows(tmp_path / "a.parquet"))


def test_other_bytes_of_the_same_size_are_not_read_for_the_document(tmp_path: Path) -> None:
    """A page's checksum is compared when it is read: no step takes a damaged value for a true one."""
    path = written(tmp_path / "x.parquet", [f"name {number}" for number in range(200)], batch=50)
    right, values = path.read_bytes(), list(rows(path))
    seen = 0
    for place in range(4, len(right) // 2, 7):
        path.write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
        try:
            assert list(rows(path)) == values, place
        except ManifestError as error:
            seen += 1
            assert str(path) in str(error)
    assert seen > 20


def test_survivors_are_what_the_verdicts_keep_in_the_documents_order(tmp_path: Path) -> None:
    made = making.documents(tmp_path / "d", [making.document(name, name * 3) for name in "edcba"])
    judged = making.verdicts(tmp_path / "v", {"00000": list("edca")}, lambda name: name in "ca")
    documents, verdicts = parquet_file(made), parquet_file(judged, "00000")
    assert [row["id"] for row in surviving_documents(documents, verdicts)] == ["e", "d"]
    assert list(surviving_documents(documents, verdicts, ["text"])) == [{"id": n, "text": n * 3} for n in "ed"]


def test_what_reads_a_verdict_depends_on_what_it_reads(tmp_path: Path) -> None:
    """A threshold is no input of any later step, why a document was dropped only of those that ask for it."""
    first = {"id": "a", "kept": False, "rule": "short", "value": 1.0, "threshold": 2.0, "rules": ["short"]}
    again = {**first, "threshold": 3.0, "rules": ["short", "long"]}
    other, kept = {**first, "rule": "long"}, {"id": "a", "kept": True, "rules": []}
    used: list[dict[str, str | None]] = []
    for number, row in enumerate([first, again, other, kept]):
        path = tmp_path / str(number) / "00001.parquet"
        with Writer(path, VERDICT) as writer:
            writer.add(row)
        made = Manifest("some.select", "x", summary={VERDICTS: {"00001": verdict_digests(path)}})
        made.write(path.with_name("00001.manifest.json"), [path])
        used.append({})
        for columns in VERDICT_COLUMNS:
            with record_inputs() as opened:
                assert verdict_file(path.with_name("00001.manifest.json"), "00001", columns) == path
            ((parts),) = consumed_inputs(opened).values()
            assert list(parts) == [f"summary:verdicts/00001/{columns}"]
            used[-1][columns] = next(iter(parts.values()))
    assert used[0] == used[1] and used[0] != used[2] and used[2][KEPT] == used[0][KEPT] != used[3][KEPT]
    assert used[3][REASON] != used[0][REASON]
    made = Manifest("old.select", "x")  # of a version without these digests
    made.write(tmp_path / "3/00001.manifest.json", [path])
    with record_inputs() as opened:
        verdict_file(tmp_path / "3/00001.manifest.json", "00001")
    assert list(consumed_inputs(opened)["old.select 00001"]) == ["00001.parquet"]


def test_select_counts_by_rule(tmp_path: Path) -> None:
    signals = tmp_path / "score/00001.manifest.json"
    with Writer(tmp_path / "score/00001.parquet", NAMES.append(pa.field("source", pa.string()))) as writer:
        for number, name in enumerate("abc"):
            writer.add({"id": name, "n": number, "source": "books" if name == "c" else "web"})
    Manifest("some.score", "x").write(signals, [writer.path])

    def judge(row: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": row["id"],
            "kept": row["n"] == 0,
            "rule": None if row["n"] == 0 else f"rule{row['n']}",
            "rules": [f"rule{row['n']}"] if row["n"] else [],
        }

    made = Manifest("some.select", "x")
    (file,) = select_shard(signals, by_row(judge), made, tmp_path / "select/00001.manifest.json", [])
    assert made.counts == {"in": 3, "kept": 1, "dropped": {"rule1": 1, "rule2": 1}}
    assert made.summary == {"source_exempt": 0, VERDICTS: {"00001": verdict_digests(file)}}
    assert file == tmp_path / "select/00001.parquet" and pq.read_schema(file).equals(VERDICT)
    assert [row["id"] for row in rows(file)] == list("abc")
    assert add_counts({}, made.counts) == made.counts

    told: list[tuple[str, bool]] = []
    made = Manifest("some.select", "x")
    out = tmp_path / "again/00001.manifest.json"
    select_shard(
        signals, by_row(judge), made, out, ["books"], lambda row, verdict: told.append((row["id"], verdict["kept"]))
    )
    assert made.counts == {"in": 3, "kept": 2, "dropped": {"rule1": 1}} and made.summary["source_exempt"] == 1
    assert told == [("a", True), ("b", False), ("c", True)]
    spared = list(rows(tmp_path / "again/00001.parquet"))[2]
    assert (spared["kept"], spared["rule"], spared["rules"]) == (True, None, ["rule2"])


def test_shard_of_a_manifest(tmp_path: Path) -> None:
    assert shard_of(Path("results/00017.manifest.json")) == "00017"
    assert parquet_file(making.documents(tmp_path, [], "00017")).name == "00017.parquet"
    assert pq.read_schema(tmp_path / "00017.parquet").equals(DOCUMENT)


PARTS = st.lists(st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), max_size=8), min_size=1)


@given(PARTS, PARTS)
def test_documents_of_other_origin_have_other_ids(one: list[str], other: list[str]) -> None:
    assert (document_id(*one) == document_id(*other)) == (one == other)
    assert len(document_id(*one)) == 32


def test_ids_never_change() -> None:
    assert document_id("<urn:uuid:1>", "http://example.org/") == "c9c60edfc32fde7a370a9709a9f90a73"


def test_uniform_never_changes() -> None:
    assert [uniform_hash(0, "a"), uniform_hash(1, "a"), uniform_hash(0, "b"), uniform_hash(0, "a", "split")] == [
        0.6538238492821447,
        0.7581529243061885,
        0.3520311011355214,
        0.2299316068431515,
    ]


def test_uniform_is_uniform_and_independent_by_salt() -> None:
    draws = np.array([[uniform_hash(7, f"{n}", salt) for salt in ("x", "y")] for n in range(20_000)])
    assert draws.min() >= 0 and draws.max() < 1
    shares = np.histogram(draws[:, 0], bins=20, range=(0, 1))[0] / len(draws)
    assert np.abs(shares - 0.05).max() < 0.01
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03


def test_hashes_are_written_as_they_are(tmp_path: Path) -> None:
    """Neither compressed nor dictionary-encoded; the other columns are both. Without `hashes` all are, as ever."""
    schema = pa.schema([("name", pa.string()), ("hash", pa.uint64()), ("set", pa.list_(pa.uint64()))])
    table = pa.table({"name": ["a", "a"], "hash": [1, 2], "set": [[1], [2, 3]]}, schema=schema)
    found = []
    for hashes in (["hash", "set.list.element"], []):
        path = tmp_path / f"{len(hashes)}.parquet"
        with Writer(path, schema, hashes=hashes) as writer:
            writer.add_table(table)
        with open_parquet(path) as file:
            assert file.read().equals(table)
            group = file.metadata.row_group(0)
            columns = [group.column(number) for number in range(3)]
            found.append([(column.compression, column.has_dictionary_page) for column in columns])
    assert found == [[("ZSTD", True), ("UNCOMPRESSED", False), ("UNCOMPRESSED", False)], [("ZSTD", True)] * 3]


def test_long_rows_are_written_before_they_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CHARACTERS", 1000)
    with Writer(tmp_path / "a.parquet", DOCUMENT) as writer:
        for number in range(100):
            writer.add({"id": f"{number:02d}", "text": "x" * 90})
            assert len(writer.rows) <= 11 and sum(len(table) for table in writer.tables) <= 11
    with open_parquet(tmp_path / "a.parquet") as file:
        assert file.num_row_groups == 10
    assert [row["id"] for row in rows(tmp_path / "a.parquet")] == [f"{number:02d}" for number in range(100)]
