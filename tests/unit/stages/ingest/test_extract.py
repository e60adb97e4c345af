"""ingest.extract as a program: every record is a document or a row of the table of rejects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl2llm.chain.sources import content_digest
from crawl2llm.core import code_snapshot
from crawl2llm.core import record as records
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.stages.ingest import extract
from tests.unit import making
from tests.unit.stages.ingest.warcs import html, http, members, name, page, record

SOURCES = [
    {"name": "web", "kind": "warc", "paths": ["*.warc.gz"]},
    {"name": "good", "kind": "jsonl", "paths": ["*.jsonl"], "curated": True},
]
DEMO = [{"name": "demo", "kind": "crawl"}, {"name": "gold", "kind": "crawl", "curated": True}]


def run(out: Path, *files: str, crawl: Path | None = None, shard: str = "00000") -> int:
    argv = ["--config", making.config("ingest.extract", sources=DEMO if crawl else SOURCES, shards=2)]
    argv += ["--manifest", str(out / f"{shard}.manifest.json"), *(["--crawl", str(crawl)] if crawl else [])]
    return extract.main([*argv, "--files", *files])


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    folder = tmp_path / "crawl"
    folder.mkdir()
    cut = members(page(4), page(5))
    (folder / "a.warc.gz").write_bytes(
        members(record("warcinfo", 0, b"x"), page(1), record("response", 2, http(b"", "404 Gone")), page(1)) + cut[:-40]
    )
    (folder / "b.jsonl").write_text('{"text": "Fine words."}\n{"text": 1}\n')
    return folder


def test_every_record_is_accounted_for(tmp_path: Path, crawl: Path) -> None:
    assert run(tmp_path / "out", f"web={crawl}/a.warc.gz", f"good={crawl}/b.jsonl") == 0
    manifest = Manifest.read(tmp_path / "out/00000.manifest.json")
    assert manifest.counts == {
        "in": 9,
        "kept": 4,
        "dropped": {"type_warcinfo": 1, "status_404": 1, "repeated_record": 1, "broken_record": 1, "no_text": 1},
    }
    documents = list(rows(manifest.file("00000.parquet")))
    assert [json.loads(row["metadata"]).get("truncated") for row in documents] == [None, None, True, None]
    assert manifest.summary["truncated"] == 1
    dropped = list(rows(manifest.file("00000.dropped.parquet")))
    assert [row["source"] for row in documents] == ["web", "web", "web", "good"]
    assert [row["curated"] for row in documents] == [False, False, False, True]
    assert json.loads(documents[0]["metadata"])["file"] == "a.warc.gz"
    assert sorted(row["reason"] for row in dropped) == sorted(manifest.counts["dropped"])
    assert all(row["file"] in {"a.warc.gz", "b.jsonl"} for row in dropped)
    assert next(row for row in dropped if row["reason"] == "repeated_record")["record_id"] == name(1)
    assert set(records.read(tmp_path / "out/00000.manifest.json")["files"]) == {"web=a.warc.gz", "good=b.jsonl"}
    assert manifest.summary["by_source"]["good"] == {"documents": 1, "bytes": 11}
    assert manifest.summary["text_bytes"] == sum(len(row["text"].encode()) for row in documents)
    assert manifest.summary["bytes_read"] == sum(path.stat().st_size for path in crawl.iterdir())


def test_a_file_is_named_below_its_root(tmp_path: Path) -> None:
    for name_ in ("AA/w.jsonl", "AB/w.jsonl"):
        (tmp_path / "in" / name_).parent.mkdir(parents=True)
        (tmp_path / "in" / name_).write_text('{"text": "Fine words."}\n{"text": 1}\n')
    assert run(tmp_path / "out", *(f"good={tmp_path}/in/./{folder}/w.jsonl" for folder in ("AA", "AB"))) == 0
    manifest = Manifest.read(tmp_path / "out/00000.manifest.json")
    assert manifest.counts["dropped"] == {"no_text": 2}, "not repeated_record"
    documents = list(rows(manifest.file("00000.parquet")))
    assert [json.loads(row["metadata"])["file"] for row in documents] == ["AA/w.jsonl", "AB/w.jsonl"]
    assert [row["url"] for row in documents] == ["file:good/AA/w.jsonl#0", "file:good/AB/w.jsonl#0"]
    dropped = list(rows(manifest.file("00000.dropped.parquet")))
    assert [row["file"] for row in dropped] == ["AA/w.jsonl", "AB/w.jsonl"]
    moved = (tmp_path / "in").rename(tmp_path / "elsewhere")
    assert run(tmp_path / "again", *(f"good={moved}/./{folder}/w.jsonl" for folder in ("AA", "AB"))) == 0
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_same_bytes_again_and_elsewhere(tmp_path: Path, crawl: Path) -> None:
    moved = crawl.rename(tmp_path / "moved")
    for out in ("one", "two"):
        if out == "two":
            moved = moved.rename(tmp_path / "elsewhere")
        assert run(tmp_path / out, f"web={moved}/a.warc.gz", f"good={moved}/b.jsonl") == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_shard_without_files_is_empty(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    assert Manifest.read(tmp_path / "00000.manifest.json").counts == {"in": 0, "kept": 0, "dropped": {}}


@pytest.mark.parametrize(
    ("given", "words"),
    [("nobody=x", "not source=path of a source"), ("web", "not source=path"), ("web=gone", "no such file gone")],
)
def test_files_that_make_no_sense(tmp_path: Path, given: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, given) == 1
    assert words in capsys.readouterr().err
    assert list(tmp_path.glob("*")) == []


def sharded(tmp_path: Path, shards: int = 3) -> Path:
    """The frozen sources of a run whose every shard reads a file of two lines."""
    (tmp_path / "in").mkdir(exist_ok=True)
    files: dict[str, list[str]] = {}
    for number in range(shards):
        path = tmp_path / f"in/{number}.jsonl"
        if not path.exists():
            path.write_text(f'{{"text": "Fine words {number}."}}\n{{"text": 1}}\n')
        files[f"{number:05d}"] = [f"good={tmp_path}/in/./{number}.jsonl"]
    held = {shard: content_digest(entries) for shard, entries in files.items()}
    return code_snapshot.sources_path(code_snapshot.write_config({}, [{"main": files}, {"main": held}]))


def run_sharded(tmp_path: Path, *also: str, shard: str = "00000", out: str = "out") -> int:
    extract._read_frozen_sources.cache_clear()  # another program
    argv = ["--config", making.config("ingest.extract", sources=SOURCES, shards=3), "--sources", str(sharded(tmp_path))]
    return extract.main([*argv, "main", "--also", *also, "--manifest", str(tmp_path / out / f"{shard}.manifest.json")])


def test_one_task_of_three_shards_writes_what_three_tasks_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_sharded(tmp_path, "00001", "00002") == 0
    for shard in ("00000", "00001", "00002"):
        assert run_sharded(tmp_path, shard=shard, out="alone") == 0
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert len(names) == 15
    for name_ in names:
        assert (tmp_path / "out" / name_).read_bytes() == (tmp_path / "alone" / name_).read_bytes(), name_
    texts = [row["text"] for number in range(3) for row in rows(tmp_path / f"out/0000{number}.parquet")]
    assert texts == ["Fine words 0.", "Fine words 1.", "Fine words 2."]


def test_a_task_of_several_shards_reads_again_what_changed_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def stamps() -> list[int]:
        return [(tmp_path / f"out/0000{number}.parquet").stat().st_mtime_ns for number in range(3)]

    assert run_sharded(tmp_path, "00001", "00002") == 0
    before = stamps()
    assert run_sharded(tmp_path, "00001", "00002") == 0 and stamps() == before
    assert "nothing to do: settings, code and input are as before" in capfd.readouterr().err

    (tmp_path / "in/1.jsonl").write_text('{"text": "Other words."}\n')
    (tmp_path / "out/00000.manifest.json").unlink()  # as Snakemake does
    assert run_sharded(tmp_path, "00001", "00002") == 0
    after = stamps()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]
    assert [row["text"] for row in rows(tmp_path / "out/00001.parquet")] == ["Other words."]
    assert Manifest.read(tmp_path / "out/00000.manifest.json").sources.keys() == {"00000"}

    (tmp_path / "out/00002.parquet").unlink()
    assert run_sharded(tmp_path, "00001", "00002") == 0
    assert stamps()[:2] == after[:2] and Manifest.read(tmp_path / "out/00002.manifest.json")


def test_a_file_that_changed_since_the_plan_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = sharded(tmp_path)
    (tmp_path / "in/1.jsonl").write_text('{"text": "Other words."}\n')
    argv = ["--config", making.config("ingest.extract", sources=SOURCES, shards=3), "--sources", str(planned), "main"]
    assert extract.main([*argv, "--also", "00001", "--manifest", str(tmp_path / "out/00000.manifest.json")]) == 1
    assert "a file of shard 00001 changed since this run was planned" in capsys.readouterr().err
    assert not (tmp_path / "out/00001.manifest.json").exists() and not (tmp_path / "out/00000.manifest.json").exists()


def test_files_of_one_shard_are_not_taken_for_those_of_several(
    tmp_path: Path, crawl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--config", making.config("ingest.extract", sources=SOURCES, shards=2), "--files", f"good={crawl}/b.jsonl"]
    assert extract.main([*argv, "--also", "00001", "--manifest", str(tmp_path / "00000.manifest.json")]) == 1
    assert "--files are those of one shard" in capsys.readouterr().err
    argv = [*argv[:2], "--sources", str(tmp_path / "gone"), "main", "--manifest", str(tmp_path / "00000.manifest.json")]
    assert extract.main(argv) == 1
    assert "not the source files of a run" in capsys.readouterr().err


def test_crawl_of_the_demo_is_dealt_to_the_shards(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    for number in range(3):
        (made / f"crawl-{number:05d}.warc.gz").write_bytes(members(page(number)))
    (made / "curated.jsonl").write_text('{"text": "Fine words."}\n')
    (made / "gold.jsonl").write_text('{"text": "Not to be read."}\n')
    Manifest("crawl.render", "x").write(made / "manifest.json", sorted(made.iterdir()))
    seen = []
    for shard in ("00000", "00001"):
        assert run(tmp_path / "out", crawl=made / "manifest.json", shard=shard) == 0
        seen.append([(row["source"], row["curated"]) for row in rows(tmp_path / f"out/{shard}.parquet")])
    assert seen == [[("demo", False), ("demo", False), ("gold", True)], [("demo", False)]]


def test_html_of_a_page_is_not_in_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(record("response", 1, http(html("Words &amp; more.").encode())))
    assert run(tmp_path / "out", f"web={tmp_path}/a.warc") == 0
    assert [row["text"] for row in rows(tmp_path / "out/00000.parquet")] == ["Words & more."]


def test_demo_without_its_crawl_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "--config",
        making.config("ingest.extract", sources=DEMO),
        "--manifest",
        str(tmp_path / "m/0.manifest.json"),
    ]
    assert extract.main(argv) == 1
    assert "'demo'" in capsys.readouterr().err
