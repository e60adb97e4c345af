"""ingest.extract as a program: every record is a document or a row of the table of rejects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.formats.documents import rows
from scripts.ingest import extract
from scripts.workflow import record as records
from scripts.workflow.manifest import Manifest
from tests.unit import making
from tests.unit.ingest.warcs import html, http, members, name, page, record

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
