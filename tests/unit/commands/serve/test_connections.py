"""Clients that send half a request, or open more connections than there may be, keep nobody else from an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from crawl2llm.commands.serve.app import Server
from crawl2llm.commands.serve.connections import Connections


@asynccontextmanager
async def served(limits: Connections) -> AsyncIterator[int]:
    """The port of a server that offers no model."""
    server = Server({}, "base", 1)
    server.connections = limits
    runner = web.AppRunner(
        server.build_application(), access_log=None, keepalive_timeout=limits.arrival, shutdown_timeout=1
    )
    await runner.setup()
    assert runner.server
    listening = await asyncio.get_running_loop().create_server(limits.bounded_factory(runner.server), "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await runner.cleanup()


async def models(port: int) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/v1/models") as answer:
        return answer.status


def test_half_requests_are_ended_and_others_are_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("crawl2llm"), "propagate", True)

    async def attack() -> None:
        limits = Connections(most=5, arrival_seconds=3)
        async with served(limits) as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            for _, writer in held[:5]:
                writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n")  # and no empty line
            async with asyncio.timeout(2):
                while limits.open_count < 5:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # in which no more are let in
            assert limits.open_count == 5
            async with asyncio.timeout(120):
                for reader, _ in held:  # closed, all of them
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
            assert limits.open_count == 0 and not limits.arrival_timers
            assert await models(port) == 200
            for _, writer in held:
                writer.close()

    asyncio.run(attack())
    assert len({record.created for record in caplog.records if "connections are open" in record.message}) == 1


def test_a_body_that_does_not_come_is_refused_in_words() -> None:
    async def ask() -> bytes:
        async with served(Connections(arrival_seconds=0.3)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            async with asyncio.timeout(120):
                said = await reader.read(4096)
            writer.close()
            return said

    assert b"408" in (said := asyncio.run(ask())).split(b"\r\n")[0] and b"did not arrive" in said
