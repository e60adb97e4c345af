"""Bounds of the server's connections: how many are open at a time, and how long a request may take to arrive.

aiohttp (3.13) has neither: a client that sends half a request holds its connection without end, and with as many of them as a process
may have files open nobody is served, while asyncio fills the terminal with tracebacks.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from typing import Any

from crawl2llm.core.console import log

MOST_CONNECTIONS = 512  # connections at a time, or half of the files that the process may have open
ARRIVAL = 30.0  # seconds in which the head of a request has to arrive, and then its body
LOG_PAUSE = 60.0  # seconds between two lines of the log on connections that are refused


class Connections:
    """The open connections. most: None for MOST."""

    def __init__(self, most: int | None = None, arrival_seconds: float = ARRIVAL) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most, self.arrival = most or min(MOST_CONNECTIONS, files // 2), arrival_seconds
        self.open_count = self.refused_count = 0
        self.logged_at = -LOG_PAUSE
        # Transport of a connection without a request yet: what will close it.
        self.arrival_timers: dict[Any, asyncio.TimerHandle] = {}

    def end_wait(self, transport: Any) -> None:
        """The head of the first request of a connection is there; aiohttp's keep-alive bounds the next."""
        if timer := self.arrival_timers.pop(transport, None):
            timer.cancel()

    def refuse_connection(self, transport: Any) -> None:
        """Close a connection that is one too many, with a line of the log once a minute."""
        transport.abort()
        self.refused_count += 1
        if time.monotonic() - self.logged_at >= LOG_PAUSE:
            log.warning(
                "%d connections are open, which is the most: %d more were closed", self.open_count, self.refused_count
            )
            self.logged_at, self.refused_count = time.monotonic(), 0

    def bounded_factory(self, make: Callable[[], Any]) -> Callable[[], asyncio.Protocol]:
        """A factory of protocols for asyncio, of those that `make` makes."""
        return lambda: BoundedProtocol(make(), self)


class BoundedProtocol(asyncio.Protocol):
    """A protocol that hands everything on, if its connection is not one too many."""

    def __init__(self, inner: Any, all_of_them: Connections) -> None:
        self.inner, self.connections, self.transport = inner, all_of_them, None

    def connection_made(self, transport: Any) -> None:
        if self.connections.open_count >= self.connections.most:
            self.connections.refuse_connection(transport)
            return
        self.transport = transport
        self.connections.open_count += 1
        self.connections.arrival_timers[transport] = asyncio.get_running_loop().call_later(
            self.connections.arrival, transport.abort
        )
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return
        self.connections.open_count -= 1
        self.connections.end_wait(self.transport)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is not None:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self.transport is None else self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()
