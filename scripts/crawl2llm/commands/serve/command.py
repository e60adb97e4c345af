"""Serve a run's models on this machine: a page to chat in, and an endpoint as OpenAI's.

Every client of OpenAI's API can ask it: base_url http://127.0.0.1:8000/v1, any key. Models that were fine-tuned chat, `base` goes on with a
text. Exports as GGUF (`gguf --type q8_0`) are run by llama.cpp, all others by transformers. Only this machine reaches it; from elsewhere go
through ssh: `ssh -L 8000:127.0.0.1:8000 HOST`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.commands.serve.app import HOSTS, Server
from crawl2llm.commands.serve.catalog import add_options, choose_offers
from crawl2llm.core.console import print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError

LARGEST_PORT = 65535  # of all ports


async def serve_until_signal(server: Server, port: int) -> None:
    """Answer until SIGINT or SIGTERM. Raises OSError if the port is taken."""
    limits = server.connections
    runner = web.AppRunner(
        server.build_application(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=2,
        keepalive_timeout=limits.arrival,
    )
    await runner.setup()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        assert runner.server
        listening = await asyncio.get_running_loop().create_server(
            limits.bounded_factory(runner.server), HOSTS[0], port, reuse_address=True
        )
        address = f"http://{HOSTS[0]}:{listening.sockets[0].getsockname()[1]}"
        print_line(
            f"{', '.join(server.offers)}: {address} to chat, {address}/v1 for OpenAI's clients; Ctrl-C ends it",
            flush=True,
        )
        await ended.wait()
        listening.close()
    finally:
        await runner.cleanup()


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm serve", __doc__, "sft --port 8000")
    parser.add_argument(
        "model",
        nargs="?",
        help="the model, or export as GGUF, that the page begins with (default: the last model made)",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results/main"), help="results of a variant (default: results/main)"
    )
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes a free one")
    parser.add_argument(
        "--waiting",
        type=int,
        default=100,
        help="most answers that are asked for at a time; more are refused (default: 100)",
    )
    add_options(parser)
    args = parser.parse_args(argv)
    set_up_logging("serve")
    if not 0 <= args.port <= LARGEST_PORT:
        return print_error(f"--port {args.port}: it must be from 0 to {LARGEST_PORT:,}")
    try:
        offers, first, speculation = choose_offers(args)
        server = Server(offers, first, args.waiting, speculation)
        server.load_model(server.first)
        asyncio.run(serve_until_signal(server, args.port))
    except (InputError, ManifestError) as error:
        return print_error(str(error))
    except OSError as error:
        return print_error(f"--port {args.port}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
