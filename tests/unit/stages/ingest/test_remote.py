"""Files at URLs, read from servers that break, throttle, refuse and lie: the same bytes, or an error that names the URL."""

from __future__ import annotations

import gzip
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.chain import sources
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest import compressed, remote, transport
from crawl2llm.stages.ingest.files import FileHead
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.remote import Access, Remote
from crawl2llm.stages.ingest.text import JsonLinesReader
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import Facts, error_text
from crawl2llm.stages.ingest.warc import Page, WarcReader
from tests.unit.stages.ingest.servers import HubHandler, Server, http_server
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, members, page, reasons, source_of

DATA = random.Random(1).randbytes(1_500_000)  # noqa: S311
ACCESS = Access({}, patience=3.0)


def opened(url: str, facts: Facts = Facts(), **more: Any) -> Remote:  # noqa: B008
    return Remote(url, facts, Access(more.pop("options", {}), more.pop("patience", 3.0)), **more)


def whole(url: str, **more: Any) -> bytes:
    with opened(url, **more).open() as stream:
        return stream.read()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"drop": 400_000},
        {"drop": 70_000},
        {"drop": 3_000},
        {"drop": 400_000, "etag": False},
        {"drop": 400_000, "statuses": [503, 429, 500, 408]},
        {"statuses": [429], "retry_after": "0"},
        {"pause": 0.01},
        {"silent": True},
        {"ranges": False},
        {"head": 405},
        {"coding": "gzip"},
        {"etag": False, "dated": False, "statuses": [503]},
    ],
    ids=str,
)
def test_the_same_bytes_from_any_server(server: Server, how: dict[str, Any]) -> None:
    url = server.put("a/x.bin", DATA, **how)
    assert whole(url) == DATA
    ranges = [int(asked[6:-1]) for _, _, asked in server.asked if asked]
    if how.get("drop"):
        # Each request begins where the one before broke.
        assert set(ranges) == set(range(how["drop"], len(DATA), how["drop"]))
        assert len(ranges) <= -(-len(DATA) // how["drop"]) + 4


def test_small_pieces_of_what_came_before_a_break(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawl2llm.stages.ingest.remote.PIECE", 1000)
    assert whole(server.put("x", DATA, drop=400_000)) == DATA


def test_a_server_without_ranges_is_read_again_where_the_file_is_surely_the_same(server: Server) -> None:
    url = server.put("x", DATA, ranges=False, drop=400_000)
    server.files["/x"].drop = 0
    assert whole(url) == DATA
    url = server.put("y", DATA, ranges=False, drop=900_000, etag=False, dated=False)
    with pytest.raises(TransferError, match=r"/y: broke at byte \d+, and the server cannot continue there"):
        whole(url)


def test_requests_that_make_no_progress_end(server: Server) -> None:
    url = server.put("x", DATA, statuses=[503] * 1000)
    start = time.monotonic()
    with pytest.raises(TransferError, match=rf"{url}: the server answers 503; given up after \d+ attempts in"):
        whole(url, patience=0.3)
    assert time.monotonic() - start < 3


def test_the_time_in_which_nobody_reads_does_not_count(server: Server) -> None:
    url = server.put("x", DATA, drop=400_000)
    with opened(url, patience=0.2).open("rb", 0) as stream:
        assert stream.read(1000) == DATA[:1000]
        time.sleep(0.5)
        server.files["/x"].statuses = [503]
        assert stream.read() == DATA[1000:]


def test_the_server_says_how_long_to_wait(server: Server) -> None:
    url = server.put("x", b"data", statuses=[429], retry_after="1")
    start = time.monotonic()
    assert whole(url) == b"data" and time.monotonic() - start >= 1


@pytest.mark.parametrize("status", [404, 403, 410, 401])
def test_a_file_that_cannot_be_had_is_not_asked_for_again(server: Server, status: int) -> None:
    url = server.put("x", DATA, statuses=[status] * 9)
    with pytest.raises(MissingError, match=rf"{url}: the server answers {status}"):
        whole(url)
    assert len(server.asked) == 1


def test_nobody_answers(server: Server) -> None:
    with pytest.raises(TransferError, match=r"127\.0\.0\.1:9/x: .*given up"):
        whole("http://127.0.0.1:9/x", patience=0.2)


def test_lengths_that_are_lies(server: Server) -> None:
    url = server.put("long", DATA, says=len(DATA) + 500)
    with pytest.raises(TransferError, match=r"the server said 1500500 bytes, and has 1500000: none at 1500000"):
        whole(url)
    url = server.put("listed", DATA)
    with pytest.raises(TransferError, match=r"listed changed: it had 7 bytes, and now 1500000"):
        whole(url, facts=Facts(7))


def test_a_range_from_another_place_is_refused(server: Server) -> None:
    url = server.put("x", DATA, drop=400_000, shift=5)
    with pytest.raises(TransferError, match=r"asked for byte 400000, the server sent 'bytes 400005-"):
        whole(url)


@pytest.mark.parametrize("etag", [True, False])
def test_a_file_that_changes_between_two_ranges_is_no_mix(server: Server, etag: bool) -> None:
    url = server.put("x", DATA, drop=400_000, change=DATA[::-1] + b"!", etag=etag)
    with pytest.raises(TransferError, match=r"/x changed: it had"):
        whole(url)
    url = server.put("y", DATA)
    with pytest.raises(TransferError, match=r'/y changed: it had "other", and now "'):
        whole(url, facts=Facts(len(DATA), '"other"'))


@pytest.mark.parametrize("change", [None, DATA[::-1]])
def test_a_transfer_without_a_mark_is_not_continued(server: Server, change: bytes | None) -> None:
    url = server.put("x", DATA, drop=400_000, change=change, etag=False, dated=False)
    words = r"/x: broke at byte 400000; the server names no ETag and no Last-Modified, so it cannot be continued"
    with pytest.raises(TransferError, match=words):
        whole(url)
    file = server.files["/x"]
    file.drop, file.data, file.statuses = 0, DATA, [503, 503]
    assert whole(url) == DATA, "what broke before the first byte begins again"


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_web_page_in_place_of_the_file(server: Server, kind: str, buffering: int) -> None:
    url = server.put("x.parquet", b"\n<!DOCTYPE html><title>Sign in</title>" + b" " * 2000, kind=kind)
    with pytest.raises(MissingError, match="web page in place of the file"):
        opened(url).open("rb", buffering)
    assert whole(url, page=True).startswith(b"\n<!DOCTYPE")


@pytest.mark.parametrize("marked", [True, False])
def test_places_in_any_order(server: Server, marked: bool) -> None:
    url = server.put("x", DATA, drop=300_000, etag=marked, dated=marked)
    with opened(url).open("rb", 0) as stream:
        for place in (1_400_000, 0, 700_000):
            stream.seek(place)
            assert stream.read(500_000) == DATA[place : place + 500_000]
        assert stream.seek(-10, 2) == len(DATA) - 10 and stream.read() == DATA[-10:]


def rows(number: int) -> bytes:
    return b"".join(b'{"text": "%s %d."}\n' % (TEXT.encode(), row) for row in range(number))


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("drop", [0, 30_000])
@pytest.mark.parametrize(("name", "pack"), [("x.jsonl", bytes), ("x.jsonl.gz", gzip.compress), ("x.jsonl.zst", zstd)])
def test_json_lines(server: Server, tmp_path: Path, name: str, pack: Any, drop: int) -> None:
    data = pack(rows(5000) + random.Random(2).randbytes(100_000).hex().encode() + b"\n")  # noqa: S311
    (tmp_path / name).write_bytes(data)
    url = server.put(f"a/{name}?download=true".partition("?")[0], data, drop=drop)
    read = JsonLinesReader(source_of({"name": "web"}), SETTINGS)
    found = list(read(opened(url), name))
    assert found == list(read(tmp_path / name, name)) and reasons(found) == {"page": 5000, "broken_record": 1}


@pytest.mark.parametrize("drop", [0, 100_000])
def test_warc_and_parquet(server: Server, tmp_path: Path, drop: int) -> None:
    noise = random.Random(3)  # noqa: S311
    texts = [f"{TEXT} {noise.randbytes(400).hex()}" for _ in range(300)]
    (tmp_path / "x.warc.gz").write_bytes(members(*(page(number, text) for number, text in enumerate(texts))))
    pq.write_table(
        pa.table({"text": texts, "url": list(map(str, range(300)))}), tmp_path / "x.parquet", row_group_size=50
    )
    for name, kind in (("x.warc.gz", WarcReader), ("x.parquet", ParquetReader)):
        url = server.put(name, (tmp_path / name).read_bytes(), drop=drop)
        read = kind(source_of({"name": "web"}), SETTINGS)
        found = list(read(opened(url), name))
        assert found == list(read(tmp_path / name, name)) and reasons(found) == {"page": 300}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("name", ["x.warc.gz", "x.warc", "x.jsonl.gz", "x.jsonl", "x.jsonl.zst", "x.parquet"])
@pytest.mark.parametrize("limit", [5_000, 77_777, 100_000, 10**9])
def test_the_beginning_of_a_file_is_cut_at_a_record(
    server: Server, tmp_path: Path, name: str, limit: int, remote: bool
) -> None:
    noise = random.Random(3)  # noqa: S311
    texts = [f"{TEXT} {noise.randbytes(400).hex()}" for _ in range(300)]
    if ".warc" in name:
        each = [page(number, text) for number, text in enumerate(texts)]
        data, read = (
            members(*each) if name.endswith(".gz") else b"".join(each),
            WarcReader(source_of({"name": "web"}), SETTINGS),
        )
    elif ".jsonl" in name:
        lines = b"".join(b'{"text": "%s"}\n' % text.encode() for text in texts)
        data = {"gz": gzip.compress, "zst": zstd, "jsonl": bytes}[name.rpartition(".")[2]](lines)
        read = JsonLinesReader(source_of({"name": "web"}), SETTINGS)
    else:
        pq.write_table(pa.table({"text": texts}), tmp_path / name, row_group_size=20)
        data, read = (tmp_path / name).read_bytes(), ParquetReader(source_of({"name": "web"}), SETTINGS)
    (tmp_path / name).write_bytes(data)
    all_of_it = list(read(tmp_path / name, name))
    found = list(read(FileHead(opened(server.put(name, data)) if remote else tmp_path / name, limit), name))
    assert found == all_of_it[: len(found)] and all(isinstance(each, Page) for each in found), "no damage is named"
    if limit > len(data):
        assert len(found) == 300
    else:
        assert abs(len(found) - 300 * limit / len(data)) < {"x.jsonl.zst": 100}.get(name, 35)  # zstd: blocks of 128 KB


@pytest.mark.parametrize("packed", [True, False])
def test_damage_before_the_cut_is_counted(tmp_path: Path, packed: bool) -> None:
    """What the cut explains is no damage; what lies before it is."""
    noise = random.Random(3).randbytes(60_000)  # noqa: S311
    each = [page(number) for number in range(5)]
    good = members(*each) if packed else b"".join(each)
    (tmp_path / "x.warc").write_bytes(good + noise + good)
    (tmp_path / "no.warc").write_bytes((noise if packed else b"<html>Service unavailable.</html>\n") * 2000)
    read = WarcReader(source_of({"name": "web"}), SETTINGS)
    found = list(read(FileHead(tmp_path / "x.warc", len(good) + 50_000), "x.warc"))
    assert reasons(found) == {"page": 5, "broken_record": 1}
    assert reasons(read(FileHead(tmp_path / "no.warc", 30_000), "no.warc")) == {"not_warc": 1}
    for limit in range(len(good) - 3, len(good) + 1):  # within the last record, and at its end
        found = list(read(FileHead(tmp_path / "x.warc", limit), "x.warc"))
        assert set(reasons(found)) == {"page"}
    for limit in range(20, 400, 7):  # within the first records
        assert set(reasons(read(FileHead(tmp_path / "x.warc", limit), "x.warc"))) <= {"page"}


def test_a_signature_in_an_error_is_not_repeated() -> None:
    error = OSError("403 for url 'https://cdn.a.org/x/y?X-Amz-Signature=hunter2&b=c' and\nhttps://a.org/?token=hunter2")
    assert error_text(error) == "OSError: 403 for url 'https://cdn.a.org/x/y?...' and https://a.org/?..."


def put(endpoint: str, files: dict[str, bytes]) -> Any:
    fs = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True)
    if not fs.exists("crawls"):
        fs.mkdir("crawls")
    for name, data in files.items():
        fs.pipe(f"crawls/{name}", data)
    return fs


def test_s3(s3: str, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    pq.write_table(pa.table({"text": [f"{TEXT} {number}" for number in range(300)]}), tmp_path / "x", row_group_size=50)
    put(s3, {"a/x.bin": DATA, "a/x.parquet": (tmp_path / "x").read_bytes()})
    options = {"endpoint_url": s3}
    assert whole("s3://crawls/a/x.bin", options=options) == DATA
    found = list(
        ParquetReader(source_of({"name": "web"}), SETTINGS)(opened("s3://crawls/a/x.parquet", options=options), "x")
    )
    assert reasons(found) == {"page": 300}
    facts = opened("s3://crawls/a/x.bin", options=options).read_facts()
    assert facts.bytes == len(DATA) and facts.mark


def test_an_s3_key_that_vanishes_or_changes(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setattr("crawl2llm.stages.ingest.remote.BLOCK", 200_000)
    fs = put(s3, {"a/gone": DATA, "a/other": DATA})
    options = {"endpoint_url": s3}
    with pytest.raises(MissingError, match="s3://crawls/a/never: "):
        whole("s3://crawls/a/never", options=options)
    with opened("s3://crawls/a/gone", options=options).open("rb", 0) as stream:
        assert stream.read(1000) == DATA[:1000]
        fs.rm("crawls/a/gone")
        with pytest.raises(TransferError, match=r"s3://crawls/a/gone: .*, and it had begun to send it") as error:
            stream.read(500_000)
        assert not isinstance(error.value, MissingError)
    with opened("s3://crawls/a/other", options=options).open("rb", 0) as stream:
        assert stream.read(1000) == DATA[:1000]
        fs.pipe("crawls/a/other", DATA[::-1])
        with pytest.raises(TransferError, match="s3://crawls/a/other changed"):
            stream.read(500_000)


HUB = """
import json, sys
from pathlib import Path
from crawl2llm.stages.ingest.list import files_at_paths
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.remote import Access, Remote
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from tests.unit.stages.ingest.servers import HubHandler, http_server
access = Access({}, 2.0)
found = files_at_paths(["hf://datasets/o/set/data/*.parquet"], access)
pages = []
for url, name, facts in found:
    settings = ExtractSettings(max_body_bytes=9999)
    pages += ParquetReader(ExtractSource(name="set", kind="parquet"), settings)(Remote(url, facts, access), name)
try:
    Remote("hf://datasets/o/set/data/never.parquet", found[0][2], access).open()
except TransferError as error:
    print(type(error).__name__)
print(json.dumps([[name, facts.bytes, bool(facts.mark)] for _, name, facts in found]), len(pages), pages[0].text)
"""


def test_the_hugging_face_hub(tmp_path: Path) -> None:
    """In a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported."""
    for number in range(2):
        pq.write_table(pa.table({"text": [f"{TEXT} {number}"] * 50}), tmp_path / f"{number}.parquet", row_group_size=20)
    with http_server(HubHandler) as server:
        for path in tmp_path.glob("*.parquet"):
            server.put(f"{HubHandler.ROOT[1:]}data/{path.name}", path.read_bytes())
        environment = {
            **os.environ,
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(tmp_path),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",  # lm-evaluation-harness sets it in a process that ran other tests before
        }
        done = subprocess.run(
            [sys.executable, "-c", HUB], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
        )
    assert done.returncode == 0, done.stderr
    size = (tmp_path / "0.parquet").stat().st_size
    expected = f'MissingError\n[["0.parquet", {size}, true], ["1.parquet", {size}, true]] 100 {TEXT} 0\n'
    assert done.stdout == expected


def test_an_interrupt_ends_what_waits_for_a_server(tmp_path: Path) -> None:
    """Ctrl-C while all threads wait for a server that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    whole = validate(
        {
            "ingest": {
                "extract": {"sources": [{"name": "web", "kind": "warc", "paths": [f"http://127.0.0.1:{port}/x.warc"]}]}
            }
        }
    )
    mark = fingerprint("ingest.list", whole)
    argv = [
        sys.executable,
        "-m",
        "crawl2llm.stages.ingest.list",
        "--config",
        mark,
        "--access",
        sources.access_json(whole),
    ]
    process = subprocess.Popen(
        [*argv, "--manifest", str(tmp_path / "manifest.json")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr
    first = next(line for line in process.stderr if "again in" in line)
    assert "warning" in first and "asked for 30 s: no server there has answered yet" in first
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    process.stderr.close()


@pytest.mark.parametrize("name", ["x.jsonl.zst", "x.jsonl.lz4"])
def test_a_large_frame_is_transferred_once(server: Server, name: str) -> None:
    raw = random.Random(2).randbytes(3_000_000)  # noqa: S311
    url = server.put(name, zstd(raw) if name.endswith("zst") else pa.compress(raw, codec="lz4", asbytes=True))
    assert b"".join(piece for piece in compressed.decompressed_pieces(opened(url)) if isinstance(piece, bytes)) == raw
    assert [asked for _, _, asked in server.asked] == [""], "one request, for all of it"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "http://no-such-host.invalid/x", "s3://bucket/x"])
def test_an_address_where_nobody_answers_is_given_up_soon(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    monkeypatch.setattr(transport, "ANSWERING_SERVERS", set[str]())
    monkeypatch.setattr(remote, "NOBODY", 0.2)
    monkeypatch.setattr(remote, "FIRST", 0.05)
    how = {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": {"retries": {"max_attempts": 1}}}
    with pytest.raises(TransferError, match=r"given up after .*no server has answered at this address"):
        whole(url, patience=20.0, options=how if url.startswith("s3") else {})


def test_a_server_that_has_answered_gets_all_patience(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "NOBODY", 0.1)
    monkeypatch.setattr(transport, "ANSWERING_SERVERS", {"127.0.0.1:9"})
    start = time.monotonic()
    with pytest.raises(TransferError, match=r"given up after \d+ attempts in 1 s$"):
        whole("http://127.0.0.1:9/x", patience=0.6)
    assert time.monotonic() - start >= 0.6


def test_a_server_that_refuses_to_answer_head(server: Server) -> None:
    assert opened(server.put("x", b"data", head=404)).read_facts().bytes == 4
    with pytest.raises(MissingError, match="the server answers 404"):
        opened(f"{server.url}/gone").read_facts()
