"""Servers on loopback for tests: HTTP that breaks, throttles, refuses and lies, and S3 (moto) with its own wire protocol."""

from __future__ import annotations

import email.utils
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass
class File:
    """A file of the HTTP server, and how it is served."""

    data: bytes
    drop: int = 0  # bytes of a body after which the connection is cut; 0 never
    statuses: list[int] = field(default_factory=list)  # of the next answers to GET, before it is served
    retry_after: str = ""
    ranges: bool = True
    etag: bool = True
    dated: bool = True
    head: int = 200
    says: int | None = None  # the length that is said, where that is a lie
    shift: int = 0  # a range is answered from another place
    kind: str = "application/octet-stream"
    coding: str = ""
    pause: float = 0.0  # seconds before each 64 KB
    silent: bool = False  # no length is said
    change: bytes | None = None  # takes the place of `data` after the first answer
    later: list[int] = field(default_factory=list)  # `statuses` after the first answer


class Server(ThreadingHTTPServer):
    """files: by path. asked: (method, path, Range) of each request."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.files: dict[str, File] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def put(self, path: str, data: bytes, **how: Any) -> str:
        """Serve a file; its URL."""
        self.files[f"/{path}"] = File(data, **how)
        return f"{self.url}/{path}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def status(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def answer(self, body: bool) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append((self.command, self.path, asked))
        file = self.server.files.get(self.path.split("?")[0])
        if file is None:
            return self.status(404)
        if not body and file.head != 200:
            return self.status(file.head)
        if body and file.statuses:
            return self.status(file.statuses.pop(0), **({"Retry_After": file.retry_after} if file.retry_after else {}))
        data = file.data
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        date = email.utils.formatdate(1_700_000_000 + len(data), usegmt=True)
        start, end, total = 0, len(data), len(data) if file.says is None else file.says
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked) if file.ranges else None
        if found and self.headers.get("If-Range", etag) not in (etag, date):
            found = None
        if found:
            start = int(found.group(1))
            if start >= len(data):
                return self.status(416, Content_Range=f"bytes */{len(data)}")
            end = min(int(found.group(2)) + 1, len(data)) if found.group(2) else len(data)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start + file.shift}-{end - 1 + file.shift}/{total}")
            length = end - start
        else:
            self.send_response(200)
            length = total
        headers = {"Content-Type": file.kind, "Content-Encoding": file.coding}
        headers |= {"ETag": etag} if file.etag else {}
        headers |= {"Last-Modified": date} if file.dated else {}
        headers |= {"Connection": "close"} if file.silent else {"Content-Length": str(length)}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if body:
            self.send(file, data[start:end])
            if file.change is not None:
                file.data, file.change = file.change, None
            file.statuses, file.later = file.statuses or file.later, []
        self.close_connection = file.silent or self.close_connection

    def send(self, file: File, data: bytes) -> None:
        cut = data[: file.drop] if file.drop else data
        with suppress(OSError):
            for at in range(0, len(cut), 65536):
                time.sleep(file.pause)
                self.wfile.write(cut[at : at + 65536])
            if len(cut) < len(data) or (file.says or 0) > len(file.data):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)


class HubHandler(Handler):
    """As the Hugging Face hub answers for one data set, `o/set`: its files are the server's below /datasets/o/set/resolve/main/."""

    ROOT = "/datasets/o/set/resolve/main/"

    def entries(self) -> list[dict[str, Any]]:
        found = {path.removeprefix(self.ROOT): file.data for path, file in self.server.files.items()}
        folders = {name.rpartition("/")[0] for name in found} - {""}
        files = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324
            for name, data in found.items()
        ]
        return [*({"type": "directory", "path": name, "size": 0, "oid": "0"} for name in folders), *files]

    def json(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].replace("%2F", "/")
        if path.startswith("/api/datasets/o/set/tree/main"):
            below = path.removeprefix("/api/datasets/o/set/tree/main").strip("/")
            self.json([one for one in self.entries() if one["path"].startswith(below)])
        elif path in ("/api/datasets/o/set", "/api/datasets/o/set/revision/main"):
            self.json({"id": "o/set", "sha": "1" * 40, "siblings": [], "tags": [], "private": False, "downloads": 0})
        elif path.startswith("/api/"):
            self.status(404, X_Error_Code="RepoNotFound")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        wanted = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        self.json([one for one in self.entries() if one["path"] in wanted])


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler] = Handler) -> Iterator[Server]:
    """An HTTP server on a free port of loopback."""
    server = Server(handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
