"""A real server over HTTP that answers chat completions by a rule of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[[int, dict[str, Any]], tuple[int, Any]]


@pytest.fixture(name="served")
def serving() -> Iterator[Callable[[Reply], tuple[str, list[Any]]]]:
    """served(reply): (URL of a server that answers with reply(number of the request, body), the headers and bodies that it got)."""
    servers = []

    def start(reply: Reply) -> tuple[str, list[Any]]:
        got: list[Any] = []
        turn = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with turn:  # requests at once have numbers of their own
                    got.append((dict(self.headers), body))
                    number = len(got)
                status, answer = reply(number, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/v1", got

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}
