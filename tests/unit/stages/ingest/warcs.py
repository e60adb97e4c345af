"""WARC bytes for tests, record by record, and what a reader makes of them."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.warc import Page, RejectedRecord, WarcReader

TEXT = "The quick brown fox jumps over the lazy dog near the river bank, and nobody minds."


def name(number: int) -> str:
    """The WARC record id of a number."""
    return f"<urn:uuid:00000000-0000-4000-8000-{number:012d}>"


def record(
    kind: str, number: int, block: bytes, headers: dict[str, str] | None = None, length: int | None = None
) -> bytes:
    """One WARC 1.1 record; `length` is a lie about the block's size."""
    fields = {
        "WARC-Type": kind,
        "WARC-Record-ID": name(number),
        "WARC-Date": "2024-05-01T00:00:00Z",
        "WARC-Target-URI": f"https://example.org/{number}",
        "Content-Type": "application/http; msgtype=response" if kind == "response" else "text/plain",
        **(headers or {}),
        "Content-Length": str(len(block) if length is None else length),
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in fields.items() if value)
    return f"WARC/1.1\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def http(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP response; header names are given with `_` for `-`."""
    fields = {"Content_Type": "text/html", "Content_Length": str(len(body)), **headers}
    head = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in fields.items() if value)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def html(text: str = TEXT, head: str = "") -> str:
    """A page with a paragraph."""
    return f"<!DOCTYPE html><html><head><title>A page</title>{head}</head><body><p>{text}</p></body></html>"


def page(number: int, text: str | None = None) -> bytes:
    """A response record with a page."""
    return record("response", number, http(html(text or f"{TEXT} Number {number}.").encode()))


def members(*records: bytes) -> bytes:
    """One gzip member a record, as crawlers write them."""
    return b"".join(gzip.compress(each, mtime=0) for each in records)


def settings_with(**changes: Any) -> ExtractSettings:
    """Settings of ingest.extract, unchecked: bounds may be smaller than a config allows."""
    return ExtractSettings.model_construct(**{"max_body_bytes": 1_000_000, **changes})


SETTINGS = settings_with()


def source_of(keys: dict[str, Any]) -> ExtractSource:
    """A source with these keys, unchecked: its kind is that of the reader that gets it."""
    return ExtractSource.model_construct(**keys)


def read(path: Path, **settings: object) -> list[Page | RejectedRecord]:
    """All that the reader makes of a file."""
    return list(WarcReader(source_of({"name": "web"}), settings_with(**settings))(path))


def one(folder: Path, block: bytes, kind: str = "response", **settings: object) -> Page | RejectedRecord:
    """What the reader makes of a single record."""
    (folder / "one.warc").write_bytes(record(kind, 1, block))
    (found,) = read(folder / "one.warc", **settings)
    return found


def reasons(found: list[Page | RejectedRecord]) -> Counter[str]:
    """How many pages there are, and how many rejects for each reason."""
    return Counter("page" if isinstance(each, Page) else each.reason for each in found)


def ids(found: list[Page | RejectedRecord]) -> list[str]:
    """The record ids, in order, of what is no damage."""
    given = [each.metadata["record_id"] if isinstance(each, Page) else each.record_id for each in found]
    return [each for each in given if each]
