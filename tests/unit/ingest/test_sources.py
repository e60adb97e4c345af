"""Which files a run reads, and which shard reads which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scripts.common.config import ConfigError, validate
from scripts.ingest import sources


def config(*given: dict[str, Any], shards: int = 2, data: str = ".") -> dict[str, Any]:
    return validate({"data": data, "ingest": {"extract": {"shards": shards, "sources": list(given)}}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.warc.gz", "a.warc.gz", "deep/c.warc.gz", "[odd].warc", "x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "list.txt").write_text(f"# files\n{tmp_path}/x.txt\n\n  {tmp_path}/a.warc.gz\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{data}/*.warc.gz", ["a.warc.gz", "b.warc.gz"]),
        ("{data}/**/*.warc.gz", ["a.warc.gz", "b.warc.gz", "deep/c.warc.gz"]),
        ("{data}/x.txt", ["x.txt"]),
        ("{data}/[odd].warc", ["[odd].warc"]),
        ("@{data}/list.txt", ["x.txt", "a.warc.gz"]),
        ("{data}/absent", []),
        ("{data}/deep", []),
    ],
)
def test_expand(folder: Path, pattern: str, names: list[str]) -> None:
    for data in (str(folder), f"{folder}/"):
        assert sources.expand(pattern, data) == [f"{folder}/{name}" for name in names]


def test_files_in_the_order_of_the_sources_dealt_to_shards(folder: Path) -> None:
    made = config(
        {"name": "late", "kind": "warc", "paths": ["{data}/b.warc.gz", "{data}/a.warc.gz"]},
        {"name": "demo", "kind": "crawl"},
        {"name": "notes", "kind": "text", "paths": ["{data}/x.txt"]},
        data=str(folder),
    )
    assert sources.files(made) == [
        ("late", f"{folder}/b.warc.gz"),
        ("late", f"{folder}/a.warc.gz"),
        ("notes", f"{folder}/x.txt"),
    ]
    assert sources.by_shard(made) == {
        "00000": [f"late={folder}/b.warc.gz", f"notes={folder}/x.txt"],
        "00001": [f"late={folder}/a.warc.gz"],
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"name": "a", "kind": "warc", "paths": ["{data}/*.zip"]}], ["sources[0].paths", "'{data}/*.zip'", "no file"]),
        ([{"name": "a", "kind": "warc"}], ["sources[0] (a) needs `paths`", "kind warc"]),
        ([{"name": "a", "kind": "text", "paths": ["@absent.txt"]}], ["sources[0].paths", "absent.txt"]),
        ([{"name": "a", "kind": "crawl"}, {"name": "a", "kind": "crawl"}], ["sources[1].name", "called already"]),
    ],
)
def test_refused_with_the_place_in_the_config(folder: Path, given: list[dict[str, Any]], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        sources.files(config(*given, data=str(folder)))
    assert all(word in str(caught.value) for word in words), caught.value


def test_content_changes_with_the_file_and_not_with_its_age(tmp_path: Path) -> None:
    path, named = tmp_path / "a", [f"x={tmp_path}/a"]
    body = bytearray(os.urandom(20_000))
    path.write_bytes(body)
    before = sources.content(named)
    os.utime(path, (1, 1))
    assert sources.content(named) == before
    seen = {before, sources.content([]), sources.content([f"y={path}"])}
    for change in (0, 19_999):
        body[change] ^= 1
        path.write_bytes(body)
        seen.add(sources.content(named))
    path.write_bytes(bytes(body) + b"x")
    seen.add(sources.content(named))
    assert len(seen) == 6
    path.unlink()
    with pytest.raises(ConfigError, match="input file of source 'x'"):
        sources.content(named)
