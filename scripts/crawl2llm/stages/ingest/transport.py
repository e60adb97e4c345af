"""Asks servers for the bytes of a file: http and https, and the stores that fsspec reads, such as s3 and hf.

http and https go over the session of fsspec's file system, since its files do not compare what a server sends with what it was asked
for. What a server says of a file, its length and its mark (ETag, or Last-Modified), is compared at each request.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urljoin, urlsplit

import aiohttp
import fsspec
import re2
import yarl
from fsspec.asyn import sync

from crawl2llm.chain.remote_access import Access, drop_secrets
from crawl2llm.core import secret_masking
from crawl2llm.core.errors import InputError
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError

PIECE = 2**20  # bytes asked of a stream at a time
BLOCK = 2**23  # bytes of one request to a store of objects
SILENT_SECONDS = 60.0  # seconds without a byte after which a connection counts as broken
KEYS = 'credentials come from the environment; a public bucket needs no credentials with the option {"anon": true}'
WRONG = "are the `options` of its source those that fsspec's file system of this place takes?"
WHERE = "its source"  # whose secret is not there, in errors
REDIRECTS = 10  # most of one request
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
BUSY_STATUSES = {408, 425, 429, *range(500, 600)} - {501, 505}


class TransientError(Exception):
    """A failure that may pass. after: seconds that the server asks to wait. nobody: whether there is no server at its address."""

    def __init__(self, message: str, after: float = 0.0, nobody: bool = False) -> None:
        super().__init__(message)
        self.after, self.nobody = after, nobody


@dataclass(frozen=True)
class Facts:
    """What a server says of a file; None if it does not. mark: ETag, or Last-Modified."""

    bytes: int | None = None
    mark: str | None = None

    def merged_with(self, now: Facts, url: str) -> Facts:
        """What is known with what is said now; TransferError where that is another file."""
        for name, unit in (("bytes", " bytes"), ("mark", "")):
            then, current = getattr(self, name), getattr(now, name)
            if then is not None and current is not None and then != current:
                raise TransferError(f"{url} changed: it had {then}{unit}, and now {current}")
        return Facts(self.bytes if now.bytes is None else now.bytes, self.mark if now.mark is None else now.mark)


ANSWERING_SERVERS: set[str] = set()  # the servers that this process had an answer from


def server_of(url: str) -> str:
    """Who is asked for a URL: a server by its name and port; of a store that is reached by `options`, the store."""
    parts = urlsplit(url)
    return parts.netloc if parts.scheme in ("http", "https") else parts.scheme


def is_nobody(error: BaseException, url: str) -> bool:
    """Whether an error says that a name has no address or that a connection was refused, by a server that has not answered before."""
    seen: BaseException | None = error
    while seen is not None:
        # Libraries of stores wrap what the system says in errors of their own, some without a cause.
        if (
            isinstance(seen, (ConnectionRefusedError, socket.gaierror))
            or type(seen).__name__ == "EndpointConnectionError"
        ):
            return server_of(url) not in ANSWERING_SERVERS
        seen = seen.__cause__ or seen.__context__
    return False


class Server(Protocol):
    """sure: whether what it sends now is of the file that it sent before, by its mark."""

    facts: Facts
    sure: bool

    def open(self, at: int, until: int | None) -> None:
        """Begin at byte `at`; until: the byte after the last one that will be read, where that is known."""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end of what was asked for."""

    def close(self) -> None:
        """Let go of the connection."""


class Web:
    """A file at http or https. Raises TransientError, MissingError and TransferError."""

    def __init__(self, url: str, access: Access, facts: Facts, page: bool) -> None:
        """url: as the config has it, with references to secrets, which messages show. page: whether the file may be a web page."""
        self.url, self.access, self.facts, self.page = url, access, facts, page
        self.sure = False
        try:
            self.filled_url, options = access.fill_url(url, WHERE), access.fill_options(WHERE)
        except InputError as error:
            raise TransferError(f"{url}: {error}") from error
        self.fs, _ = fsspec.core.url_to_fs(self.filled_url, **options)
        self.bare, _ = fsspec.core.url_to_fs(self.filled_url, **drop_secrets(options))
        self.response: aiohttp.ClientResponse | None = None

    def send_request(self, method: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """A response, whatever its status, of which only the headers were read. Redirects are followed, without secrets to other hosts."""
        place = str(self.fs.encode_url(self.filled_url))
        if why := self.access.why_refused(place, place):
            raise MissingError(f"{self.url}: {why}")
        first = place
        for _ in range(REDIRECTS):
            response = self._send_once(method, place, headers, first)
            target = response.headers.get("Location", "")
            if (
                response.status not in REDIRECT_STATUSES
                or not target
                or not self.fs.kwargs.get("allow_redirects", True)
            ):
                return response
            self.fs.loop.call_soon_threadsafe(response.close)
            try:
                place = urljoin(place, target)
                why = self.access.why_refused(place, first)
            except ValueError:
                why = "the server redirects to an invalid URL"
            if why:
                raise MissingError(f"{self.url}: {why}")
        raise MissingError(f"{self.url}: the server redirects more than {REDIRECTS} times")

    def _send_once(self, method: str, place: str, headers: dict[str, str], first: str) -> aiohttp.ClientResponse:
        fs = self.fs if self.access.trusts(place, first) else self.bare
        options = {**fs.kwargs}
        sent_headers = {**options.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        options.setdefault(
            "timeout", aiohttp.ClientTimeout(total=None, connect=SILENT_SECONDS, sock_read=SILENT_SECONDS)
        )
        options["allow_redirects"] = False

        async def send() -> aiohttp.ClientResponse:
            session = await fs.set_session()
            # What is stored in gzip may be said to be coded so: it is wanted as it is stored.
            return cast(
                aiohttp.ClientResponse,
                await session.request(
                    method,
                    yarl.URL(place, encoded=place.isascii() and " " not in place),
                    headers=sent_headers,
                    auto_decompress=False,
                    **options,
                ),
            )

        response = cast(aiohttp.ClientResponse, self._call_library(send))
        ANSWERING_SERVERS.add(server_of(self.url))
        return response

    def _call_library(self, call: Callable[[], Any]) -> Any:
        try:
            return sync(self.fs.loop, call)
        except aiohttp.InvalidURL as error:
            raise MissingError(f"{self.url} is no URL") from error
        except TypeError as error:
            raise TransferError(f"{self.url}: {error_text(error)}: {WRONG}") from error
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise TransientError(error_text(error), nobody=is_nobody(error, self.url)) from error

    def read_facts(self) -> Facts:
        """What the server says of the file before it sends any of it; nothing if it answers no HEAD request."""
        response = self.send_request("HEAD", {})
        response.close()
        if response.status in (404, 410):  # some servers answer so to HEAD alone
            self.open(0, 1)
            self.close()
            return self.facts
        if response.status in BUSY_STATUSES:
            raise _busy_error(response)
        length = response.headers.get("Content-Length", "")
        if response.status != 200:
            return Facts()
        return Facts(int(length) if length.isdecimal() else None, _response_mark(response))

    def open(self, at: int, until: int | None) -> None:
        """See Server."""
        self.close()
        headers = {"Range": f"bytes={at}-{until - 1 if until else ''}"} if at or until else {}
        if headers and self.facts.mark and not self.facts.mark.startswith("W/"):
            headers["If-Range"] = self.facts.mark
        before = self.facts.mark
        response = self.response = self.send_request("GET", headers)
        # A 206 to If-Range may leave the mark out.
        same = _response_mark(response) or (response.status == 206 and "If-Range" in headers)
        self.sure = before is not None and bool(same)  # compare: it is the same mark
        if response.status not in (200, 206):
            self.close()
            raise self._refusal_error(response, at)
        if not self.page and response.content_type == "text/html":
            self.close()
            raise MissingError(f"{self.url}: the server sent a web page in place of the file")
        if response.status == 206:
            content_range = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range", ""))
            if not content_range or int(content_range.group(1)) != at:
                self.close()
                raise TransferError(
                    f"{self.url}: asked for byte {at}, the server sent {response.headers.get('Content-Range')!r}"
                )
            self.update_facts(
                Facts(int(content_range.group(3)) if content_range.group(3) != "*" else None, _response_mark(response))
            )
            return
        length = response.headers.get("Content-Length", "")
        self.update_facts(Facts(int(length) if length.isdecimal() else None, _response_mark(response)))
        if at:  # the server takes no ranges: what was read is read again, where it is surely the same
            if not self.sure:
                self.close()
                raise TransferError(f"{self.url}: broke at byte {at}, and the server cannot continue there")
            while at and (piece := self.read(min(at, PIECE))):
                at -= len(piece)

    def _refusal_error(self, response: aiohttp.ClientResponse, at: int) -> Exception:
        if response.status == 416:
            says = response.headers.get("Content-Range", "").removeprefix("bytes */") or "less"
            return TransferError(f"{self.url}: the server said {self.facts.bytes} bytes, and has {says}: none at {at}")
        if response.status in BUSY_STATUSES:
            return _busy_error(response)
        return MissingError(f"{self.url}: the server answers {response.status}")

    def update_facts(self, now: Facts) -> None:
        """Take what the server says now; TransferError where it is another file than before."""
        try:
            self.facts = self.facts.merged_with(now, self.url)
        except TransferError:
            self.close()
            raise

    def read(self, size: int) -> bytes:
        """See Server."""
        assert self.response is not None
        content = self.response.content
        try:
            return cast(bytes, self._call_library(lambda: content.read(size)))
        except TransientError:
            # aiohttp says that a connection broke before it hands out the last bytes that came, and it has no public way to
            # them. Without these, a server that breaks after a few kilobytes each time would never be read.
            left = content._read_nowait(size)
            if not left:
                raise
            return left

    def close(self) -> None:
        """See Server."""
        if self.response is not None:
            response, self.response = self.response, None
            self.fs.loop.call_soon_threadsafe(response.close)


def _response_mark(response: aiohttp.ClientResponse) -> str | None:
    return response.headers.get("ETag") or response.headers.get("Last-Modified")


def _busy_error(response: aiohttp.ClientResponse) -> TransientError:
    after = response.headers.get("Retry-After", "")
    return TransientError(f"the server answers {response.status}", float(after) if after.isdecimal() else 0.0)


class Store:
    """A file in a store that fsspec reads, such as s3 and hf."""

    def __init__(self, url: str, access: Access, facts: Facts) -> None:
        self.url, self.facts = url, facts
        try:
            self.options = access.fill_options(WHERE)
        except InputError as error:
            raise TransferError(f"{url}: {error}") from error
        self.sure = False
        self.file: Any = None
        self.at = 0

    def read_facts(self) -> Facts:
        """What the store says of the file."""
        fs, path = self._call_library(lambda: fsspec.core.url_to_fs(self.url, **self.options))
        facts = facts_from_info(
            self._call_library(lambda: fs.info(path, refresh=True) if hasattr(fs, "s3") else fs.info(path))
        )
        ANSWERING_SERVERS.add(server_of(self.url))
        return facts

    def open(self, at: int, until: int | None) -> None:
        """See Server. The file is opened once: s3fs then asks for the same ETag in every request."""
        if self.file is None:
            now = self.read_facts()
            self.sure = None not in (self.facts.mark, now.mark)
            self.facts = self.facts.merged_with(now, self.url)
            fs, path = fsspec.core.url_to_fs(self.url, **self.options)
            self.file = self._call_library(lambda: fs.open(path, "rb", block_size=BLOCK, cache_type="none"))
        self.at = at

    def read(self, size: int) -> bytes:
        """See Server."""

        def read_from_file() -> bytes:
            self.file.seek(self.at)
            return cast(bytes, self.file.read(size))

        data = self._call_library(read_from_file)
        self.at += len(data)
        return cast(bytes, data)

    def _call_library(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (FileNotFoundError, PermissionError) as error:
            raise MissingError(f"{self.url}: {error_text(error)}") from error
        except ImportError as error:
            raise TransferError(f"{self.url}: {error_text(error)}: pip install s3fs") from error
        except Exception as error:
            if lacks_keys(error) or isinstance(error, TypeError):
                hint = WRONG if isinstance(error, TypeError) else KEYS
                raise TransferError(f"{self.url}: {error_text(error)}: {hint}") from error
            # Libraries of stores raise what they like; what says that another file is there now is no failure that passes.
            if "expired" in type(error).__name__.lower() or "precondition" in str(error).lower():
                raise TransferError(f"{self.url} changed while it was read") from error
            status = getattr(getattr(error, "response", None), "status_code", None)
            if isinstance(status, int) and 400 <= status < 500 and status not in BUSY_STATUSES:  # of the hub
                raise MissingError(f"{self.url}: the server answers {status}") from error
            raise TransientError(error_text(error), nobody=is_nobody(error, self.url)) from error

    def close(self) -> None:
        """See Server."""
        if self.file is not None:
            file, self.file = self.file, None
            file.close()


def lacks_keys(error: BaseException) -> bool:
    """Whether an error of a store's library says that there are no credentials, which no wait changes."""
    return "credential" in type(error).__name__.lower()


def error_text(error: BaseException) -> str:
    """An error of a library in one line, without secrets and the queries of the URLs in it: a store redirects to URLs that are signed."""
    message = str(error).encode("utf-8", "replace").decode()
    words = re2.sub(r"(://[^\s'\"?]+)\?[^\s'\"]+", r"\1?...", message).replace(
        " ssl:default", ""
    )  # aiohttp says so of http too
    return f"{type(error).__name__}: {secret_masking.mask(' '.join(words.split()))[:500]}"


def facts_from_info(info: dict[str, Any]) -> Facts:
    """What fsspec's `info` says of a file."""
    mark = info.get("ETag") or (info.get("lfs") or {}).get("sha256") or info.get("blob_id")
    return Facts(info.get("size"), str(mark) if mark else None)
