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

from crawl2llm.commands.serve.catalog import Offer, describe_offer, open_offer
from crawl2llm.commands.serve.connections import Connections
from crawl2llm.commands.serve.generate import AnswerEnd, GenerationRequest
from crawl2llm.commands.serve.generate import Model as Transformers
from crawl2llm.commands.serve.gguf import Model as LlamaCpp
from crawl2llm.commands.serve.requests import ApiRequest, RefusedRequest, parse_request
from crawl2llm.commands.serve.speculative import Speculation
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError

PAGE = Path(__file__).with_name("page.html")
LARGEST_REQUEST = 4 << 20  # bytes of a request
MOST_LOADED = 2  # models in memory at a time
HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
Parts = AsyncGenerator[str | GenerationRequest | AnswerEnd, None]
Model = Transformers | LlamaCpp
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """What a run offers behind HTTP. waiting: the most answers that are asked for at a time; ahead: speculative decoding."""

    def __init__(
        self, offers: Mapping[str, Offer], first_model: str, waiting: int, speculation: Speculation | None = None
    ) -> None:
        self.offers, self.first, self.waiting, self.ahead = offers, first_model, waiting, speculation
        self.models: dict[str, Model] = {}
        self.thread = ThreadPoolExecutor(1, "generate")
        self.open_answers = 0  # answers that wait or are generated
        self.started_at = int(time.time())
        self.connections = Connections()

    def build_application(self) -> web.Application:
        """The application, for aiohttp."""
        application = web.Application(client_max_size=LARGEST_REQUEST, middlewares=[self.note_arrival, error_responses])
        application.router.add_get("/", self.send_page)
        application.router.add_get("/v1/models", self.list_models)
        application.router.add_post("/v1/chat/completions", self.answer_request)
        application.router.add_post("/v1/completions", self.answer_request)
        return application

    @web.middleware
    async def note_arrival(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The head of a request is there."""
        self.connections.end_wait(request.transport)
        return await handler(request)

    async def send_page(self, request: web.Request) -> web.Response:
        """The page to chat in."""
        headers = {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=PAGE.read_text(encoding="utf-8"), content_type="text/html", headers=headers)

    async def list_models(self, request: web.Request) -> web.Response:
        """GET /v1/models; `context` in tokens, whether a model `chats` and `examples` are this server's own."""
        models = []
        for name in sorted(self.offers, key=lambda name: name != self.first):
            facts = await asyncio.to_thread(describe_offer, self.offers[name])  # a header is read by a process
            models.append({"id": name, "object": "model", "created": self.started_at, "owned_by": "crawl2llm", **facts})
        return web.json_response({"object": "list", "data": models})

    def load_model(self, name: str) -> Model:
        """A model, which is loaded when it is first asked for; in the thread that generates."""
        if name in self.models:
            self.models[name] = self.models.pop(name)  # the last one used is the last
        else:
            while len(self.models) >= MOST_LOADED:
                del self.models[next(iter(self.models))]
            self.models[name] = open_offer(self.offers[name], self.ahead)
            log.info("loaded %s", name)
        return self.models[name]

    async def answer_request(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions and /v1/completions."""
        kind = "chat.completions" if "chat" in request.path else "completions"
        if request.content_type != "application/json":
            raise RefusedRequest(f"Content-Type is {request.content_type}; it must be application/json", status=415)
        try:
            async with asyncio.timeout(self.connections.arrival):
                body = await request.json()
        except TimeoutError:
            raise RefusedRequest(
                f"the body did not arrive within {self.connections.arrival:.0f} s", status=408
            ) from None
        except (ValueError, LookupError, RecursionError) as error:  # LookupError: a charset that is none
            raise RefusedRequest(f"the body is not JSON: {error}") from error
        api_request = parse_request(kind, body)
        if api_request.model not in self.offers:
            message = f"the model {api_request.model!r} does not exist; there are {', '.join(self.offers)}"
            raise RefusedRequest(message, "model", "model_not_found", 404)
        if self.open_answers >= self.waiting:
            raise RefusedRequest(
                f"{self.open_answers} answers are waited for already",
                None,
                "rate_limit_exceeded",
                429,
                "rate_limit_error",
            )
        self.open_answers += 1
        try:
            async with aclosing(self.answer_parts(api_request)) as parts:
                generation = await anext(parts)
                assert isinstance(generation, GenerationRequest)
                answer_format = AnswerFormat(api_request, generation)
                return await (
                    stream_response(request, answer_format, parts)
                    if api_request.stream
                    else whole_response(answer_format, parts)
                )
        finally:
            self.open_answers -= 1

    def load_and_generate(
        self, api_request: ApiRequest, say: Callable[[str | GenerationRequest], None], stopped: threading.Event
    ) -> AnswerEnd:
        """A request from its model's weights to its answer's end, in the thread that generates. Raises Refused.

        In one piece: who waits in line holds no model, so that no more than MOST_LOADED are in memory.
        """
        try:
            model = self.load_model(api_request.model)
        except (InputError, ManifestError, OSError) as error:
            raise RefusedRequest(str(error), "model", "model_not_loaded", 500, "server_error") from error
        generation = generation_request(api_request, model)
        say(generation)
        return model.generate_answer(generation, say, stopped)

    async def answer_parts(self, api_request: ApiRequest) -> Parts:
        """What is asked of the model, the pieces of its answer, and at last why it ended. Whoever stops reading stops the model."""
        loop, queue, stopped = asyncio.get_running_loop(), asyncio.Queue[str | GenerationRequest](), threading.Event()

        def say(piece: str | GenerationRequest) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, piece)

        generating = loop.run_in_executor(self.thread, partial(self.load_and_generate, api_request, say, stopped))
        piece: asyncio.Future[str | GenerationRequest] | None = None
        try:
            while not generating.done() or not queue.empty():
                piece = asyncio.ensure_future(queue.get())
                either: list[asyncio.Future[Any]] = [piece, generating]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if piece.done():
                    yield piece.result()
                else:  # what the thread said last was put before its end is seen
                    piece.cancel()
            yield await generating
        finally:
            stopped.set()
            generating.cancel()
            if piece:
                piece.cancel()


class AnswerFormat:
    """An answer in OpenAI's words."""

    def __init__(self, api_request: ApiRequest, generation: GenerationRequest) -> None:
        self.api_request, self.generation = api_request, generation
        self.id = f"{'chatcmpl' if api_request.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def common_fields(self, chunk: bool) -> dict[str, Any]:
        """What all objects begin with."""
        name = "text_completion"
        if self.api_request.chat:
            name = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self.id, "object": name, "created": self.created, "model": self.api_request.model}

    def stream_chunk(self, text: str | None, reason: str | None = None, *, first: bool = False) -> dict[str, Any]:
        """A chunk of a stream."""
        role = {"role": "assistant"} if first else {}
        text_fields: dict[str, Any] = (
            {"delta": role | ({} if text is None else {"content": text})}
            if self.api_request.chat
            else {"text": text or ""}
        )
        return {
            **self.common_fields(chunk=True),
            "choices": [{"index": 0, **text_fields, "logprobs": None, "finish_reason": reason}],
        }

    def whole_answer(self, text: str, ended: AnswerEnd) -> dict[str, Any]:
        """An answer that is not streamed."""
        text_fields: dict[str, Any] = {"text": text}
        if self.api_request.chat:
            text_fields = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0, **text_fields, "logprobs": None, "finish_reason": ended.reason}
        return {**self.common_fields(chunk=False), "choices": [choice], "usage": self.token_usage(ended)}

    def token_usage(self, ended: AnswerEnd) -> dict[str, int]:
        """How many tokens there were."""
        prompt_tokens = len(self.generation.prompt)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": ended.tokens,
            "total_tokens": prompt_tokens + ended.tokens,
        }


def generation_request(api_request: ApiRequest, model: Model) -> GenerationRequest:
    """A request as the model takes it. Raises Refused for what its context has no room for, or its template cannot lay out."""
    if not api_request.chat:
        prompt = model.text_ids(api_request.prompt)
    elif model.chats:
        try:
            prompt = model.chat_ids(list(api_request.messages))
        except InputError as error:
            raise RefusedRequest(str(error), "messages", "chat_template") from error
    else:
        raise RefusedRequest(
            f"{api_request.model} has no chat template: it was not fine-tuned. Ask /v1/completions",
            "model",
            "no_chat_template",
        )
    room = model.context - len(prompt)
    if room < 1:
        parameter = "messages" if api_request.chat else "prompt"
        message = f"this has {len(prompt):,} tokens, and the context of {api_request.model} is {model.context:,} with the answer"
        raise RefusedRequest(message, parameter, "context_length_exceeded")
    max_tokens = min(api_request.max_tokens, room)
    return GenerationRequest(
        prompt,
        max_tokens,
        api_request.temperature,
        api_request.top_p,
        api_request.seed,
        api_request.stop,
        strip_start=api_request.chat,
    )


async def whole_response(answer_format: AnswerFormat, parts: Parts) -> web.Response:
    """The answer in one piece."""
    pieces = [part async for part in parts]
    ended = pieces.pop()
    assert isinstance(ended, AnswerEnd)
    return web.json_response(answer_format.whole_answer("".join(map(str, pieces)), ended))


async def stream_response(request: web.Request, answer_format: AnswerFormat, parts: Parts) -> web.StreamResponse:
    """The answer as server-sent events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)

    async def send_event(body: dict[str, Any]) -> None:
        await response.write(f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode())

    if answer_format.api_request.chat:
        await send_event(answer_format.stream_chunk("", first=True))
    try:
        async for part in parts:
            await send_event(
                answer_format.stream_chunk(None, part.reason)
                if isinstance(part, AnswerEnd)
                else answer_format.stream_chunk(str(part))
            )
            if isinstance(part, AnswerEnd) and answer_format.api_request.usage:
                await send_event(
                    {**answer_format.common_fields(chunk=True), "choices": [], "usage": answer_format.token_usage(part)}
                )
    except (RuntimeError, MemoryError) as error:  # torch's; the status is sent already
        log.exception("%s", request.path)
        await send_event(RefusedRequest(f"the model failed: {error}", None, None, 500, "server_error").error_body())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@web.middleware
async def error_responses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in OpenAI's shape; nothing for a name of a host that is not this machine's own."""
    try:
        if request.host.rpartition(":")[0] not in HOSTS and request.host not in HOSTS:
            raise RefusedRequest(f"this server answers at {' and '.join(HOSTS[:2])}, not at {request.host}", status=403)
        return await handler(request)
    except RefusedRequest as error:
        return web.json_response(error.error_body(), status=error.status)
    except web.HTTPException as error:
        refusal = RefusedRequest(f"{request.method} {request.path}: {error.reason}", status=error.status)
        return web.json_response(refusal.error_body(), status=error.status)
    except ConnectionError:  # whoever asked has gone, and nobody reads what is returned
        return web.Response(status=499)
    except Exception:
        log.exception("%s %s", request.method, request.path)
        refusal = RefusedRequest("the server failed; its terminal says how", None, None, 500, "server_error")
        return web.json_response(refusal.error_body(), status=500)
