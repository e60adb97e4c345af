"""Reads a file at a URL as a stream, without a copy on the disk.

A transfer that breaks continues by a range request where it broke. A server that is busy (408, 425, 429, 5xx) is asked again after a
growing, random time, until nothing has come for `patience` seconds. A file is never mixed of two: its length and its mark (ETag,
or Last-Modified) are compared at each request. http and https go over the session of fsspec's file system, since its files do not
compare what a server sends with what it was asked for; s3 and hf are files of fsspec.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

import aiohttp
import fsspec
from fsspec.asyn import sync

from scripts.ingest.urls import name_of
from scripts.workflow.console import log

PIECE = 2**20  # bytes asked of a stream at a time
BLOCK = 2**23  # bytes of one request to a store of objects
FIRST, MOST = 0.5, 60.0  # seconds to wait at most after the first failure, and after any
SILENT = 60.0  # seconds without a byte after which a connection counts as broken
BUSY = {408, 425, 429, *range(500, 600)} - {501, 505}
PAGE = re.compile(rb"\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)


class TransferError(Exception):
    """A file that cannot be read to its end, or is not what it was; the message names its URL. No OSError: it is no damage of a file."""


class MissingError(TransferError):
    """A file that cannot be had at all."""


class _Broken(Exception):
    """A failure that may pass. after: seconds that the server asks to wait."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.after = after


@dataclass(frozen=True)
class Facts:
    """What a server says of a file; None where it does not. mark: ETag, or Last-Modified."""

    bytes: int | None = None
    mark: str | None = None


@dataclass(frozen=True)
class Access:
    """How files of a source are reached. options: of fsspec's file system. patience: seconds to wait for a server that is busy or gone."""

    options: dict[str, Any]
    patience: float = 600.0


def access_of(given: str, source: str) -> Access:
    """How the files of a source are reached, from `--access`."""
    held = json.loads(given or "{}").get(source, {})
    return Access(held.get("options", {}), held.get("patience", Access.patience))


class _Server(Protocol):
    facts: Facts

    def open(self, at: int, until: int | None) -> None:
        """Begin at byte `at`; until: the byte after the last one that will be read, where that is known."""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end of what was asked for."""

    def close(self) -> None:
        """Let go of the connection."""


class Web:
    """A file at http or https. Raises _Broken, MissingError and TransferError."""

    def __init__(self, url: str, options: dict[str, Any], facts: Facts, page: bool) -> None:
        """page: whether the file may be a web page."""
        self.url, self.facts, self.page = url, facts, page
        self.fs, _ = fsspec.core.url_to_fs(url, **options)
        self.response: aiohttp.ClientResponse | None = None

    def ask(self, method: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """A response, whatever its status, of which only the headers were read."""
        options = {**self.fs.kwargs}
        given = {**options.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        options.setdefault("timeout", aiohttp.ClientTimeout(total=None, connect=SILENT, sock_read=SILENT))
        options.setdefault("allow_redirects", True)

        async def go() -> aiohttp.ClientResponse:
            session = await self.fs.set_session()
            # What is stored in gzip may be said to be coded so: it is wanted as it is stored.
            return cast(
                aiohttp.ClientResponse,
                await session.request(
                    method, self.fs.encode_url(self.url), headers=given, auto_decompress=False, **options
                ),
            )

        return cast(aiohttp.ClientResponse, self._wait(go))

    def _wait(self, go: Callable[[], Any]) -> Any:
        try:
            return sync(self.fs.loop, go)
        except aiohttp.InvalidURL as error:
            raise MissingError(f"{self.url} is no URL") from error
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise _Broken(in_words(error)) from error

    def head(self) -> Facts:
        """What the server says of the file before it sends any of it; nothing where it answers no HEAD request."""
        response = self.ask("HEAD", {})
        response.close()
        if response.status in (404, 410):
            raise MissingError(f"{self.url}: the server answers {response.status}")
        if response.status in BUSY:
            raise _busy(response)
        length = response.headers.get("Content-Length", "")
        if response.status != 200:
            return Facts()
        return Facts(int(length) if length.isdecimal() else None, _mark(response))

    def open(self, at: int, until: int | None) -> None:
        """See _Server."""
        self.close()
        headers = {"Range": f"bytes={at}-{until - 1 if until else ''}"} if at or until else {}
        if headers and self.facts.mark and not self.facts.mark.startswith("W/"):
            headers["If-Range"] = self.facts.mark
        response = self.response = self.ask("GET", headers)
        if response.status not in (200, 206):
            self.close()
            raise self._refusal(response, at)
        if not self.page and response.content_type == "text/html":
            self.close()
            raise MissingError(f"{self.url}: the server sent a web page in place of the file")
        if response.status == 206:
            found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range", ""))
            if not found or int(found.group(1)) != at:
                self.close()
                raise TransferError(
                    f"{self.url}: asked for byte {at}, the server sent {response.headers.get('Content-Range')!r}"
                )
            self.compare(Facts(int(found.group(3)) if found.group(3) != "*" else None, _mark(response)))
            return
        length = response.headers.get("Content-Length", "")
        self.compare(Facts(int(length) if length.isdecimal() else None, _mark(response)))
        if at:  # the server takes no ranges: what was read is read again, where it is surely the same
            if not self.facts.mark:
                raise TransferError(f"{self.url}: broke at byte {at}, and the server cannot continue there")
            while at and (piece := self.read(min(at, PIECE))):
                at -= len(piece)

    def _refusal(self, response: aiohttp.ClientResponse, at: int) -> Exception:
        if response.status == 416:
            says = response.headers.get("Content-Range", "").removeprefix("bytes */") or "less"
            return TransferError(f"{self.url}: the server said {self.facts.bytes} bytes, and has {says}: none at {at}")
        if response.status in BUSY:
            return _busy(response)
        return MissingError(f"{self.url}: the server answers {response.status}")

    def compare(self, now: Facts) -> None:
        """Take what the server says now; TransferError where it is another file than before."""
        for name, unit in (("bytes", "bytes"), ("mark", "")):
            then, there = getattr(self.facts, name), getattr(now, name)
            if then is not None and there is not None and then != there:
                self.close()
                raise TransferError(f"{self.url} changed: it had {then} {unit}".rstrip() + f", and now {there}")
        self.facts = Facts(
            self.facts.bytes if now.bytes is None else now.bytes, self.facts.mark if now.mark is None else now.mark
        )

    def read(self, size: int) -> bytes:
        """See _Server."""
        assert self.response is not None
        content = self.response.content
        try:
            return cast(bytes, self._wait(lambda: content.read(size)))
        except _Broken:
            # aiohttp says that a connection broke before it hands out the last bytes that came, and it has no public way to
            # them. Without these, a server that breaks after a few kilobytes each time would never be read.
            left = content._read_nowait(size)
            if not left:
                raise
            return left

    def close(self) -> None:
        """See _Server."""
        if self.response is not None:
            response, self.response = self.response, None
            self.fs.loop.call_soon_threadsafe(response.close)


def _mark(response: aiohttp.ClientResponse) -> str | None:
    return response.headers.get("ETag") or response.headers.get("Last-Modified")


def _busy(response: aiohttp.ClientResponse) -> _Broken:
    after = response.headers.get("Retry-After", "")
    return _Broken(f"the server answers {response.status}", float(after) if after.isdecimal() else 0.0)


class Store:
    """A file in a store that fsspec reads, such as s3 and hf."""

    def __init__(self, url: str, options: dict[str, Any], facts: Facts) -> None:
        self.url, self.facts, self.options = url, facts, options
        self.file: Any = None
        self.at = 0

    def head(self) -> Facts:
        """What the store says of the file."""
        fs, path = self._call(lambda: fsspec.core.url_to_fs(self.url, **self.options))
        return of_info(self._call(lambda: fs.info(path, refresh=True) if hasattr(fs, "s3") else fs.info(path)))

    def open(self, at: int, until: int | None) -> None:
        """See _Server. The file is opened once: s3fs then asks for the same ETag in every request."""
        if self.file is None:
            now = self.head()
            for name in ("bytes", "mark"):
                then, there = getattr(self.facts, name), getattr(now, name)
                if then is not None and there is not None and then != there:
                    raise TransferError(f"{self.url} changed: it had {then}, and now {there}")
            self.facts = now
            fs, path = fsspec.core.url_to_fs(self.url, **self.options)
            self.file = self._call(lambda: fs.open(path, "rb", block_size=BLOCK, cache_type="none"))
        self.at = at

    def read(self, size: int) -> bytes:
        """See _Server."""

        def go() -> bytes:
            self.file.seek(self.at)
            return cast(bytes, self.file.read(size))

        data = self._call(go)
        self.at += len(data)
        return cast(bytes, data)

    def _call(self, go: Callable[[], Any]) -> Any:
        try:
            return go()
        except (FileNotFoundError, PermissionError) as error:
            raise MissingError(f"{self.url}: {in_words(error)}") from error
        except ImportError as error:
            raise TransferError(f"{self.url}: {in_words(error)}: pip install s3fs") from error
        except Exception as error:
            # Libraries of stores raise what they like; what says that another file is there now is no failure that passes.
            if "expired" in type(error).__name__.lower() or "precondition" in str(error).lower():
                raise TransferError(f"{self.url} changed while it was read") from error
            status = getattr(getattr(error, "response", None), "status_code", None)
            if isinstance(status, int) and 400 <= status < 500 and status not in BUSY:  # of the hub
                raise MissingError(f"{self.url}: the server answers {status}") from error
            raise _Broken(in_words(error)) from error

    def close(self) -> None:
        """See _Server."""
        if self.file is not None:
            file, self.file = self.file, None
            file.close()


def in_words(error: BaseException) -> str:
    """An error of a library in one line, without the queries of the URLs in it: a store redirects to URLs that are signed."""
    said = re.sub(r"(://[^\s'\"?]+)\?[^\s'\"]+", r"\1?...", str(error))
    return f"{type(error).__name__}: {' '.join(said.split())[:500]}"


def of_info(info: dict[str, Any]) -> Facts:
    """What fsspec's `info` says of a file."""
    mark = info.get("ETag") or (info.get("lfs") or {}).get("sha256") or info.get("blob_id")
    return Facts(info.get("size"), str(mark) if mark else None)


def patiently(what: str, patience: float, go: Callable[[], Any]) -> Any:
    """What `go` returns; it is tried again where it fails in a way that may pass. Raises TransferError."""
    waits = Waits(what, patience)
    while True:
        try:
            return go()
        except _Broken as error:
            waits.after(error)


class Waits:
    """The pauses between attempts: random, up to twice as long each time, until all have failed for `patience` seconds."""

    def __init__(self, url: str, patience: float) -> None:
        self.url, self.patience = url, patience
        self.since = 0.0  # when the first attempt failed after the last byte that came
        self.progress()

    def progress(self) -> None:
        """Something came."""
        self.number = 0

    def after(self, error: _Broken) -> None:
        """Wait after a failure. Raises TransferError where that was the last."""
        if not self.number:  # not from the last byte on: whoever reads may have been busy since
            self.since = time.monotonic()
        self.number += 1
        left = self.patience - (time.monotonic() - self.since)
        if left <= 0:
            raise TransferError(
                f"{self.url}: {error}; given up after {self.number} attempts in {self.patience - left:,.0f} s"
            ) from error
        pause = max(random.uniform(0, min(FIRST * 2 ** min(self.number - 1, 20), MOST)), error.after)  # noqa: S311 - decides no byte
        log.info("%s: %s; again in %.1f s", self.url, error, min(pause, left))
        time.sleep(min(pause, left))


class Transfer(io.RawIOBase):
    """The bytes of a remote file as a stream that can be read from any place.

    ahead: it is read in order, so a request has no end; otherwise each is for what is read alone.
    """

    def __init__(self, server: _Server, url: str, patience: float, ahead: bool) -> None:
        self.server, self.url, self.waits, self.ahead = server, url, Waits(url, patience), ahead
        self.at = 0
        self.there: int | None = None  # where the server's next byte is from

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from another place."""
        return True

    def tell(self) -> int:
        """The place."""
        return self.at

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place. Raises TransferError where it counts from the end and the server does not tell the length."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.at}.get(whence)
        self.at = place + (self.length() if start is None else start)
        return self.at

    def length(self) -> int:
        """The file's length in bytes."""
        if self.server.facts.bytes is None:
            self._try(lambda: self.server.open(0, None))
            self.there = 0
        if self.server.facts.bytes is None:
            raise TransferError(f"{self.url}: the server does not tell its length, which this format needs")
        return self.server.facts.bytes

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one piece goes; 0 at the end."""
        data = self.some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer only at the end; all that are left where it is negative."""
        out = bytearray()
        while (size < 0 or len(out) < size) and (data := self.some(size - len(out) if size >= 0 else BLOCK)):
            out += data
        return bytes(out)

    def some(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        return cast(bytes, self._try(lambda: self._some(size)))

    def _some(self, size: int) -> bytes:
        end = self.server.facts.bytes
        if not size or (end is not None and self.at >= end):
            return b""
        if self.there != self.at:
            self.there = None
            self.server.open(self.at, None if self.ahead else self.at + size)
            self.there, end = self.at, self.server.facts.bytes
        data = self.server.read(min(size, BLOCK))
        if not data and end is not None and self.at < end:
            raise _Broken(f"ended after {self.at:,} of {end:,} bytes")
        self.at += len(data)
        self.there = self.at
        if data:
            self.waits.progress()
        return data

    def _try(self, go: Callable[[], Any]) -> Any:
        while True:
            try:
                return go()
            except _Broken as error:
                self.there = None
                self.server.close()
                self.waits.after(error)

    def close(self) -> None:
        """Let go of the connection."""
        self.server.close()
        super().close()


class Remote:
    """A file at a URL, with what readers use of a Path. `facts`: what is known of it, and after reading what the server said."""

    def __init__(self, url: str, facts: Facts, access: Access, page: bool = False) -> None:
        """page: whether it may be a web page."""
        self.url, self.facts, self.access, self.page = url, facts, access, page
        path = PurePosixPath(name_of(url))
        self.name, self.suffix, self.suffixes = path.name, path.suffix, path.suffixes

    def __str__(self) -> str:
        return self.url

    def server(self) -> Web | Store:
        """Who has it."""
        if urlsplit(self.url).scheme in ("http", "https"):
            return Web(self.url, self.access.options, self.facts, self.page)
        return Store(self.url, self.access.options, self.facts)

    def head(self) -> Facts:
        """What the server says of it, asked patiently."""
        server = self.server()
        return cast(Facts, patiently(self.url, self.access.patience, server.head))

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """A stream of its bytes; without a buffer one that is read here and there. Raises MissingError, TransferError."""
        raw = Transfer(self.server(), self.url, self.access.patience, ahead=buffering != 0)
        if buffering == 0:
            if raw.length() and not self.page and PAGE.match(raw.read(512)):
                raise MissingError(f"{self.url}: the server sent a web page in place of the file")
            raw.seek(0)
            self.facts = raw.server.facts
            return cast(BinaryIO, raw)
        stream = io.BufferedReader(raw, PIECE)
        if not self.page and PAGE.match(stream.peek(512)[:512]):
            stream.close()
            raise MissingError(f"{self.url}: the server sent a web page in place of the file")
        self.facts = raw.server.facts
        return cast(BinaryIO, stream)


class Gone(Remote):
    """A file that ingest.fetch could not have. why: in its words."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, Facts(0), Access({}))
        self.why = why

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Raises MissingError."""
        raise MissingError(self.why)
