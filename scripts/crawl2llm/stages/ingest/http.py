"""From the raw bytes of an HTTP response to the bytes of a page: transfer and content codings.

Headers are wrong often: bodies are stored decoded though the header names a coding, are coded twice, or otherwise than it says. So what
is undone follows the bytes where these say more than the header.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable
from enum import Enum
from typing import IO, cast

import brotli
import zstandard

from crawl2llm.stages.ingest.compressed import SKIPPABLE, WINDOW, ZSTD, Part
from crawl2llm.stages.ingest.text_check import is_text, kind_of

PIECE = 1 << 16  # bytes of a body decompressed at a time
SMALL = 64  # the same of Brotli, whose library gives nothing of a piece in which the stream ends
DECODED_BYTES = 1 << 10  # decompressed bytes of zstd at a time: what was made of a damaged piece is lost
MOST = 5  # codings that are undone of one body, as many as curl undoes (CVE-2023-23916)
FRAMES = 10_000  # most frames of zstd in a body; one takes some 20 µs, however small it is
GZIP = b"\x1f\x8b"
SIZE = re.compile(rb"[ \t]*0*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\n]{0,4096})?\r?\n")


class BodyTooLargeError(ValueError):
    """A body that is larger than the limit after decoding."""


class BodyError(ValueError):
    """A body whose content coding is damaged, so that nothing of it can be trusted."""


class End(Enum):
    """How a coded body ended."""

    WHOLE = "whole"
    NOISE = "whole, and other bytes follow"
    CUT = "cut"
    DAMAGED = "damaged"


Decoded = tuple[bytes, End]


def codings(headers: Iterable[tuple[str, str]]) -> list[str]:
    """The codings of a body as they were applied: those of all Content-Encoding lines, then those of all Transfer-Encoding lines."""
    pairs = [(name.lower(), value) for name, value in headers]
    values = [value for wanted in ("content-encoding", "transfer-encoding") for name, value in pairs if name == wanted]
    names = (part.partition(";")[0].strip().lower() for part in ",".join(values).split(","))
    return [name for name in names if name in (*DECODERS, "chunked")]


def dechunk(body: bytes) -> tuple[bytes, bool]:
    """(body, whether it is whole) without chunked transfer coding (RFC 9112, section 7.1); a body that is not chunked comes back as it is.

    Line ends may be bare line feeds. A body that is cut or damaged gives the chunks that are there.
    """
    out: list[bytes] = []
    at = 0
    while size := SIZE.match(body, at):
        length, at = int(size.group(1), 16), size.end()
        if not length:
            return b"".join(out), True
        chunk = body[at : at + length]
        at += length
        if not out and at < len(body) and body[at : at + 1] not in (b"\r", b"\n"):
            return body, True  # its first line is a number by chance
        out.append(chunk)
        at += 2 if body[at : at + 1] == b"\r" else 1
    return (b"".join(out), False) if out else (body, True)


def decode_body(body: bytes, names: list[str], limit: int) -> tuple[bytes, bool]:
    """(body, whether it is whole) without its codings. names: those that its headers name, see `codings`.

    A body that is not in a coding that is named comes back as it is: crawlers often store bodies decoded and keep the header. gzip
    and zstd are undone wherever their signature is. Brotli and zlib, named or not, are tried on what is no text then, and believed if
    their stream ends where the body does. Raises BodyTooLargeError past `limit` bytes, and BodyError if a coding is damaged.
    """
    whole, undone = True, 0
    for name in reversed(names[-2 * MOST :]):
        if name == "chunked":
            body, ended = dechunk(body)
        elif undone < MOST:
            body, ended = _decode_coding(body, _signature_coding(body) or name, limit)
            undone += 1
        whole = whole and ended
    while (name := _signature_coding(body)) and undone < MOST:
        body, ended = _decode_coding(body, name, limit)
        whole, undone = whole and ended, undone + 1
    if not is_text(body) and not kind_of(body):
        body = _decode_unnamed(body, limit) or body
    return body, whole


def _signature_coding(body: bytes) -> str:
    """The coding that a body's first bytes name; "" if they name none."""
    return {"gzip": "gzip", "zstd": "zstd"}.get(kind_of(body) or "", "")


def _decode_unnamed(body: bytes, limit: int) -> bytes | None:
    """A body without Brotli or deflate, which have no signature; None unless their stream ends where the body does, and is text."""
    for name in ("br", "deflate"):
        decoded, end = DECODERS[name](body, limit)
        if decoded and end is End.WHOLE and is_text(decoded):
            return decoded
    return None


def _decode_coding(body: bytes, name: str, limit: int) -> tuple[bytes, bool]:
    """(body, whether it is whole) without one coding. Raises BodyTooLargeError, BodyError."""
    decoded, end = DECODERS[name](body, limit)
    signed = name.removeprefix("x-") == _signature_coding(body)
    if end is End.WHOLE:
        return decoded, True
    # Some text can be read as a short stream of Brotli or deflate with something behind it.
    if not signed and (is_text(body) or kind_of(body)):
        return body, True
    if end is End.NOISE and (signed or 2 * len(decoded) >= len(body)):
        return decoded, True
    if decoded and end is End.CUT and (signed or is_text(decoded) or kind_of(decoded)):
        return decoded, False
    if (unnamed := _decode_unnamed(body, limit)) is not None:
        return unnamed, True
    raise BodyError(f"the body is not {name}, or is damaged")


def _body_end(left: bytes, signature: bytes) -> End:
    """How a body ends of which this is left behind a member. signature: with which another member would begin."""
    if not left:
        return End.WHOLE
    return End.CUT if signature.startswith(left) else End.NOISE


def _gunzip(body: bytes, limit: int) -> Decoded:
    return _inflate(body, 31, limit)


def _undeflate(body: bytes, limit: int) -> Decoded:
    """zlib with any window, or bare deflate, which some servers send under the same name (RFC 9110, section 8.4.1.2)."""
    decoded, end = _inflate(body, 15, limit)
    return _inflate(body, -15, limit) if end is End.DAMAGED and not decoded else (decoded, end)


def _inflate(body: bytes, wbits: int, limit: int) -> Decoded:
    """A body of gzip, in one member or several, zlib or deflate by `wbits`; of damaged gzip the members before, whose checksums are right.

    It goes in by pieces: what zlib leaves over of a member is copied, and a body may have a million of them.
    """
    out, at, engine, members = bytearray(), 0, zlib.decompressobj(wbits), 0
    left = b""
    while True:
        if not left:
            left = body[at : at + PIECE]
            at += len(left)
            if not left:
                return bytes(out), End.WHOLE if engine.eof else End.CUT
        try:
            out += engine.decompress(left, limit + 1 - len(out))
        except zlib.error:
            return (bytes(out[:members]), End.CUT) if members else (bytes(out), End.DAMAGED)
        if len(out) > limit:
            raise BodyTooLargeError(f"over {limit} bytes after decompression")
        if engine.eof:
            left = engine.unused_data
            if len(left) < 2:
                left += body[at : at + PIECE]
                at += PIECE
            if wbits != 31 or not left.startswith(GZIP):
                return bytes(out), _body_end(left, GZIP if wbits == 31 else b"")
            engine, members = zlib.decompressobj(wbits), len(out)
        else:
            left = engine.unconsumed_tail


def _unbrotli(body: bytes, limit: int, last: int = -1) -> Decoded:
    """A body of Brotli. last: where the piece begins in which the stream ends or is damaged, which then goes in byte by byte."""
    engine, out, at = brotli.Decompressor(), bytearray(), 0
    while at < len(body):
        size = 1 if 0 <= last <= at else SMALL
        piece = body[at : at + size]
        try:
            # Without a new piece comes what is left of the piece before.
            while decoded := engine.process(piece, output_buffer_limit=limit + 1 - len(out)):
                out += decoded
                piece = b""
                if len(out) > limit:
                    raise BodyTooLargeError(f"over {limit} bytes after decompression")
        except brotli.error:
            return (bytes(out), End.DAMAGED) if last >= 0 else _unbrotli(body, limit, at)
        at += size
        if engine.is_finished():
            return bytes(out), End.WHOLE if at >= len(body) else End.NOISE
    return bytes(out), End.CUT


def _unzstd(body: bytes, limit: int) -> Decoded:
    """A body of zstd, in one frame or several; of a damaged one the blocks before the damage."""
    stream, out, at, frames = io.BytesIO(body), bytearray(), 0, 0
    while at < len(body):
        part = Part(stream, at, len(body))
        if part.magic != ZSTD and part.magic not in SKIPPABLE:
            return bytes(out), _body_end(body[at:], ZSTD.to_bytes(4, "little")) if at else End.DAMAGED
        if (frames := frames + 1) > FRAMES:
            raise BodyError(f"over {FRAMES:,} frames of zstd")
        start = len(out)
        try:
            if part.magic == ZSTD:
                reader = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(
                    cast(IO[bytes], part), read_size=PIECE
                )
                while decoded := reader.read(DECODED_BYTES):
                    out += decoded
                    if len(out) > limit:
                        raise BodyTooLargeError(f"over {limit} bytes after decompression")
        except zstandard.ZstdError as error:
            # A checksum is of the frame, and does not say where it is damaged.
            decoded = bytes(out[:start] if "checksum" in str(error) else out)
            return decoded, End.CUT if decoded else End.DAMAGED
        at = part.find_end()
        if part.wrong:
            return bytes(out), End.CUT
    return bytes(out), End.WHOLE


DECODERS: dict[str, Callable[[bytes, int], Decoded]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
