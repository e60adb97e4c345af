"""From an HTTP body's bytes to those of a page: transfer and content codings."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.ingest.http import TooLarge, dechunk, decode_content

LIMIT = 100_000


def chunked(body: bytes, sizes: list[int], extension: bytes = b"") -> bytes:
    out, at = b"", 0
    for size in [*sizes, len(body)]:
        part = body[at : at + size]
        at += len(part)
        if part:
            out += b"%x%s\r\n%s\r\n" % (len(part), extension, part)
    return out + b"0\r\nExpires: never\r\n\r\n"


@given(st.binary(max_size=500), st.lists(st.integers(1, 90), max_size=6), st.sampled_from([b"", b";a=b", b" "]))
def test_chunks_are_joined(body: bytes, sizes: list[int], extension: bytes) -> None:
    assert dechunk(chunked(body, sizes, extension)) == body


@given(st.binary(min_size=1, max_size=500), st.data())
def test_chunked_body_cut_short_gives_what_is_there(body: bytes, data: st.DataObject) -> None:
    whole = chunked(body, [7, 7, 7])
    size = data.draw(st.integers(0, len(whole)))
    found = dechunk(whole[:size])
    assert body.startswith(found) or found == whole[:size]


@pytest.mark.parametrize(
    "body", [b"", b"<html>not chunked", b"\r\n<html>", b"zz\r\nx", b"-1\r\nabc", b"123456789\r\nx"]
)
def test_body_that_is_not_chunked_after_all(body: bytes) -> None:
    assert dechunk(body) == body


def deflated(body: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(body) + engine.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
    "": bytes,
    "unheard-of": bytes,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_content_codings(coding: str) -> None:
    body = b"<html>" + b"some words " * 50
    assert decode_content(CODINGS[coding](body), coding, LIMIT) == (body, True)
    assert decode_content(body, coding, LIMIT) == (body, True), "a body stored decoded, with its header kept"


def test_deflate_without_the_zlib_header_and_codings_on_top_of_each_other() -> None:
    body = b"<html>words"
    assert decode_content(deflated(body), "deflate", LIMIT) == (body, True)
    assert decode_content(brotli.compress(gzip.compress(body)), "gzip, br", LIMIT) == (body, True)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_bomb_is_refused_before_it_goes_off(coding: str) -> None:
    body = b"0" * 10_000_000
    packed = CODINGS[coding](body)
    tracemalloc.start()
    with pytest.raises(TooLarge, match=f"over {LIMIT} bytes"):
        decode_content(packed, coding, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * LIMIT


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_body_cut_short_gives_its_beginning(coding: str) -> None:
    body = b"".join(b"%d words " % n for n in range(2000))
    whole = CODINGS[coding](body)
    found, _ = decode_content(whole[: len(whole) // 2], coding, LIMIT)
    assert len(found) > 1000 and body.startswith(found)


@settings(max_examples=50)
@given(st.binary(max_size=200), st.sampled_from(sorted(CODINGS)))
def test_no_body_raises_anything_else(body: bytes, coding: str) -> None:
    assert len(decode_content(body, coding, LIMIT)[0]) <= LIMIT


def test_a_body_of_several_gzip_members_is_one_and_a_cut_one_is_not_whole() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decode_content(members, "gzip", LIMIT) == (b"one two", True)
    assert decode_content(members[:-9], "gzip", LIMIT)[1] is False
    assert decode_content(gzip.compress(b"one ") + b"\x1f\x8bxx", "gzip", LIMIT) == (b"one ", False)


def test_chunk_sizes_that_end_in_a_bare_line_feed() -> None:
    assert dechunk(b"3\nabc\n2\nde\n0\n\n") == b"abcde"
    assert dechunk(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") == b"abcde"
