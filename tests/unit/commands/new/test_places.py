"""`crawl2llm new --from` a URL, a store, a list or a crawl: what it finds there, what it reads of it, and what it refuses."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from crawl2llm.chain import config as configuration
from crawl2llm.chain import sources as ingest
from crawl2llm.commands.new import places, sample
from crawl2llm.commands.new.command import main
from crawl2llm.commands.new.places import SourceOptions, find_sources
from crawl2llm.commands.new.sample import read_sample
from crawl2llm.core import root
from crawl2llm.core.errors import InputError
from tests.unit.commands.new.test_new import ENGLISH
from tests.unit.stages.ingest.servers import HubHandler, Server, http_server
from tests.unit.stages.ingest.warcs import members, page, record

CRAWL = "CC-MAIN-2026-08"
ROWS = [{"text": f"{ENGLISH} Page {number}.", "url": f"https://a.example/{number}"} for number in range(8)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
ARC = (
    b"filedesc://x.arc 0.0.0.0 20090101000000 text/plain 76\n1 0 InternetArchive\n"
    b"URL IP-address Archive-date Content-type Archive-length\n\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places, "PATIENCE", 1.0)
    return tmp_path


def parquet(rows: list[dict[str, Any]], **how: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), out, **how)
    return out.getvalue().to_pybytes()


def arc() -> bytes:
    body = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>{ENGLISH}</p></body></html>".encode()
    line = b"http://a.org/ 1.2.3.4 20090101000000 text/html %d\n" % len(body)
    return ARC + line + body + b"\n"


FILES: dict[str, tuple[bytes, str]] = {
    "a.warc.gz": (members(*(page(number, f"{ENGLISH} {number}") for number in range(8))), "warc"),
    "a.wet": (record("conversion", 1, ENGLISH.encode()), "warc"),
    "a.arc": (arc(), "warc"),
    "a.jsonl": (LINES, "jsonl"),
    "a.jsonl.gz": (gzip.compress(LINES), "jsonl"),
    "a.jsonl.zst": (zstandard.compress(LINES), "jsonl"),
    "b.jsonl.bz2": (bz2.compress(LINES), "jsonl"),
    "b.JSONL.XZ": (lzma.compress(LINES), "jsonl"),
    "b.warc.xz": (lzma.compress(record("conversion", 1, ENGLISH.encode())), "warc"),
    "b.TXT.GZ": (gzip.compress(ENGLISH.encode()), "text"),
    "a.parquet": (parquet(ROWS), "parquet"),
    "a.txt": (ENGLISH.encode(), "text"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_at_a_url_is_as_the_same_file_here(server: Server, name: str) -> None:
    data, kind = FILES[name]
    Path(name).write_bytes(data)
    url = server.put(f"deep/{name}", data)
    (there,), (here,) = find_sources([url]), find_sources([name])
    assert there.kind == here.kind == kind and there.bytes == here.bytes == len(data)
    assert there.config_entry() == {**here.config_entry(), "paths": [url]} and there.is_remote and not here.is_remote
    seen = read_sample(there)
    assert seen.documents["en"] == (8 if "jsonl" in name.lower() or name in ("a.warc.gz", "a.parquet") else 1)
    assert (seen.documents, seen.text_bytes, seen.kept_bytes, seen.rejected, seen.bytes) == (
        (seen := read_sample(here)).documents, seen.text_bytes, seen.kept_bytes, seen.rejected, len(data)
    )  # fmt: skip
    assert not list(Path().glob("**/*.partial")) and {path.name for path in Path().iterdir()} == {name}


def test_only_the_beginning_of_a_few_files_is_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawl2llm.commands.new.sample.PREFIX", 20_000)
    noise = random.Random(3)  # noqa: S311
    text = [f"{ENGLISH} {noise.randbytes(300).hex()}" for _ in range(400)]
    each = members(*(page(number, text[number]) for number in range(400)))
    urls = [server.put(f"{number}.warc.gz", each) for number in range(9)]
    Path("list.txt").write_text("# a crawl\n\n" + "\n".join(urls))
    (source,) = find_sources(["@list.txt"])
    assert source.config_entry() == {"name": "web", "kind": "warc", "paths": ["@list.txt"]} and source.bytes == 9 * len(
        each
    )
    seen = read_sample(source)
    assert (
        seen.files == sample.MOST_REMOTE_FILES and seen.bytes == sample.MOST_REMOTE_FILES * 20_000 and not seen.rejected
    )
    assert 0.7 < seen.documents.total() * source.bytes / seen.bytes / (9 * 400) < 1.3
    # Rows of one large row group: the same share by rows.
    data = parquet([{"text": text[number % 400]} for number in range(4000)])
    (source,) = find_sources([server.put("x.parquet", data)])
    seen = read_sample(source)
    assert seen.documents.total() < 100 and 0.9 < seen.documents.total() * source.bytes / seen.bytes / 4000 < 1.1


def test_lengths_that_no_server_tells_and_those_that_are_not_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [server.put(f"{number}.jsonl", LINES * (number + 1)) for number in range(9)]
    Path("list.txt").write_text("\n".join(urls))
    monkeypatch.setattr(places, "LENGTHS", 3)
    (source,) = find_sources(["@list.txt"])
    assert sum(method == "HEAD" for method, _, _ in server.asked) == 3 and source.unknown_lengths == 6
    assert source.bytes == len(LINES) * 45  # numbers 0, 4 and 8 have the mean of all
    for file in server.files.values():
        file.head, file.silent = 405, True
    assert main(["mine.yaml", "--from", "@list.txt"]) == 0
    assert "The server does not tell their lengths" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "the server answers 404"),
        ({"statuses": [403]}, "the server answers 403"),
        ({"kind": "text/html"}, "the server sent a web page in place of the file"),
        ({"statuses": [503] * 99}, "the server answers 503; given up after"),
    ],
)
def test_a_url_that_cannot_be_had_is_named(
    server: Server, how: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.put("a.warc.gz", b"x", **how) if how else f"{server.url}/a.warc.gz"
    assert main(["mine.yaml", "--from", url]) == 1
    said = capsys.readouterr().err
    assert url in said.splitlines()[-1] and words in said and not Path("mine.yaml").exists()


def test_a_server_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        for given in ([f"{url}a.warc.gz"], [CRAWL, "--files", "3", "--base", url]):
            assert main(["mine.yaml", "--from", *given]) == 1
            said = capsys.readouterr().err
            assert url in said.splitlines()[-1] and "given up after" in said
            assert "again in" in said, "it says what it waits for"


def test_a_crawl_by_its_name(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("warc", "wet"):
        names = [f"crawl-data/{CRAWL}/segments/1/{kind}/{number:05d}.gz" for number in range(9)]
        for number, name in enumerate(names):
            server.put(name, members(*(page(100 * number + each, ENGLISH) for each in range(5))))
        server.put(f"crawl-data/{CRAWL}/{kind}.paths.gz", gzip.compress("\n".join(names).encode()))
    given = ["--from", CRAWL, "--files", "6", "--base", server.url]
    assert main(["mine.yaml", *given]) == 0
    said = capsys.readouterr().out
    assert f"{CRAWL}: 6 files, 0.0 MB of kind commoncrawl" in said and "Sample: 4 files" in said
    made = configuration.validate(yaml.safe_load(Path("mine.yaml").read_text()))["ingest"]["extract"]
    assert (
        made["sources"] == [{"name": "web", "kind": "commoncrawl", "crawl": CRAWL, "files": 6, "base": server.url}]
        and made["shards"] == 6
    )
    assert main(["mine.yaml", "--force", *given, "--format", "wet"]) == 0
    assert yaml.safe_load(Path("mine.yaml").read_text())["ingest"]["extract"]["sources"][0]["format"] == "wet"
    for name, file in server.files.items():
        (path := Path(f"mirror{name}")).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    (source,) = find_sources([CRAWL], SourceOptions(files=6, base="mirror"))
    assert read_sample(source).documents["en"] == 30 and not source.is_remote
    assert main(["mine.yaml", "--force", "--from", "CC-MAIN-2026-09", *given[2:]]) == 1
    assert f"{server.url}/crawl-data/CC-MAIN-2026-09/warc.paths.gz: the server answers 404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([CRAWL], "say how many of its files: --files 100"),
        (["x.warc.gz", "--files", "3", "--base", "x"], "--files, --base: of a crawl, such as --from CC-MAIN-2026-08"),
        (["CC-MAIN-2026-8"], "no file matches .* is called CC-MAIN-2026-08"),
        (["https://a.org/*.gz?part=1"], "a pattern at a web server has no query, and `.` begins one"),
        (["https://me:hunter2@a.org/x"], "with a user and password in it"),
        (["s3://b/x", "--options", '{"secret": "hunter2"}'], "options.secret looks like a credential"),
        (["@list.txt"], "the list list.txt has files here .line 2: 'a.warc.gz'. and at URLs .line 1."),
        (["a.txt", "--options", '{"anon": true}'], "--options: of remote files, and --from names none"),
        (["a.txt", "--text-key", "body"], "--text-key: of JSON Lines and Parquet, and --from names none"),
        (["@none.txt"], "the list none.txt: no such file"),
    ],
)
def test_what_is_refused_before_anything_is_asked(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("list.txt").write_text("https://a.org/1.gz\na.warc.gz\n")
    Path("a.txt").write_text(ENGLISH)
    assert main(["mine.yaml", "--from", *given]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.search(words, said) and "hunter2" not in said and ("--from" in said or "--files" in said), said


def test_parquet_without_a_column_of_text_names_those_that_are_there(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.put("x.parquet", parquet([{"id": number, "words": row["text"]} for number, row in enumerate(ROWS)]))
    assert main(["mine.yaml", "--from", url]) == 1
    said = capsys.readouterr().err
    assert f"{url}: no text under text" in said and "id (int64), words (string)" in said and "--text-key" in said
    assert main(["mine.yaml", "--from", url, "--text-key", "words"]) == 0
    assert yaml.safe_load(Path("mine.yaml").read_text())["ingest"]["extract"]["sources"] == [
        {"name": "records", "kind": "parquet", "paths": [url], "text_key": "words"}
    ]


def test_without_any_text_the_first_record_is_named(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.put("x.jsonl", b'{"text": oh}\n{"text": ""}\n')
    assert main(["mine.yaml", "--from", url]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        f"the sample of {url} held no document with text: broken_record 1, no_text 1; the first: {url}, x.jsonl#0: "
        in said
    )
    assert "broken_record Expecting value: line 1 column 10" in said


def test_a_damaged_parquet_file_is_named(server: Server) -> None:
    data = parquet(ROWS)
    for broken in (data[:-100], data[:4] + b"x" * 500):
        with pytest.raises(InputError, match=rf"{server.url}/x\.parquet: cannot be read: "):
            find_sources([server.put("x.parquet", broken)])


def test_a_pattern_in_s3(s3: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("s3fs")
    fs = fsspec.filesystem("s3", endpoint_url=s3, skip_instance_cache=True)
    fs.mkdir("sampled")
    rows = [{**row, "timestamp": "2020-01-01"} for row in ROWS]
    for name in ("a/1.parquet", "a/b/2.parquet", "a/x.txt"):
        fs.pipe(f"sampled/{name}", parquet(rows))
    options = json.dumps({"endpoint_url": s3})
    assert main(["mine.yaml", "--from", "s3://sampled/**/*.parquet", "--options", options]) == 0
    said = capsys.readouterr()
    assert "2 files" in said.out and "Its columns are those of c4" in said.out and "(preset: c4)" in said.err
    assert configuration.validate(yaml.safe_load(Path("mine.yaml").read_text()))["ingest"]["extract"]["sources"] == [
        {
            "name": "c4",
            "kind": "parquet",
            "paths": ["s3://sampled/**/*.parquet"],
            "preset": "c4",
            "options": {"endpoint_url": s3},
        }
    ]
    for given, words in (("s3://sampled/*.gz", "no file matches"), ("s3://nowhere/*.gz", "s3://nowhere/*.gz")):
        assert main(["mine.yaml", "--force", "--from", given, "--options", options]) == 1
        assert words in capsys.readouterr().err


def test_without_credentials(s3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = json.dumps({"endpoint_url": s3, "use_listings_cache": False})
    for given in ("s3://private/*.gz", "s3://private/x.gz"):
        assert main(["mine.yaml", "--from", given, "--options", options]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert given in said and "credentials" in said and '{"anon": true}' in said and "given up" not in said


def test_options_of_another_store(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.put("a.jsonl", LINES)
    assert main(["mine.yaml", "--from", url, "--options", '{"anon": true}']) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert url in said and "'anon'" in said and "are the `options` of its source those" in said


def test_a_data_set_of_the_hub(tmp_path: Path) -> None:
    """In a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported."""
    rows = [{**row, "id": str(number), "dump": "x", "file_path": "x"} for number, row in enumerate(ROWS)]
    with http_server(HubHandler) as hub:
        for name in ("a", "b"):
            hub.put(f"{HubHandler.ROOT[1:]}data/{name}.parquet", parquet(rows))
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "PYTHONPATH": str(root.ROOT),
        }
        command = [sys.executable, "-m", "crawl2llm.commands.new.command", "mine.yaml"]
        command += ["--from", "hf://datasets/o/set/data/*.parquet"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 files" in done.stdout and "16 documents with text" in done.stdout
    assert yaml.safe_load(Path("mine.yaml").read_text())["ingest"]["extract"]["sources"][0] == {
        "name": "fineweb", "kind": "parquet", "paths": ["hf://datasets/o/set/data/*.parquet"], "preset": "fineweb"
    }  # fmt: skip


def test_sources_of_several_places_have_names_of_their_own(server: Server) -> None:
    Path("a.jsonl").write_bytes(LINES)
    urls = [server.put("b.jsonl", LINES), server.put("c.jsonl", LINES), server.put("d.parquet", parquet(ROWS))]
    found = find_sources(["a.jsonl", *urls, "a.jsonl"])
    assert [(one.name, one.patterns) for one in found] == [
        ("records", ["a.jsonl"]), ("records-2", urls[:2]), ("records-3", urls[2:])
    ]  # fmt: skip


def test_links_out_of_a_pattern_s_folder_are_allowed_in_the_config() -> None:
    """As in the cache of Hugging Face, whose files are links to others: what `new` read a run may read."""
    for name in ("blobs", "snapshot", "plain"):
        Path(name).mkdir()
    Path("blobs/1").write_bytes(LINES)
    Path("plain/b.jsonl").write_bytes(LINES)
    Path("snapshot/a.jsonl").symlink_to("../blobs/1")
    Path("plain/c.jsonl").symlink_to("b.jsonl")
    (linked,) = find_sources(["plain/*.jsonl", "snapshot/*.jsonl"])
    assert linked.config_entry()["follow_links"] is True
    assert ingest.files_of_source(linked.config_entry(), ".", "sources[0]")
    for pattern in ("plain/*.jsonl", "snapshot/a.jsonl"):  # inside its folder; a file that is named
        assert "follow_links" not in find_sources([pattern])[0].config_entry()
