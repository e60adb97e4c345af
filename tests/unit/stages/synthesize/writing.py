"""A real endpoint over HTTP that writes by a rule of the test, a real corpus of pages to take seeds from, and the steps run on both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import DOCUMENT, SPLITS, Writer, rows
from crawl2llm.stages.synthesize import rephrase, seed
from tests.unit import making

PROGRAMS = {"synthesize.rephrase": rephrase.main, "synthesize.seed": seed.main}
# reply(number of the request, body) → status, what is answered, headers; or seconds to hang, None to hang up, or the half of an answer.
Reply = Callable[[int, dict[str, Any]], Any]


@pytest.fixture(name="endpoint")
def serving() -> Iterator[Callable[[Reply], tuple[str, list[Any]]]]:
    """endpoint(reply): (its URL, the (headers, body, monotonic time) of each request)."""
    servers = []

    def start(reply: Reply) -> tuple[str, list[Any]]:
        got: list[Any] = []
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    got.append((dict(self.headers), body, time.monotonic()))
                    number = len(got)
                said = reply(number, body)
                if said is None:  # it dies
                    self.close_connection = True
                    return
                if isinstance(said, bytes):  # it dies in the middle
                    self.send_response(200)
                    self.send_header("Content-Length", str(2 * len(said)))
                    self.end_headers()
                    self.wfile.write(said)
                    self.close_connection = True
                    return
                if isinstance(said, float):  # it hangs
                    time.sleep(said)
                    return
                status, answer, *headers = said
                data = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/v1", got

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def says(text: str | None, ended: str = "stop", tokens: tuple[int, int] | None = (100, 50)) -> dict[str, Any]:
    """A chat completion."""
    found: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": ended}]}
    if tokens:
        found["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return found


def prompt(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def words(body: dict[str, Any]) -> str:
    """An English text that a prompt alone decides, and that copies nothing of it."""
    from crawl2llm.stages.synthesize.prompts import name_of

    mark = name_of(body)
    return (
        f"This is what somebody else would say of it, in plain words, for whoever reads {mark[:8]} in the evening. "
        f"They would add that number {int(mark[:6], 16)} is large, and that nobody ought to be afraid of such things."
    )


def page(number: int, host: str | None = None, **more: Any) -> dict[str, Any]:
    """A document of a corpus: 300 characters of English that no other has."""
    text = " ".join(
        f"Sentence {part} of page {number} tells of the garden of house {number * 7 + part}." for part in range(6)
    )
    return making.document(f"{number:032x}", text, url=f"https://{host or f'h{number}.org'}/{number}", **more)


def corpus(folder: Path, shards: dict[str, dict[str, list[dict[str, Any]]]]) -> Path:
    """A folder of corpus.write: {shard: {split: rows}}."""
    for shard, splits in shards.items():
        summary, files = {}, []
        for split in SPLITS:
            path = folder / split / f"{shard}.parquet"
            made = splits.get(split, [])
            with Writer(path, DOCUMENT) as writer:
                for row in made:
                    writer.add(row)
            summary[split] = {"documents": len(made), "bytes": sum(len(row["text"].encode()) for row in made)}
            files.append(path)
        Manifest("corpus.write", "test", summary=summary).write(folder / f"{shard}.manifest.json", files)
    return folder


def settings(step: str, seeds: Path | dict[str, Any], **changes: Any) -> str:
    """What `--config` takes of a step."""
    named = seeds if isinstance(seeds, dict) else {"corpus": [str(seeds)]}
    name = step.partition(".")[2]
    source = {"name": "written", "kind": "synthesized", "step": step}
    given = {
        "ingest": {"extract": {"sources": [source]}},
        "synthesize": {name: {"model": "m", "seeds": named, **changes}},
    }
    return fingerprint(step, configuration.validate(given))


def run(out: Path, url: str, config: str, *options: str) -> int:
    """Run a step; its manifest is out/manifest.json, its cache out.parent/cache."""
    step = json.loads(config)["step"]
    words_ = ["--config", config, f"--endpoint={url}", f"--cache={out.parent / 'cache'}", *options]
    return PROGRAMS[step]([*words_, "--manifest", str(out / "manifest.json")])


def texts(out: Path) -> list[dict[str, Any]]:
    """The texts of a run, with their metadata read."""
    made = Manifest.read_unchecked(out / "manifest.json")
    found = [row for name in sorted(made.files) for row in rows(made.file(name))]
    return [{**row, **json.loads(row["metadata"])["synthesized"]} for row in found]
