"""From the raw bytes of an HTTP response to the bytes of a page: transfer and content codings."""

from __future__ import annotations

import re
import zlib

import brotli
import zstandard

PIECE = 1 << 16  # bytes of a body decompressed at a time


class TooLarge(ValueError):
    """A body that is larger than the limit after decoding."""


def dechunk(body: bytes) -> bytes:
    """Undo chunked transfer coding (RFC 9112, section 7.1); a body that is not chunked after all comes back as it is.

    A body cut short gives the chunks that are there.
    """
    out: list[bytes] = []
    at = 0
    while at < len(body):
        end = body.find(b"\n", at)  # some servers leave the carriage return out
        size = body[at:end].split(b";")[0].strip() if end >= 0 else b""
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
            return b"".join(out) if out else body
        length = int(size, 16)
        if length == 0:
            break
        out.append(body[end + 1 : end + 1 + length])
        at = end + 1 + length
        at += 2 if body[at : at + 1] == b"\r" else 1
    return b"".join(out)


def _inflate(body: bytes, wbits: int, limit: int) -> tuple[bytes, bool]:
    """(the decompressed body, whether it is whole); a body of several gzip members is one.

    It goes in by pieces: what zlib leaves over of a member is copied, and a body may have a million of them.
    """
    out, at, engine = bytearray(), 0, zlib.decompressobj(wbits)
    left = b""
    while True:
        if not left:
            left = body[at : at + PIECE]
            at += len(left)
            if not left:
                return bytes(out), engine.eof
        try:
            out += engine.decompress(left, limit + 1 - len(out))
        except zlib.error:
            if not out:
                raise
            return bytes(out), False
        if len(out) > limit:
            raise TooLarge(f"over {limit} bytes after decompression")
        if engine.eof:
            left = engine.unused_data
            if len(left) < 2:
                left += body[at : at + PIECE]
                at += PIECE
            if not left.startswith(b"\x1f\x8b"):
                return bytes(out), True
            engine = zlib.decompressobj(wbits)
        else:
            left = engine.unconsumed_tail


def decode_content(body: bytes, coding: str, limit: int) -> tuple[bytes, bool]:
    """(body, whether it is whole) without the content codings of a Content-Encoding header (gzip, deflate, br, zstd), last first.

    A body that is not in the coding it claims comes back as it is: crawlers often store bodies decoded and keep the
    header. Raises TooLarge past `limit` bytes.
    """
    whole = True
    for name in reversed([part.strip().lower() for part in coding.split(",")]):
        try:
            if name in {"gzip", "x-gzip"}:
                body, whole = _inflate(body, 31, limit)
            elif name == "deflate":
                body, whole = _inflate(body, 15 if body[:1] == b"\x78" else -15, limit)
            elif name == "br":
                body = brotli.Decompressor().process(body, output_buffer_limit=limit + 1)
            elif name == "zstd":
                body = zstandard.ZstdDecompressor().stream_reader(body).read(limit + 1)
        except (zlib.error, brotli.error, zstandard.ZstdError):
            continue
        if len(body) > limit:
            raise TooLarge(f"over {limit} bytes after decompression")
    return body, whole
