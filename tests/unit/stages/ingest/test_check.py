"""ingest.check: ids are unique over all shards, and a record that the crawl holds twice is named once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import DOCUMENT, Writer, parquet_file, rows
from crawl2llm.stages.ingest import check, extract
from tests.unit import making
from tests.unit.stages.ingest.warcs import members, name, page

SOURCES = [
    {"name": "web", "kind": "warc", "paths": ["*.gz"]},
    {"name": "again", "kind": "warc", "paths": ["*.gz"]},
    {"name": "lines", "kind": "jsonl", "paths": ["*"]},
]


def extracted(out: Path, shard: str, *files: str) -> str:
    config = making.config("ingest.extract", sources=SOURCES, shards=3)
    manifest = out / f"{shard}.manifest.json"
    assert extract.main(["--config", config, "--manifest", str(manifest), "--files", *files]) == 0
    return str(manifest)


def checked(out: Path, documents: list[str]) -> int:
    config = making.config("ingest.check")
    return check.main(["--config", config, "--documents", *documents, "--manifest", str(out / "check/manifest.json")])


def test_a_record_in_two_files_stays_where_it_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, numbers in {"a": (1, 2, 3), "b": (3, 4), "c": (2, 3)}.items():
        (tmp_path / f"{file}.warc.gz").write_bytes(members(*(page(number) for number in numbers)))
    found = {}
    # The shards are dealt otherwise: what is dropped does not depend on it.
    for run, dealt in {"one": ["again=c", "web=b", "web=a"], "two": ["web=a", "again=c", "web=b"]}.items():
        given_ = [entry.replace("=", f"={tmp_path}/./") + ".warc.gz" for entry in dealt]
        documents = [extracted(tmp_path / run, f"{shard:05d}", entry) for shard, entry in enumerate(given_)]
        assert checked(tmp_path / run, documents) == 0
        manifest = Manifest.read(tmp_path / run / "check/manifest.json")
        assert manifest.counts == {"in": 7, "kept": 4, "dropped": {"repeated_record": 3}}
        repeated = list(rows(manifest.file("repeated.parquet")))
        found[run] = {(row["record_id"], row["source"], row["file"], row["kept_file"]) for row in repeated}
        assert sorted(manifest.summary["notes"])[0].startswith(
            "again, c.warc.gz: 2 of its records, also in web, a.warc.gz, dropped"
        )
    assert found["one"] == found["two"] == {
        (name(3), "web", "b.warc.gz", "a.warc.gz"),
        (name(2), "again", "c.warc.gz", "a.warc.gz"),
        (name(3), "again", "c.warc.gz", "a.warc.gz"),
    }  # fmt: skip
    assert not (tmp_path / "one/check/.ids").exists()


def test_the_copies_are_dropped_before_the_first_filter(tmp_path: Path) -> None:
    for file, numbers in {"a": (1, 2), "b": (2, 4)}.items():
        (tmp_path / f"{file}.warc.gz").write_bytes(members(*(page(number) for number in numbers)))
    documents = [
        extracted(tmp_path / "out", f"{shard:05d}", f"web={tmp_path}/./{file}.warc.gz")
        for shard, file in enumerate("ab")
    ]
    assert checked(tmp_path, documents) == 0
    manifest = Manifest.read(tmp_path / "check/manifest.json")
    assert manifest.counts == {"in": 4, "kept": 3, "dropped": {"repeated_record": 1}}
    verdicts = {shard: list(rows(manifest.file(f"{shard}.parquet"))) for shard in ("00000", "00001")}
    for shard, path in zip(verdicts, documents, strict=True):
        assert [row["id"] for row in verdicts[shard]] == [row["id"] for row in rows(parquet_file(path), ["id"])]
    dropped = [row for found in verdicts.values() for row in found if not row["kept"]]
    assert [(row["rule"], row["rules"], row["detail"], row["value"]) for row in dropped] == [
        ("repeated_record", ["repeated_record"], "a.warc.gz", None)
    ]
    found = surviving_texts.texts(Path(documents[1]), tmp_path / "check/manifest.json", [], ["source"])
    assert [row["id"] for row in found] == [row["id"] for row in verdicts["00001"] if row["kept"]]


def documents_with(folder: Path, shard: int, made: list[dict[str, Any]]) -> str:
    path = folder / f"{shard:05d}.parquet"
    with Writer(path, DOCUMENT) as writer:
        for row in made:
            writer.add({"text": "", "curated": False, "date": None, "metadata": '{"file": "AA/w"}', "url": "u", **row})
    manifest = Manifest("ingest.extract", "x", summary={"sources": ["lines", "web"]})
    manifest.write(folder / f"{shard:05d}.manifest.json", [path])
    return str(folder / f"{shard:05d}.manifest.json")


def test_other_documents_with_one_id_end_the_run_with_both_origins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{7:032x}", f"{8:032x}"
    given_ = [
        documents_with(tmp_path, 0, [{"id": other, "source": "lines"}, {"id": one, "source": "lines", "url": "file:lines/AA/w#1"}]),
        documents_with(tmp_path, 1, [{"id": one, "source": "lines", "url": "file:lines/AB/w#1", "metadata": '{"file": "AB/w"}'}]),
    ]  # fmt: skip
    assert checked(tmp_path, given_) == 1
    said = capsys.readouterr().err
    assert f"two documents have the id {one}: source lines, file AA/w, file:lines/AA/w#1 (shard 00000, row 1)" in said
    assert "and source lines, file AB/w, file:lines/AB/w#1 (shard 00001, row 0)" in said
    assert not (tmp_path / "check/manifest.json").exists()


def test_a_crawl_that_is_given_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "MOST_REPEATED", 2)
    same = [{"id": f"{n:032x}", "source": "web", "metadata": '{"file": "a", "record_id": "<r>"}'} for n in range(5)]
    given_ = [documents_with(tmp_path, shard, same) for shard in (0, 1)]
    assert checked(tmp_path, given_) == 1
    assert (
        "more than 2 records are in two files, such as source web, file a, <r> u (shard 00000, row 0)"
        in capsys.readouterr().err
    )


def test_no_documents_at_all(tmp_path: Path) -> None:
    assert checked(tmp_path, [documents_with(tmp_path, 0, [])]) == 0
    assert Manifest.read(tmp_path / "check/manifest.json").counts == {
        "in": 0,
        "kept": 0,
        "dropped": {"repeated_record": 0},
    }


@given(st.lists(st.lists(st.integers(0, 40), unique=True, max_size=30), min_size=1, max_size=5), st.integers(1, 20))
def test_found_is_what_occurs_twice_in_however_many_parts(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[int]], held: int
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    # Far apart in either half, so that both halves of an id count.
    as_id = {number: f"{number % 3:016x}{number * 0x1234_5678_9ABC_DEF % 2**64:016x}" for number in range(41)}
    paths = []
    for shard, numbers in enumerate(shards):
        documents_with(folder, shard, [{"id": as_id[number], "source": "web"} for number in numbers])
        paths.append(folder / f"{shard:05d}.parquet")
    before, check.HELD_DOCUMENTS, check.BATCH = (check.HELD_DOCUMENTS, check.BATCH), held, 7
    try:
        places = check.find_repeated(paths, folder)
    finally:
        check.HELD_DOCUMENTS, check.BATCH = before
    everything = [number for numbers in shards for number in numbers]
    wanted = {(s, r) for s, numbers in enumerate(shards) for r, n in enumerate(numbers) if everything.count(n) > 1}
    assert {(int(place["shard"]), int(place["row"])) for place in places} == wanted and len(places) == len(wanted)
