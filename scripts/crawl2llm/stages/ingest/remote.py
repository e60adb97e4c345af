"""Reads a file at a URL as a stream, without a copy on the disk.

A transfer that breaks continues by a range request where it broke. A server that is busy (408, 425, 429, 5xx) is asked again after a
growing, random time, until nothing has come for `patience` seconds. A file is never mixed of two: see transport.py.
"""

from __future__ import annotations

import io
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from crawl2llm.chain.remote_access import Access
from crawl2llm.chain.urls import name_of
from crawl2llm.core.console import log
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import BLOCK, PIECE, Facts, Server, Store, TransientError, Web

FIRST, MOST = 0.5, 60.0  # seconds to wait at most after the first failure, and after any
NOBODY = 30.0  # most seconds of patience with an address at which no server has answered yet
WHY = ": no server has answered at this address; is it right, and does this machine reach the network?"
PAGE = re.compile(rb"\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)


STOP_WAITING = threading.Event()  # set while a `worker_pool` ends: threads that wait for a server give up


@contextmanager
def worker_pool(number: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that ends at once where something is raised, Ctrl-C too: what waits for a server gives up."""
    try:
        with ThreadPoolExecutor(number) as pool:
            try:
                yield pool
            except BaseException:
                STOP_WAITING.set()
                pool.shutdown(wait=False, cancel_futures=True)  # a server that is gone is not asked 1,000 times more
                raise
    finally:
        STOP_WAITING.clear()


def call_patiently(name: str, patience: float, call: Callable[[], Any]) -> Any:
    """What `call` returns; it is tried again where it fails in a way that may pass. Raises TransferError."""
    waits = RetryPauses(name, patience)
    while True:
        try:
            return call()
        except TransientError as error:
            waits.wait_after(error)


class RetryPauses:
    """The pauses between attempts: random, up to twice as long each time, until all have failed for `patience` seconds.

    NOBODY seconds are enough where a name has no address or a connection is refused, and no answer has come from there before.
    """

    def __init__(self, url: str, patience: float) -> None:
        self.url, self.patience = url, patience
        self.since = 0.0  # when the first attempt failed after the last byte that came
        self.reset_count()

    def reset_count(self) -> None:
        """Something came."""
        self.number = 0

    def wait_after(self, error: TransientError) -> None:
        """Wait after a failure. Raises TransferError if that was the last."""
        if not self.number:  # not from the last byte on: whoever reads may have been busy since
            self.since = time.monotonic()
        self.number += 1
        patience = min(self.patience, NOBODY) if error.nobody else self.patience
        left = patience - (time.monotonic() - self.since)
        if left <= 0:
            why = WHY if error.nobody else ""
            raise TransferError(
                f"{self.url}: {error}; given up after {self.number} attempts in {patience - left:,.0f} s{why}"
            ) from error
        pause = max(random.uniform(0, min(FIRST * 2 ** min(self.number - 1, 20), MOST)), error.after)  # noqa: S311 - decides no byte
        say = log.warning if self.number == 1 else log.info  # a warning is shown at once
        key = "no server there has answered yet" if patience < self.patience else "`patience` of its source"
        more = f" (asked for {patience:,.0f} s: {key})" if self.number == 1 else ""
        say("%s: %s; again in %.1f s%s", self.url, error, min(pause, left), more)
        if STOP_WAITING.wait(min(pause, left)):
            raise TransferError(f"{self.url}: {error}; stopped") from error


class Transfer(io.RawIOBase):
    """The bytes of a remote file as a stream that can be read from any place.

    ahead: it is read in order, so a request has no end; otherwise each is for what is read alone.
    """

    def __init__(self, server: Server, url: str, patience: float, ahead: bool) -> None:
        self.server, self.url, self.waits, self.ahead = server, url, RetryPauses(url, patience), ahead
        self.at = 0
        self.server_place: int | None = None  # where the server's next byte is from
        self.broke = False  # since the last byte that came
        self.begun = False  # whether any byte came

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
        """Go to a place. Raises TransferError if it counts from the end and the server does not tell the length."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.at}.get(whence)
        self.at = place + (self.length() if start is None else start)
        return self.at

    def length(self) -> int:
        """The file's length in bytes."""
        if self.server.facts.bytes is None:
            self._call_patiently(lambda: self.server.open(0, None))
            self.server_place = 0
        if self.server.facts.bytes is None:
            raise TransferError(f"{self.url}: the server does not tell its length, which this format needs")
        return self.server.facts.bytes

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one piece goes; 0 at the end."""
        data = self.read_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer only at the end; all that are left where it is negative."""
        out = bytearray()
        while (size < 0 or len(out) < size) and (data := self.read_some(size - len(out) if size >= 0 else BLOCK)):
            out += data
        return bytes(out)

    def read_some(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        return cast(bytes, self._call_patiently(lambda: self._read_piece(size)))

    def _read_piece(self, size: int) -> bytes:
        end = self.server.facts.bytes
        if not size or (end is not None and self.at >= end):
            return b""
        if self.server_place != self.at:
            self.server_place = None
            self.server.open(self.at, None if self.ahead else self.at + size)
            # Only then: where a reader goes to another place, its file is read in parts in any case.
            if self.broke and self.ahead and self.at and not self.server.sure:
                raise TransferError(
                    f"{self.url}: broke at byte {self.at}; the server names no ETag and no Last-Modified, so it cannot be continued"
                )
            self.server_place, end = self.at, self.server.facts.bytes
        data = self.server.read(min(size, BLOCK))
        if not data and end is not None and self.at < end:
            raise TransientError(f"ended after {self.at:,} of {end:,} bytes")
        self.at += len(data)
        self.server_place = self.at
        if data:
            self.broke, self.begun = False, True
            self.waits.reset_count()
        return data

    def _call_patiently(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except MissingError as error:
                if self.begun:  # a part of it has been read: it is not one that may be missing
                    raise TransferError(f"{error}, and it had begun to send it") from error
                raise
            except TransientError as error:
                self.broke = self.broke or self.server_place is not None
                self.server_place = None
                self.server.close()
                self.waits.wait_after(error)

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

    def make_server(self) -> Web | Store:
        """Who has it."""
        if urlsplit(self.url).scheme in ("http", "https"):
            return Web(self.url, self.access, self.facts, self.page)
        return Store(self.url, self.access, self.facts)

    def read_facts(self) -> Facts:
        """What the server says of it, asked patiently."""
        server = self.make_server()
        return cast(Facts, call_patiently(self.url, self.access.patience, server.read_facts))

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """A stream of its bytes; without a buffer one that is read here and there. Raises MissingError, TransferError."""
        raw = Transfer(self.make_server(), self.url, self.access.patience, ahead=buffering != 0)
        stream: io.BufferedReader | Transfer = raw
        if buffering == 0:
            begins = raw.read(512) if raw.length() and not self.page else b""
            raw.seek(0)
        else:
            stream = io.BufferedReader(raw, PIECE)
            begins = stream.peek(512)[:512]
        if not self.page and PAGE.match(begins):
            stream.close()
            raise MissingError(f"{self.url}: the server sent a web page in place of the file")
        self.facts = raw.server.facts
        return cast(BinaryIO, stream)


class MissingFile(Remote):
    """A file that ingest.fetch could not have, or that a mirror's folder lacks. why: in words."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, Facts(0), Access({}))
        self.why = why

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Raises MissingError."""
        raise MissingError(self.why)
