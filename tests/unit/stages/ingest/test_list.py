"""ingest.list and ingest.extract over remote files: the layout of Common Crawl, patterns, files that are missing, secrets."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.chain import file_lists, sources
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.urls import unique_names
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import rows
from crawl2llm.stages.ingest import extract
from crawl2llm.stages.ingest import list as listing
from tests.unit.stages.ingest.servers import Server, http_server
from tests.unit.stages.ingest.warcs import TEXT, members, page

DATA = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
CRAWL = "CC-MAIN-2026-08"
WEB: dict[str, Any] = {"name": "web", "kind": "commoncrawl", "crawl": CRAWL, "files": 8, "patience": 1}


def config(*given: dict[str, Any], shards: int = 2, **extract: Any) -> dict[str, Any]:
    return validate({"ingest": {"extract": {"shards": shards, "sources": list(given), **extract}}})


def run(out: Path, whole: dict[str, Any]) -> tuple[int, list[dict[str, Any]], Counter[str]]:
    """List and extract as the rules do: (exit status, documents, dropped records by reason)."""
    list(sources.files_by_shard(whole))
    access = sources.access_json(whole)
    given = ["--config", fingerprint("ingest.list", whole), "--access", access]
    if status := listing.main([*given, "--manifest", str(out / "list/manifest.json")]):
        return status, [], Counter()
    documents: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    for number in range(whole["ingest"]["extract"]["shards"]):
        argv = [
            "--config",
            fingerprint("ingest.extract", whole),
            "--access",
            access,
            "--list",
            str(out / "list/manifest.json"),
        ]
        manifest = out / f"{number:05d}.manifest.json"
        if status := extract.main([*argv, "--manifest", str(manifest)]):
            return status, documents, dropped
        documents += rows(manifest.with_name(f"{number:05d}.parquet"))
        dropped.update(Manifest.read(manifest).counts["dropped"])
    return 0, documents, dropped


def crawl(server: Server, files: int = 8, **how: Any) -> None:
    """A crawl in the layout of data.commoncrawl.org."""
    names = []
    for number in range(files):
        names.append(f"crawl-data/{CRAWL}/segments/1.{number % 2}/warc/CC-MAIN-{number:05d}.warc.gz")
        server.put(names[-1], members(*(page(100 * number + each) for each in range(10))), **how)
    server.put(f"crawl-data/{CRAWL}/warc.paths.gz", gzip.compress("".join(f"{name}\n" for name in names).encode()))


def test_a_crawl(server: Server, tmp_path: Path) -> None:
    crawl(server, drop=300)
    status, documents, dropped = run(tmp_path, config({**WEB, "base": f"{server.url}/"}))
    assert status == 0 and len(documents) == 80 and not dropped
    files = {json.loads(row["metadata"])["file"] for row in documents}
    assert len(files) == 8 and all(name.startswith(f"crawl-data/{CRAWL}/segments/1.") for name in files)
    listed = [one for shard in ("00000", "00001") for one in json.loads((tmp_path / f"list/{shard}.json").read_text())]
    assert len(listed) == 8 and all(one["bytes"] > 0 and one["mark"] for one in listed)
    manifest = Manifest.read(tmp_path / "list/manifest.json")
    assert manifest.summary == {"files": 8, "bytes": sum(one["bytes"] for one in listed), "unknown": 0}


def test_a_crawl_in_the_folder_of_a_mirror_has_the_same_documents(server: Server, tmp_path: Path) -> None:
    crawl(server)
    for name, file in server.files.items():
        (tmp_path / "mirror" / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / name[1:]).write_bytes(file.data)
    _, there, _ = run(tmp_path / "a", config({**WEB, "base": server.url}))
    status, here, _ = run(tmp_path / "b", config({**WEB, "base": str(tmp_path / "mirror")}))
    assert status == 0 and here == there and len(here) == 80


def test_a_larger_number_has_all_of_a_smaller_one() -> None:
    names = [f"segments/{number}" for number in range(1000)]
    few, more = listing.choose_by_hash(names, 10, None), listing.choose_by_hash(names, 100, None)
    assert (
        len(few) == 10
        and len(more) == 100
        and set(few) < set(more)
        and listing.choose_by_hash(names[::-1], 10, None) == few[::-1]
    )
    tenth, fifth = listing.choose_by_hash(names, None, 0.1), listing.choose_by_hash(names, None, 0.2)
    assert set(tenth) < set(fifth) and 70 < len(tenth) < 130
    assert listing.choose_by_hash(names, None, 1.0) == names and len(listing.choose_by_hash(names, 2000, None)) == 1000


def test_missing_files_fail_the_task_or_are_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl(server)
    gone = sorted(name for name in server.files if "00003" in name)[0]
    del server.files[gone]
    server.put(next(name for name in server.files if "00004" in name)[1:], b"<html><body>Please sign in</body></html>")
    source = {**WEB, "base": server.url}
    assert run(tmp_path / "a", config(source, shards=1))[0] == 1
    said = capsys.readouterr().err
    assert f"{server.url}{gone}" in said and "max_missing_files is 0" in said
    status, documents, dropped = run(tmp_path / "b", config(source, shards=1, max_missing_files=2))
    assert (status, len(documents), dropped) == (0, 60, {"missing_file": 2})
    rejects = list(rows(tmp_path / "b/00000.dropped.parquet"))
    assert {row["url"].rpartition("-")[2] for row in rejects} == {"00003.warc.gz", "00004.warc.gz"}
    assert {row["detail"].partition(": ")[2] for row in rejects} == {
        "the server answers 404",
        "the server sent a web page in place of the file",
    }


@pytest.mark.parametrize("more", [{}, {"first_mb": 1}])
def test_missing_files_of_a_mirror_fail_the_task_or_are_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any]
) -> None:
    crawl(server)
    for name, file in server.files.items():
        (path := tmp_path / "mirror" / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    (gone := sorted((tmp_path / "mirror").rglob("*00003.warc.gz"))[0]).unlink()
    source = {**WEB, "base": str(tmp_path / "mirror"), **more}
    assert run(tmp_path / "a", config(source, shards=1))[0] == 1
    said = capsys.readouterr().err
    assert f"max_missing_files is 0: {gone}: missing_file: no such file" in said
    status, documents, dropped = run(tmp_path / "b", config(source, shards=1, max_missing_files=1))
    assert (status, len(documents), dropped) == (0, 70, {"missing_file": 1})


def test_a_file_that_goes_while_it_is_read_is_no_missing_file(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = random.Random(1).randbytes(300_000).hex().encode()  # noqa: S311 - one line: nothing comes of it before the break
    url = server.put("x.jsonl", b'{"text": "%s"}\n' % data, drop=200_000)
    whole = config({"name": "web", "kind": "jsonl", "paths": [url], "patience": 1}, shards=1, max_missing_files=9)
    server.files["/x.jsonl"].later = [404]
    assert run(tmp_path, whole)[0] == 1
    assert f"{url}: the server answers 404, and it had begun to send it" in capsys.readouterr().err


def test_a_file_of_a_mirror_that_is_not_as_it_was_listed_fails_the_task(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl(server)
    for name, file in server.files.items():
        (path := tmp_path / "mirror" / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    whole = config({**WEB, "base": str(tmp_path / "mirror")}, shards=1)
    assert run(tmp_path, whole)[0] == 0
    one = sorted((tmp_path / "mirror").rglob("*00003.warc.gz"))[0]
    one.write_bytes(one.read_bytes()[:-1] + b"x")  # as long as before
    Manifest.remove_with_copy(tmp_path / "00000.manifest.json")
    argv = ["--config", fingerprint("ingest.extract", whole), "--list", str(tmp_path / "list/manifest.json")]
    assert extract.main([*argv, "--manifest", str(tmp_path / "00000.manifest.json")]) == 1
    assert f"{one} has changed since ingest.list" in capsys.readouterr().err


def test_a_file_that_is_not_as_it_was_listed_fails_the_task(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = config(
        {"name": "web", "kind": "jsonl", "paths": [server.put("x.jsonl", b'{"text": "Words."}\n')], "patience": 1},
        shards=1,
    )
    assert run(tmp_path, whole)[0] == 0
    server.put("x.jsonl", b'{"text": "Other words."}\n')
    Manifest.remove_with_copy(tmp_path / "00000.manifest.json")
    argv = ["--config", fingerprint("ingest.extract", whole), "--list", str(tmp_path / "list/manifest.json")]
    assert extract.main([*argv, "--manifest", str(tmp_path / "00000.manifest.json")]) == 1
    assert "x.jsonl changed: it had 19 bytes, and now 25" in capsys.readouterr().err


def test_damage_is_fatal_where_the_config_says_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"name": "web", "kind": "jsonl", "paths": [server.put("x.jsonl", b'{"text": "Words."}\n{oh\n{no\n')]}
    assert run(tmp_path / "a", config(source))[2] == {"broken_record": 2}
    assert run(tmp_path / "b", config(source, max_damaged=2))[0] == 0
    assert run(tmp_path / "c", config(source, max_damaged=1))[0] == 1
    assert "damaged places: 2, and ingest.extract.max_damaged is 1: file:web/x.jsonl#2" in capsys.readouterr().err


def test_the_first_megabytes_of_each_file(server: Server, tmp_path: Path) -> None:
    crawl(server)
    status, documents, dropped = run(tmp_path, config({**WEB, "base": server.url, "first_mb": 0.0015}))
    assert status == 0 and not dropped and len(documents) < 50 and Counter(
        json.loads(row["metadata"])["file"] for row in documents
    ).keys() == {name[1:] for name in server.files if "segments" in name}  # fmt: skip
    manifest = Manifest.read(tmp_path / "00000.manifest.json")
    assert manifest.summary["bytes_read"] % 1500 == 0


def test_patterns_in_s3(s3: str, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    fs = fsspec.filesystem("s3", endpoint_url=s3, skip_instance_cache=True)
    fs.mkdir("listed")
    for name in ("a/1.parquet", "a/2.parquet", "b/1.parquet", "b/1.txt"):
        pq.write_table(pa.table({"text": [f"{TEXT} {name}"]}), tmp_path / "x")
        fs.pipe(f"listed/{name}", (tmp_path / "x").read_bytes())
    source = {"name": "set", "kind": "parquet", "paths": ["s3://listed/**/*.parquet"], "options": {"endpoint_url": s3}}
    status, documents, dropped = run(tmp_path, config(source))
    assert status == 0 and not dropped
    assert {json.loads(row["metadata"])["file"] for row in documents} == {"a/1.parquet", "a/2.parquet", "b/1.parquet"}
    fs.rm("listed/a/2.parquet")
    argv = [
        "--config",
        fingerprint("ingest.extract", config(source, max_missing_files=1)),
        "--access",
        sources.access_json(config(source)),
    ]
    shard = next(shard for shard in ("00000", "00001") if "a/2" in (tmp_path / f"list/{shard}.json").read_text())
    out = tmp_path / f"{shard}.manifest.json"
    assert extract.main([*argv, "--list", str(tmp_path / "list/manifest.json"), "--manifest", str(out)]) == 0
    assert Manifest.read(out).counts["dropped"] == {"missing_file": 1}


def test_a_list_at_a_url(server: Server, tmp_path: Path) -> None:
    found = [server.put(f"{folder}/x.jsonl", b'{"text": "Words of %s."}\n' % folder.encode()) for folder in "ab"]
    place = server.put("list.txt", ("# files\n" + "\n".join(found) + "\n").encode())
    status, documents, _ = run(tmp_path, config({"name": "web", "kind": "jsonl", "paths": [f"@{place}"]}))
    assert status == 0 and sorted(row["url"] for row in documents) == ["file:web/a/x.jsonl#0", "file:web/b/x.jsonl#0"]


def test_the_same_path_at_two_servers_is_two_files(server: Server, tmp_path: Path) -> None:
    with http_server() as other:
        found = [
            one.put("a/x.jsonl", b'{"text": "Words of %d."}\n' % number) for number, one in enumerate((server, other))
        ]
        whole = config({"name": "web", "kind": "jsonl", "paths": found, "patience": 1}, shards=1)
        status, documents, dropped = run(tmp_path, whole)
    assert status == 0 and not dropped and {row["text"] for row in documents} == {"Words of 0.", "Words of 1."}
    listed = json.loads((tmp_path / "list/00000.json").read_text())
    assert {one["name"] for one in listed} == {url.removeprefix("http://") for url in found}


def test_names_that_are_the_same_fail_the_list(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = [server.put("x", b"") + f"?id={number}" for number in range(2)]
    found = [*queries, f"s3://{unique_names(queries)[queries[0]]}"]
    whole = config({"name": "web", "kind": "text", "paths": found, "patience": 1})
    assert run(tmp_path, whole)[0] == 1
    assert "source 'web': http://127.0.0.1" in (said := capsys.readouterr().err) and "would both be called" in said


def test_a_list_here_of_urls(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [server.put(f"{folder}/x.jsonl", b'{"text": "Words of %s."}\n' % folder.encode()) for folder in "abc"]
    place = tmp_path / "list.txt"
    place.write_text("# files\n\n" + "\n".join(f"  {url} " for url in found[:2]) + "\n")
    whole = config({"name": "web", "kind": "jsonl", "paths": [f"@{place}"], "patience": 1})
    status, documents, _ = run(tmp_path / "a", whole)
    assert status == 0 and sorted(row["url"] for row in documents) == ["file:web/a/x.jsonl#0", "file:web/b/x.jsonl#0"]
    before = fingerprint("ingest.list", whole)
    place.write_text("\n".join(found[::-1]))
    assert fingerprint("ingest.list", whole) != before
    status, documents, _ = run(tmp_path / "b", whole)
    assert status == 0 and len(documents) == 3
    assert listing.main(["--config", before, "--manifest", str(tmp_path / "c/manifest.json")]) == 1
    assert f"the list {place} has changed since the run was planned" in capsys.readouterr().err


def test_a_long_list_is_no_part_of_a_command_line(tmp_path: Path) -> None:
    place = tmp_path / "list.txt"
    place.write_text("".join(f"https://a.example/crawl/segments/{number}.warc.gz\n" for number in range(90_000)))
    whole = config({"name": "web", "kind": "warc", "paths": [f"@{place}"]})
    assert sources.files_by_shard(whole) == {} and len(fingerprint("ingest.list", whole)) < 10_000
    began = process_time()
    for _ in range(2000):  # as a plan over many tasks asks
        assert file_lists.is_listed(whole["ingest"]["extract"]["sources"][0], ".")
    assert process_time() - began < 1


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("b.warc.gz", "has files here (line 4: 'b.warc.gz') and at URLs (line 2): make them two lists"),
        ("ftp://a.org/x", "line 4: 'ftp://a.org/x' begins with none of https://, http://, s3://, hf://"),
        ("https://me:hunter2@a.org/x", "line 4: a URL of a.org with a user and password in it"),
        ("s3://b/x?X-Amz-Signature=hunter2", "line 4: a URL of b with 'X-Amz-Signature' in its query"),
        ("s3://b/*.gz", "line 4: 's3://b/*.gz' is a pattern: it goes into `paths`"),
    ],
)
def test_a_line_of_a_list_that_is_refused_is_named(tmp_path: Path, second: str, words: str) -> None:
    place = tmp_path / "list.txt"
    place.write_text(f"# files\nhttps://a.org/1.gz\n\n{second}\n")
    with pytest.raises(ConfigError) as error:
        sources.files_by_shard(config({"name": "web", "kind": "warc", "paths": [f"@{place}"]}))
    said = str(error.value)
    assert said.startswith(f"ingest.extract.sources[0].paths: the list {place}") and words in said
    assert "hunter2" not in said


def test_a_line_of_a_list_at_a_url_is_named(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, words in (("here.gz", "'here.gz' is no URL (https, http, s3, hf)"), ("s3://b/x?sig=1", "'sig' in its")):
        place = server.put("list.txt", f"# files\ns3://b/1.gz\n{line}\n".encode())
        assert run(tmp_path, config({"name": "web", "kind": "warc", "paths": [f"@{place}"]}))[0] == 1
        said = capsys.readouterr().err
        assert f"source 'web': the list {place}, line 3: " in said and words in said


def test_a_list_of_urls_beside_files_here_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("https://a.org/1.gz\n")
    (tmp_path / "b.gz").write_text("")
    source = {"name": "web", "kind": "warc", "paths": [f"@{tmp_path}/list.txt", f"{tmp_path}/b.gz"]}
    with pytest.raises(ConfigError, match="files here and at URLs: make them two sources"):
        sources.files_by_shard(config(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"kind": "warc", "paths": ["https://me:hunter2@a.org/x"]}, "with a user and password in it"),
        ({"kind": "warc", "paths": ["s3://b/x?X-Amz-Signature=hunter2"]}, "'X-Amz-Signature' in its query"),
        ({"kind": "warc", "paths": ["s3://b/x"], "options": {"secret": "hunter2"}}, "options.secret looks like a credential"),
        ({"kind": "warc", "paths": ["s3://b/x"], "options": {"client_kwargs": {"aws_access_key_id": "hunter2"}}}, "client_kwargs.aws"),
        ({"kind": "warc", "paths": ["s3://b/x"], "options": {"endpoint_url": "https://me:hunter2@a.org"}}, "user and password"),
        ({"kind": "warc", "paths": ["s3://b/x", "here"]}, "make them two sources"),
        ({"kind": "warc", "paths": ["https://a.org/*.gz?part=1"]}, "a pattern at a web server has no query"),
        ({"kind": "warc", "paths": ["@https://a.org/*.txt"]}, "only an entry of `paths` that is no list is one"),
        ({"kind": "warc", "paths": ["x"], "files": 3}, "files is of kind commoncrawl"),
        ({"kind": "text", "paths": ["https://a.org/x"], "first_mb": 3}, "a text has no records"),
        ({"kind": "commoncrawl", "files": 3}, "needs `crawl`"),
        ({"kind": "commoncrawl", "crawl": CRAWL}, "one of `files` and `share`"),
        ({"kind": "commoncrawl", "crawl": CRAWL, "files": 3, "share": 0.5}, "one of `files` and `share`"),
        ({"kind": "commoncrawl", "crawl": CRAWL, "files": 3, "base": "https://me:hunter2@a.org/"}, "user and password"),
    ],
)  # fmt: skip
def test_sources_that_are_refused(source: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        sources.files_by_shard(config({"name": "web", **source}))
    assert (
        words in str(error.value)
        and "hunter2" not in str(error.value)
        and "ingest.extract.sources[0]" in str(error.value)
    )


def test_a_plan_needs_no_network_and_tracks_what_decides_the_list() -> None:
    whole = config({**WEB, "base": "https://nowhere.invalid/"})
    assert sources.files_by_shard(whole) == {} and file_lists.is_listed(whole["ingest"]["extract"]["sources"][0], ".")
    others: list[dict[str, Any]] = [{}, {"files": 9}, {"crawl": "CC-MAIN-2026-12"}, {"curated": True}, {"patience": 5}]
    marks = [fingerprint("ingest.list", config({**WEB, **more})) for more in others]
    assert marks[0] == marks[3] == marks[4] and len(set(marks)) == 3
    places: list[dict[str, Any]] = [{}, {"endpoint_url": "http://a"}, {"endpoint_url": "http://b"}, {"anon": True}]
    places += [{"client_kwargs": {"endpoint_url": "http://c"}}, {"endpoint": "https://hub"}]
    other = [fingerprint("ingest.list", config({**WEB, "options": options})) for options in places]
    assert marks[0] == other[0] == other[3] and len(set(other)) == 5, "another store has other files"
    reads = [
        fingerprint("ingest.extract", config({**WEB, **more}))
        for more in ({}, {"files": 9}, {"patience": 5}, {"first_mb": 1})
    ]
    assert reads[0] == reads[1] == reads[2] != reads[3], (
        "more files are in the list, which each shard consumes its part of"
    )


@pytest.mark.skipif(not (DATA / "crawl").is_dir(), reason=f"no crawl at {DATA}: set CRAWL2LLM_DATA")
def test_a_real_crawl_in_the_layout_of_common_crawl(server: Server, tmp_path: Path) -> None:
    """The funnel's beginning is the same as over the files on the disk."""
    names = []
    for path in sorted((DATA / "crawl").glob("*.warc.gz"))[:1]:
        names.append(f"crawl-data/{CRAWL}/segments/1/warc/{path.name}")
        server.put(names[-1], path.read_bytes(), drop=2_000_000, statuses=[503])
    server.put(f"crawl-data/{CRAWL}/warc.paths.gz", gzip.compress("\n".join(names).encode()))
    status, documents, dropped = run(tmp_path / "a", config({**WEB, "base": server.url}, shards=1))
    local = config({"name": "web", "kind": "warc", "paths": [f"{DATA}/crawl/mlcrawl-dev-00000.warc.gz"]}, shards=1)
    files = sources.files_by_shard(local)["00000"]
    argv = ["--config", fingerprint("ingest.extract", local), "--files", *files]
    assert extract.main([*argv, "--manifest", str(tmp_path / "b/00000.manifest.json")]) == 0
    assert status == 0 and Manifest.read(tmp_path / "b/00000.manifest.json").counts["dropped"] == dropped
    assert [row["id"] for row in documents] == [row["id"] for row in rows(tmp_path / "b/00000.parquet")]


def test_missing_files_fail_the_listing_where_a_shard_may_not_have_them(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl(server)
    gone = sorted(name for name in server.files if "0000" in name)[:2]
    for name in gone:
        del server.files[name]
    whole = config({**WEB, "base": server.url}, shards=1)
    given = ["--config", fingerprint("ingest.list", whole), "--access", sources.access_json(whole)]
    given += ["--manifest", str(tmp_path / "manifest.json"), "--max-missing-files"]
    assert listing.main([*given, "1"]) == 1
    said = capsys.readouterr().err
    assert "missing files: 2 of shard 00000 (2 in all), and ingest.extract.max_missing_files is 1" in said
    assert f"{server.url}{gone[0]}: the server answers 404" in said
    assert listing.main([*given, "2"]) == 0
