"""The server: OpenAI's endpoints for models, chats and completions, and the page to chat in.

One thread generates, so that answers never share a GPU's memory or a CPU's cores; others wait in line, as many as `waiting` allows.
A client that goes away ends its answer. Only pages of this server may ask: it has no CORS, and takes no other host's name (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from crawl2llm.commands.serve.catalog import Offer, described, opened
from crawl2llm.commands.serve.connections import Connections
from crawl2llm.commands.serve.generate import Ended, Wanted
from crawl2llm.commands.serve.generate import Model as Transformers
from crawl2llm.commands.serve.gguf import Model as LlamaCpp
from crawl2llm.commands.serve.requests import Asked, Refused, asked
from crawl2llm.commands.serve.speculative import Ahead
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError

PAGE = Path(__file__).with_name("page.html")
LARGEST = 4 << 20  # bytes of a request
LOADED = 2  # models in memory at a time
HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
Parts = AsyncGenerator[str | Wanted | Ended, None]
Model = Transformers | LlamaCpp
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """What a run offers behind HTTP. waiting: the most answers that are asked for at a time; ahead: speculative decoding."""

    def __init__(self, offers: Mapping[str, Offer], first: str, waiting: int, ahead: Ahead | None = None) -> None:
        self.offers, self.first, self.waiting, self.ahead = offers, first, waiting, ahead
        self.models: dict[str, Model] = {}
        self.thread = ThreadPoolExecutor(1, "generate")
        self.open = 0  # answers that wait or are generated
        self.begun = int(time.time())
        self.connections = Connections()

    def app(self) -> web.Application:
        """The application, for aiohttp."""
        made = web.Application(client_max_size=LARGEST, middlewares=[self.arrival, refusals])
        made.router.add_get("/", self.page)
        made.router.add_get("/v1/models", self.list)
        made.router.add_post("/v1/chat/completions", self.answer)
        made.router.add_post("/v1/completions", self.answer)
        return made

    @web.middleware
    async def arrival(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The head of a request is there."""
        self.connections.end_wait(request.transport)
        return await handler(request)

    async def page(self, request: web.Request) -> web.Response:
        """The page to chat in."""
        headers = {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=PAGE.read_text(encoding="utf-8"), content_type="text/html", headers=headers)

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/models; `context` in tokens and whether a model `chats` are this server's own."""
        found = []
        for name in sorted(self.offers, key=lambda name: name != self.first):
            about = await asyncio.to_thread(described, self.offers[name])  # a header is read by a process
            found.append({"id": name, "object": "model", "created": self.begun, "owned_by": "crawl2llm", **about})
        return web.json_response({"object": "list", "data": found})

    def loaded(self, name: str) -> Model:
        """A model, which is loaded when it is first asked for; in the thread that generates."""
        if name in self.models:
            self.models[name] = self.models.pop(name)  # the last one used is the last
        else:
            while len(self.models) >= LOADED:
                del self.models[next(iter(self.models))]
            self.models[name] = opened(self.offers[name], self.ahead)
            log.info("loaded %s", name)
        return self.models[name]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions and /v1/completions."""
        kind = "chat.completions" if "chat" in request.path else "completions"
        if request.content_type != "application/json":
            raise Refused(f"Content-Type is {request.content_type}; it must be application/json", status=415)
        try:
            async with asyncio.timeout(self.connections.arrival):
                body = await request.json()
        except TimeoutError:
            raise Refused(f"the body did not arrive within {self.connections.arrival:.0f} s", status=408) from None
        except (ValueError, LookupError, RecursionError) as error:  # LookupError: a charset that is none
            raise Refused(f"the body is not JSON: {error}") from error
        found = asked(kind, body)
        if found.model not in self.offers:
            said = f"the model {found.model!r} does not exist; there are {', '.join(self.offers)}"
            raise Refused(said, "model", "model_not_found", 404)
        if self.open >= self.waiting:
            raise Refused(
                f"{self.open} answers are waited for already", None, "rate_limit_exceeded", 429, "rate_limit_error"
            )
        self.open += 1
        try:
            async with aclosing(self.generated(found)) as parts:
                what = await anext(parts)
                assert isinstance(what, Wanted)
                told = Told(found, what)
                return await (streamed(request, told, parts) if found.stream else whole(told, parts))
        finally:
            self.open -= 1

    def generate(self, found: Asked, say: Callable[[str | Wanted], None], stopped: threading.Event) -> Ended:
        """A request from its model's weights to its answer's end, in the thread that generates. Raises Refused.

        In one piece: who waits in line holds no model, so that no more than LOADED are in memory.
        """
        try:
            model = self.loaded(found.model)
        except (InputError, ManifestError, OSError) as error:
            raise Refused(str(error), "model", "model_not_loaded", 500, "server_error") from error
        what = wanted(found, model)
        say(what)
        return model.answer(what, say, stopped)

    async def generated(self, found: Asked) -> Parts:
        """What is asked of the model, the pieces of its answer, and at last why it ended. Whoever stops reading stops the model."""
        loop, queue, stopped = asyncio.get_running_loop(), asyncio.Queue[str | Wanted](), threading.Event()

        def say(piece: str | Wanted) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, piece)

        work = loop.run_in_executor(self.thread, partial(self.generate, found, say, stopped))
        piece: asyncio.Future[str | Wanted] | None = None
        try:
            while not work.done() or not queue.empty():
                piece = asyncio.ensure_future(queue.get())
                either: list[asyncio.Future[Any]] = [piece, work]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if piece.done():
                    yield piece.result()
                else:  # what the thread said last was put before its end is seen
                    piece.cancel()
            yield await work
        finally:
            stopped.set()
            work.cancel()
            if piece:
                piece.cancel()


class Told:
    """An answer in OpenAI's words."""

    def __init__(self, found: Asked, what: Wanted) -> None:
        self.found, self.wanted = found, what
        self.id = f"{'chatcmpl' if found.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def head(self, chunk: bool) -> dict[str, Any]:
        """What all objects begin with."""
        name = ("chat.completion.chunk" if chunk else "chat.completion") if self.found.chat else "text_completion"
        return {"id": self.id, "object": name, "created": self.created, "model": self.found.model}

    def part(self, text: str | None, reason: str | None = None, *, first: bool = False) -> dict[str, Any]:
        """A chunk of a stream."""
        role = {"role": "assistant"} if first else {}
        said: dict[str, Any] = (
            {"delta": role | ({} if text is None else {"content": text})} if self.found.chat else {"text": text or ""}
        )
        return {**self.head(chunk=True), "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": reason}]}

    def all(self, text: str, ended: Ended) -> dict[str, Any]:
        """An answer that is not streamed."""
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self.found.chat else {"text": text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": ended.reason}
        return {**self.head(chunk=False), "choices": [choice], "usage": self.usage(ended)}

    def usage(self, ended: Ended) -> dict[str, int]:
        """How many tokens there were."""
        given = len(self.wanted.prompt)
        return {"prompt_tokens": given, "completion_tokens": ended.tokens, "total_tokens": given + ended.tokens}


def wanted(found: Asked, model: Model) -> Wanted:
    """A request as the model takes it. Raises Refused for what its context has no room for, or its template cannot lay out."""
    if not found.chat:
        prompt = model.encoded(found.prompt)
    elif model.chats:
        try:
            prompt = model.chat(list(found.messages))
        except InputError as error:
            raise Refused(str(error), "messages", "chat_template") from error
    else:
        raise Refused(
            f"{found.model} has no chat template: it was not fine-tuned. Ask /v1/completions",
            "model",
            "no_chat_template",
        )
    room = model.context - len(prompt)
    if room < 1:
        where = "messages" if found.chat else "prompt"
        words = (
            f"this has {len(prompt):,} tokens, and the context of {found.model} is {model.context:,} with the answer"
        )
        raise Refused(words, where, "context_length_exceeded")
    most = min(found.max_tokens, room)
    return Wanted(prompt, most, found.temperature, found.top_p, found.seed, found.stop, bare=found.chat)


async def whole(told: Told, parts: Parts) -> web.Response:
    """The answer in one piece."""
    found = [part async for part in parts]
    ended = found.pop()
    assert isinstance(ended, Ended)
    return web.json_response(told.all("".join(map(str, found)), ended))


async def streamed(request: web.Request, told: Told, parts: Parts) -> web.StreamResponse:
    """The answer as server-sent events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)

    async def send(body: dict[str, Any]) -> None:
        await response.write(f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode())

    if told.found.chat:
        await send(told.part("", first=True))
    try:
        async for part in parts:
            await send(told.part(None, part.reason) if isinstance(part, Ended) else told.part(str(part)))
            if isinstance(part, Ended) and told.found.usage:
                await send({**told.head(chunk=True), "choices": [], "usage": told.usage(part)})
    except (RuntimeError, MemoryError) as error:  # torch's; the status is sent already
        log.exception("%s", request.path)
        await send(Refused(f"the model failed: {error}", None, None, 500, "server_error").body())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in OpenAI's shape; nothing for a name of a host that is not this machine's own."""
    try:
        if request.host.rpartition(":")[0] not in HOSTS and request.host not in HOSTS:
            raise Refused(f"this server answers at {' and '.join(HOSTS[:2])}, not at {request.host}", status=403)
        return await handler(request)
    except Refused as error:
        return web.json_response(error.body(), status=error.status)
    except web.HTTPException as error:
        refused = Refused(f"{request.method} {request.path}: {error.reason}", status=error.status)
        return web.json_response(refused.body(), status=error.status)
    except ConnectionError:  # whoever asked has gone, and nobody reads what is returned
        return web.Response(status=499)
    except Exception:
        log.exception("%s %s", request.method, request.path)
        refused = Refused("the server failed; its terminal says how", None, None, 500, "server_error")
        return web.json_response(refused.body(), status=500)
