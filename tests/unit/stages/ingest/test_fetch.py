"""ingest.fetch: copies that are whole, resumed and checked, and documents that are the same with and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import sources
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.ingest import extract, fetch
from crawl2llm.stages.ingest import list as listing
from crawl2llm.stages.ingest.files import copy_path
from tests.unit.stages.ingest.servers import Server
from tests.unit.stages.ingest.test_list import WEB, config, crawl, run


def fetched(out: Path, whole: dict[str, Any]) -> int:
    """Fetch shard 00000 by the list in `out`."""
    argv = ["--config", fingerprint("ingest.fetch", whole), "--list", str(out / "list/manifest.json")]
    argv += ["--access", sources.access_json(whole), "--manifest", str(out / "fetch/00000.manifest.json")]
    return fetch.main(argv)


def listed(out: Path, whole: dict[str, Any]) -> None:
    argv = ["--config", fingerprint("ingest.list", whole), "--access", sources.access_json(whole)]
    assert listing.main([*argv, "--manifest", str(out / "list/manifest.json")]) == 0


def extracted(out: Path, whole: dict[str, Any]) -> int:
    argv = ["--config", fingerprint("ingest.extract", whole), "--list", str(out / "list/manifest.json")]
    argv += ["--fetched", str(out / "fetch/00000.manifest.json"), "--manifest", str(out / "00000.manifest.json")]
    return extract.main(argv)


def test_documents_are_the_same_with_and_without(server: Server, tmp_path: Path) -> None:
    crawl(server, drop=400)
    whole = config({**WEB, "base": server.url}, shards=1)
    assert run(tmp_path / "a", whole)[0] == 0
    listed(tmp_path / "b", whole)
    assert fetched(tmp_path / "b", whole) == 0
    server.files.clear()  # the network is gone
    assert extracted(tmp_path / "b", whole) == 0
    for name in ("00000.parquet", "00000.dropped.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    manifest = Manifest.read(tmp_path / "b/fetch/00000.manifest.json")
    assert len(manifest.files) == 8 and all(name.endswith(".warc.gz") for name in manifest.files)
    assert not any(manifest.checksum_problems())
    manifest.file(next(iter(manifest.files))).write_bytes(b"")
    Manifest.remove_with_copy(tmp_path / "b/00000.manifest.json")
    assert extracted(tmp_path / "b", whole) == 1


def test_a_copy_that_was_cut_off_continues(server: Server, tmp_path: Path) -> None:
    data = b'{"text": "Words and more of them."}\n' * 50_000
    whole = config({"name": "web", "kind": "jsonl", "paths": [server.put("x.jsonl", data)], "patience": 1}, shards=1)
    listed(tmp_path, whole)
    copy = copy_path(tmp_path / "fetch/00000", "web", "x.jsonl")
    # The first attempt ends after some of it: the range that follows is from another place.
    file = server.files["/x.jsonl"]
    file.drop, file.shift = 700_000, 9
    assert fetched(tmp_path, whole) == 1
    partial = copy.with_name(f".{copy.name}.partial")
    there = partial.stat().st_size
    assert there == 700_000 and not copy.exists()
    file.drop = file.shift = 0
    server.asked.clear()
    assert fetched(tmp_path, whole) == 0 and copy.read_bytes() == data and not partial.exists()
    assert ("GET", "/x.jsonl", "bytes=700000-") in server.asked
    server.asked.clear()
    (tmp_path / "fetch/00000.manifest.json").unlink()
    (tmp_path / "fetch/.00000.manifest.copy").unlink()
    assert fetched(tmp_path, whole) == 0 and not server.asked, "what is there is not asked for again"


def test_what_another_list_left_is_not_continued(server: Server, tmp_path: Path) -> None:
    whole = config(
        {"name": "web", "kind": "jsonl", "paths": [server.put("x.jsonl", b'{"text": "Words."}\n')]}, shards=1
    )
    listed(tmp_path, whole)
    copy = copy_path(tmp_path / "fetch/00000", "web", "x.jsonl")
    copy.parent.mkdir(parents=True)
    copy.with_name(f".{copy.name}.partial").write_bytes(b"of an older file")
    (copy.parent / "old.gz").write_bytes(b"of a file that is not listed any more")
    assert fetched(tmp_path, whole) == 0 and copy.read_bytes() == b'{"text": "Words."}\n'
    assert not (copy.parent / "old.gz").exists()


def test_an_older_copy_is_not_taken_for_the_new_file(server: Server, tmp_path: Path) -> None:
    old, new = (b'{"text": "%s words."}\n' % word for word in (b"Old", b"New"))  # of one length
    whole = config({"name": "web", "kind": "jsonl", "paths": [server.put("x.jsonl", old)], "patience": 1}, shards=1)
    listed(tmp_path, whole)
    assert fetched(tmp_path, whole) == 0
    copy = copy_path(tmp_path / "fetch/00000", "web", "x.jsonl")
    assert copy.read_bytes() == old
    server.put("x.jsonl", new)
    Manifest.remove_with_copy(tmp_path / "list/manifest.json")
    Manifest.remove_with_copy(tmp_path / "fetch/00000.manifest.json")
    listed(tmp_path, whole)
    server.files["/x.jsonl"].statuses = [503] * 100
    assert fetched(tmp_path, whole) == 1 and not copy.exists()
    server.files["/x.jsonl"].statuses = []
    assert fetched(tmp_path, whole) == 0 and copy.read_bytes() == new


def test_missing_files(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crawl(server)
    del server.files[next(name for name in server.files if "00003" in name)]
    listed(tmp_path, config({**WEB, "base": server.url}, shards=1))
    assert fetched(tmp_path, config({**WEB, "base": server.url}, shards=1)) == 1
    assert "missing files: 1, and ingest.extract.max_missing_files is 0: http://127" in capsys.readouterr().err
    whole = config({**WEB, "base": server.url}, shards=1, max_missing_files=1)
    assert fetched(tmp_path, whole) == 0 and extracted(tmp_path, whole) == 0
    assert Manifest.read(tmp_path / "00000.manifest.json").counts["dropped"] == {"missing_file": 1}


def test_no_name_of_a_server_leaves_the_folder(tmp_path: Path) -> None:
    for name in ("../../etc/passwd", "a/..", "", "x" * 500, "ä b\n.gz", "/etc/passwd"):
        found = copy_path(tmp_path, "web", name)
        assert found.parent == tmp_path and len(found.name) < 120 and found.name.isascii()


def test_it_changes_no_document(tmp_path: Path) -> None:
    whole = config(WEB)
    on = {**whole, "ingest": {**whole["ingest"], "fetch": {"enabled": True, "parallel": 2}}}
    assert fingerprint("ingest.extract", whole) == fingerprint("ingest.extract", on)
    assert json.loads(fingerprint("ingest.fetch", on))["config"] == {
        "enabled": True,
        "max_missing_files": 0,
        "texts": [],
    }
