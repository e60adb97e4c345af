"""From an HTTP body's bytes to those of a page: transfer and content codings."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.http import FRAMES, BodyError, BodyTooLargeError, codings, dechunk, decode_body
from crawl2llm.stages.ingest.text_check import is_text
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest.warcs import TEXT, http, one, read

LIMIT = 100_000
BODY = b"<html>" + b"".join(b"<p>The %d words of a page, with some more. " % (n * n) for n in range(500))
CASE = Path(os.environ.get("CRAWL2LLM_CASES", ROOT.parent / "shared" / "cases")) / "pages" / "content-coding"


def chunked(body: bytes, sizes: list[int], extension: bytes = b"", end: bytes = b"\r\n", zeros: int = 0) -> bytes:
    out, at = b"", 0
    for size in [*sizes, len(body)]:
        part = body[at : at + size]
        at += len(part)
        if part:
            out += b"0" * zeros + b"%x%s%s%s%s" % (len(part), extension, end, part, end)
    return out + b"0" + end + b"Expires: never" + end + end


EXTENSIONS = st.sampled_from([b"", b";a=b", b" ", b'; name="a value"'])


@given(
    st.binary(max_size=500),
    st.lists(st.integers(1, 90), max_size=6),
    EXTENSIONS,
    st.sampled_from([b"\r\n", b"\n"]),
    st.integers(0, 20),
)
def test_chunks_are_joined(body: bytes, sizes: list[int], extension: bytes, end: bytes, zeros: int) -> None:
    assert dechunk(chunked(body, sizes, extension, end, zeros)) == (body, True)


@given(st.binary(min_size=1, max_size=500), st.data())
def test_chunked_body_cut_short_gives_what_is_there(body: bytes, data: st.DataObject) -> None:
    whole = chunked(body, [7, 7, 7])
    size = data.draw(st.integers(0, len(whole)))
    found, complete = dechunk(whole[:size])
    assert body.startswith(found) or found == whole[:size]
    assert not complete or found in (body, whole[:size])


@pytest.mark.parametrize("body", [b"", b"<html>not chunked", b"\r\n<html>", b"zz\r\nx", b"-1\r\nabc", b"2\r\n<html>"])
def test_body_that_is_not_chunked_after_all(body: bytes) -> None:
    assert dechunk(body) == (body, True)


def test_a_chunk_without_its_end_is_where_a_body_ends() -> None:
    assert dechunk(b"3\r\nabc\r\n2\r\ndexxxx4\r\nfghi") == (b"abcde", False)
    assert dechunk(b"3\r\nabc\r\n") == (b"abc", False), "the last chunk is missing"
    assert dechunk(b"00000000c8\r\nabc") == (b"abc", False)


def deflated(body: bytes, wbits: int = -15) -> bytes:
    engine = zlib.compressobj(wbits=wbits)
    return engine.compress(body) + engine.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
CHECKED = zstandard.ZstdCompressor(write_checksum=True).compress
SKIPPED = b"\x52\x2a\x4d\x18\x05\x00\x00\x00words"


def test_the_codings_of_all_lines_in_their_order() -> None:
    lines = [
        ("transfer-encoding", "GZip"), ("Content-Encoding", " GZIP, identity"), ("X", "br"), ("Content-Encoding", "br;q=1,, unheard-of"),
        ("Transfer-Encoding", "chunked"),
    ]  # fmt: skip
    assert codings(lines) == ["gzip", "br", "gzip", "chunked"]
    assert codings([]) == []


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("body", [b"<html>" + b"some words " * 50, BODY], ids=["short", "long"])
def test_content_codings(coding: str, body: bytes) -> None:
    assert decode_body(CODINGS[coding](body), [coding], LIMIT) == (body, True)
    assert decode_body(body, [coding], LIMIT) == (body, True), "a body stored decoded, with its header kept"
    assert decode_body(CODINGS[coding](b""), [coding], LIMIT) == (b"", True)


@pytest.mark.parametrize("coding", CODINGS)
def test_coded_twice_whatever_the_header_says(coding: str) -> None:
    twice = CODINGS[coding](CODINGS[coding](BODY))
    assert decode_body(twice, [coding, coding], LIMIT) == (BODY, True)
    if coding != "deflate":  # zlib within zlib has no signature
        assert decode_body(twice, [coding], LIMIT) == (BODY, True)
    for other in CODINGS:
        assert decode_body(CODINGS[coding](CODINGS[other](BODY)), [other, coding], LIMIT) == (BODY, True)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("label", [*CODINGS, ""])
def test_another_coding_than_the_header_says(coding: str, label: str) -> None:
    assert decode_body(CODINGS[coding](BODY), [label] if label else [], LIMIT) == (BODY, True)


@pytest.mark.parametrize("wbits", [-9, -15, *range(9, 16)])
def test_deflate_with_any_window(wbits: int) -> None:
    assert decode_body(deflated(BODY, wbits), ["deflate"], LIMIT) == (BODY, True)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("noise", [b"\r\n", b"\x00", b"<!-- a comment -->", bytes(range(256)) * 3])
def test_what_follows_a_coded_body_is_left_out(coding: str, noise: bytes) -> None:
    assert decode_body(CODINGS[coding](BODY) + noise, [coding], LIMIT) == (BODY, True)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_several_members_are_one_body(coding: str) -> None:
    pack = CODINGS[coding]
    whole = pack(BODY[:100]) + pack(b"") + pack(BODY[100:])
    assert decode_body(whole, [coding], LIMIT) == (BODY, True)
    made, complete = decode_body(whole[:-9], [coding], LIMIT)
    assert BODY.startswith(made) and not complete and len(made) >= 100
    damaged = pack(b"one ") + pack(b"two")[:4] + b"\xff" * 9
    assert decode_body(damaged, [coding], LIMIT) == (b"one ", False)


def test_frames_that_are_skipped() -> None:
    whole = SKIPPED + zstandard.compress(BODY[:50]) + SKIPPED + zstandard.compress(BODY[50:]) + SKIPPED
    assert decode_body(whole, ["zstd"], LIMIT) == (BODY, True)


def test_gzip_within_chunks() -> None:
    assert decode_body(chunked(gzip.compress(BODY), [100] * 9), ["gzip", "chunked"], LIMIT) == (BODY, True)
    made, complete = decode_body(chunked(gzip.compress(BODY), [100] * 9)[:700], ["gzip", "chunked"], LIMIT)
    assert BODY.startswith(made) and made and not complete


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_cut_anywhere_gives_its_beginning(coding: str) -> None:
    pack = CODINGS[coding]
    whole = pack(BODY)
    for size in [*range(1, 40), *range(40, len(whole), 7)]:
        try:
            made, complete = decode_body(whole[:size], [coding], LIMIT)
        except BodyError:
            made, complete = b"", False
        assert (BODY.startswith(made) and not complete) or (made == whole[:size] and size < 40)
    if coding != "zstd":  # it comes by blocks of up to 128 KB, of which this body is one
        assert len(decode_body(whole[: len(whole) // 2], [coding], LIMIT)[0]) > len(BODY) // 4


@pytest.mark.parametrize("coding", CODINGS)
def test_a_damaged_body_is_dropped_or_kept_up_to_there(coding: str) -> None:
    """Behind damage gzip, deflate and Brotli give words of the page in disorder, and do not tell where that begins."""
    body = b"".join(b"<p>%d words %d of a page. " % (n, pow(7, n, 99991)) for n in range(30_000))
    whole = CHECKED(body) if coding == "zstd" else CODINGS[coding](body)
    dropped = 0
    for at in range(len(whole) // 2, len(whole) * 3 // 4, len(whole) // 40):
        try:
            made, complete = decode_body(whole[:at] + b"\xff" * 40 + whole[at + 40 :], [coding], 10**7)
            assert not complete
            assert coding != "zstd" or (body.startswith(made) and len(made) >= len(body) // 3)
        except BodyError:
            dropped += 1
    # A checksum of zstd is of the whole frame. The others may want more bytes at the body's end, like one that is cut.
    assert dropped <= 6 if coding == "zstd" else dropped >= (0 if coding == "br" else 5)


@pytest.mark.parametrize("coding", CODINGS)
def test_bomb_is_refused_before_it_goes_off(coding: str) -> None:
    body = b"0" * 10_000_000
    packed = CODINGS[coding](body)
    tracemalloc.start()
    with pytest.raises(BodyTooLargeError, match=f"over {LIMIT} bytes"):
        decode_body(packed, [coding], LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * LIMIT


def test_codings_without_end_are_not_undone() -> None:
    body = BODY
    for _ in range(20):
        body = gzip.compress(body)
    made, _ = decode_body(body, ["gzip"] * 20, LIMIT)
    assert made.startswith(b"\x1f\x8b")
    body = zstandard.compress(b"") * (FRAMES + 1)
    with pytest.raises(BodyError, match="frames"):
        decode_body(body, ["zstd"], LIMIT)


def test_time_grows_with_the_body_alone() -> None:
    noise = random.Random(0).randbytes(3_000_000)  # noqa: S311 - test bytes
    for body, coding in (
        (gzip.compress(b"a") * 100_000, "gzip"),
        (brotli.compress(noise, quality=1), "br"),
        (zstandard.compress(b"words") * FRAMES, "zstd"),
        (b"1\r\na\r\n" * 500_000, "chunked"),
    ):
        start = time.process_time()
        decode_body(body, [coding], 10**7)
        assert time.process_time() - start < 3, coding


@settings(max_examples=200)
@given(st.binary(max_size=300), st.lists(st.sampled_from([*CODINGS, "chunked"]), max_size=4))
def test_no_body_raises_anything_else(body: bytes, names: list[str]) -> None:
    with contextlib.suppress(BodyTooLargeError, BodyError):
        assert len(decode_body(body, names, LIMIT)[0]) <= LIMIT


@settings(max_examples=200)
@given(st.sampled_from(list(CODINGS)), st.integers(0, 10**6), st.binary(max_size=30))
def test_no_damage_raises_anything_else(coding: str, at: int, noise: bytes) -> None:
    whole = CODINGS[coding](BODY)
    at %= len(whole)
    with contextlib.suppress(BodyTooLargeError, BodyError):
        decode_body(whole[:at] + noise + whole[at + len(noise) :], [coding], LIMIT)


@settings(max_examples=100)
@given(st.text(max_size=300), st.lists(st.sampled_from([*CODINGS, "chunked"]), max_size=3))
def test_text_that_is_stored_decoded_stays(text: str, names: list[str]) -> None:
    body = b"<p>" + text.encode()
    if is_text(body):
        assert decode_body(body, names, LIMIT) == (body, True)


def test_text_that_begins_like_a_stream_stays() -> None:
    """Bare deflate: 118 characters, of copies of copies, and then the rest as what follows."""
    text = (
        "sailors; still stars stay small sick seas seas still clear some small small crews still still stars stars seas sailors; "
        "small still ships sick small slowly; cause sailors; ships still."
    )
    assert decode_body(text.encode(), ["deflate"], LIMIT) == (text.encode(), True)


@pytest.mark.parametrize("coding", CODINGS)
def test_noise_under_a_label_is_no_document(tmp_path: Path, coding: str) -> None:
    chooser = random.Random(1)  # noqa: S311 - test bytes
    for size in (200, 2000, 20_000, 200_000):
        found = one(tmp_path, http(chooser.randbytes(size), Content_Encoding=coding))
        assert isinstance(found, RejectedRecord) and found.reason in {"broken_body", "not_text", "no_text"}, found


def test_two_lines_of_a_header_count(tmp_path: Path) -> None:
    page = f"<html><body><p>{TEXT}</p></body></html>".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: deflate\r\nContent-encoding: br\r\n\r\n"
    found = one(tmp_path, head + brotli.compress(zlib.compress(page)))
    assert isinstance(found, Page) and found.text == TEXT
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    found = one(tmp_path, head + chunked(gzip.compress(page), [9, 9]))
    assert isinstance(found, Page) and found.text == TEXT and "truncated" not in found.metadata
    found = one(tmp_path, head + chunked(gzip.compress(page), [9, 9])[:-30])
    assert isinstance(found, Page) and TEXT.startswith(found.text) and found.metadata["truncated"]


# What each record of the case is: the page's first words and its last, characters at least, and whether it is cut.
RECORDS = {
    "br-cut": ("PARA 0. ", "named model to.", 360_000, True),
    "br-then-newline": ("T paragraph 0. ", "the old ones were worn.", 1600, False),
    "zstd-damaged": ("PARA 0. ", "", 240_000, True),
    "zstd-two-frames": ("TWO paragraph 0. ", "the old ones were worn.", 1600, False),
    "zlib-window-9": ("W9 paragraph 0. ", "the old ones were worn.", 1600, False),
    "te-gzip-chunked": ("TE paragraph 0. ", "the old ones were worn.", 1600, False),
    "two-content-encoding-lines": ("CE2 paragraph 0. ", "the old ones were worn.", 1600, False),
    "gzip-labelled-br": ("SAYSBR paragraph 0. ", "the old ones were worn.", 1600, False),
    "chunk-size-of-10-digits": ("PAD paragraph 0. ", "the old ones were worn.", 1600, False),
    "two-transfer-encoding-lines": ("TE2 paragraph 0. ", "the old ones were worn.", 1600, False),
}


@pytest.mark.skipif(not CASE.is_dir(), reason=f"no case at {CASE}: set CRAWL2LLM_CASES to a folder that has pages/")
def test_the_records_of_the_case() -> None:
    found = {each.url.rpartition("/")[2]: each for each in read(CASE / "a.warc.gz")}
    whole = {each.url: each for each in read(CASE / "a.warc.gz", main_content=False)}
    damaged = found.pop("br-damaged")
    assert isinstance(damaged, RejectedRecord) and damaged.reason == "broken_body"
    assert set(found) == set(RECORDS)
    for name, (first, last, size, cut) in RECORDS.items():
        page = found[name]
        assert isinstance(page, Page), name
        assert page.text.startswith(first) and page.text.endswith(last), name
        every = whole[page.url]  # how much a coding gives does not depend on what is main text
        assert isinstance(every, Page) and len(every.text) >= size, name
        assert bool(page.metadata.get("truncated")) == cut, name
        assert "00c8" not in page.text and "\ufffd" not in page.text, name
