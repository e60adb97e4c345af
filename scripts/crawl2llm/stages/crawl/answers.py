"""HTTP answers, and WARC 1.1 files of them: one gzip member a record, the same bytes every time.

ISO 28500:2017, https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
"""

from __future__ import annotations

import gzip
import hashlib
import io
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import xxhash
from fastwarc.warc import WarcRecord, WarcRecordType

# A crawl that could be reproduced has no clock: every record is dated alike.
DATE = "2026-01-15T12:00:00Z"
HTTP_DATE = "Thu, 15 Jan 2026 12:00:00 GMT"
REASON = {200: "OK", 301: "Moved Permanently", 404: "Not Found"}
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Answer:
    """A server's answer. `body` is what came over the wire; `length` is the Content-Length it announced (None: its own)."""

    url: str
    body: bytes
    content_type: str
    status: int = 200
    length: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def http_bytes(self) -> bytes:
        """Status line, headers, empty line and body, as bytes."""
        headers = {"Date": HTTP_DATE, "Server": "demo", "Content-Type": self.content_type, **self.headers}
        if "Transfer-Encoding" not in headers:
            headers["Content-Length"] = str(len(self.body) if self.length is None else self.length)
        head = f"HTTP/1.1 {self.status} {REASON[self.status]}\r\n"
        head += "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        return head.encode("latin-1") + b"\r\n" + self.body


def encode_chunked(body: bytes, size: int = 1000) -> bytes:
    """`body` framed by the chunked transfer coding (RFC 9112, section 7.1), `size` bytes a chunk."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def gzip_member(body: bytes) -> bytes:
    """`body` as one gzip member without a time."""
    return gzip.compress(body, compresslevel=GZIP_LEVEL, mtime=0)


def record_id(kind: str, url: str) -> str:
    """`urn:uuid:…`, a UUID5 of the URL; a record that is no response adds its type."""
    return uuid.uuid5(uuid.NAMESPACE_URL, url if kind == "response" else f"{kind} {url}").urn


def warc_record(kind: str, url: str, content_type: str, block: bytes, payload: bytes | None = None) -> bytes:
    """One WARC record as a gzip member. kind: warcinfo, response, request or metadata. url: target, or file name."""
    warc = WarcRecord()
    urn = record_id(kind, url)
    warc.init_headers(getattr(WarcRecordType, kind), record_urn=urn.removeprefix("urn:").encode())
    warc.headers["WARC-Date"] = DATE
    warc.headers["WARC-Filename" if kind == "warcinfo" else "WARC-Target-URI"] = url
    if kind in {"request", "metadata"}:
        warc.headers["WARC-Concurrent-To"] = f"<{record_id('response', url)}>"
    warc.headers["Content-Type"] = content_type
    warc.set_bytes_content(block)
    out = io.BytesIO()
    digest = None if payload is None else hashlib.sha1(payload, usedforsecurity=False).digest()
    warc.write(out, checksum_data=True, payload_digest=digest)
    return gzip_member(out.getvalue())


class Archive:
    """The crawl's WARC files; a record's file is a hash of its URL, so that it stays where it is when others come or go."""

    def __init__(self, folder: Path, files: int) -> None:
        self.paths = [folder / f"crawl-{number:05d}.warc.gz" for number in range(files)]
        self.records = [0] * files
        self.handles: list[BinaryIO] = []

    def __enter__(self) -> Archive:
        for path in self.paths:
            self.handles.append(path.open("wb"))
            fields = {
                "software": "crawl2llm crawl.render",
                "format": "WARC File Format 1.1",
                "isPartOf": "crawl2llm-demo",
            }
            block = "".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode()
            self.handles[-1].write(warc_record("warcinfo", path.name, "application/warc-fields", block))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self.handles:
            handle.close()

    def _write_member(self, url: str, member: bytes) -> None:
        number = xxhash.xxh3_64_intdigest(url.encode()) % len(self.paths)
        self.handles[number].write(member)
        self.records[number] += 1

    def write_response(self, answer: Answer) -> None:
        """Write a response record."""
        block = answer.http_bytes()
        self._write_member(
            answer.url, warc_record("response", answer.url, "application/http; msgtype=response", block, answer.body)
        )

    def write_request(self, url: str) -> None:
        """Write the request record after `url`'s response."""
        _, _, host, path = url.split("/", 3)
        block = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: crawl2llm-demo\r\nAccept: text/html\r\n\r\n"
        self._write_member(url, warc_record("request", url, "application/http; msgtype=request", block.encode()))

    def write_metadata(self, url: str) -> None:
        """Write a metadata record about `url`'s response."""
        block = b"fetchTimeMs: 12\r\nvia: https://pages.demo.example/\r\n"
        self._write_member(url, warc_record("metadata", url, "application/warc-fields", block))
