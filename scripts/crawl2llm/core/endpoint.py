"""An OpenAI-compatible endpoint, asked with answers kept on the disk, bounded retries, and several requests at a time.

https://platform.openai.com/docs/api-reference/chat: POST <endpoint>/chat/completions. The key comes from an environment variable or a file
that is known by name alone (core/secret_masking.py); it is in no log, result or cache, also where the endpoint repeats it, is sent over
TLS or to this machine alone, and no redirect is followed with it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from crawl2llm.core import secret_masking
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json, write_atomically

if TYPE_CHECKING:
    from crawl2llm.core.setting_types import EndpointSettings

LOCAL = ("127.0.0.1", "localhost", "::1")
LARGEST_ANSWER = 1 << 22  # bytes of an answer
SLEEP = 0.5  # seconds before the second attempt; twice as many before each later one, 30 at most
# HTTP status codes that are of one request, such as one longer than the model's context.
REFUSAL_CODES = (400, 413, 422)
MOST_REFUSED = 8  # requests that are refused before any is answered, after which the endpoint answers none
RETRY_CODES = (408, 425, 429)  # HTTP status codes after which another attempt may succeed, besides those from 500 on


class RefusedError(InputError):
    """The endpoint answers, and not this request; another one it may."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows none: the key would go to another host with it."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class Endpoint:
    """url: `https://host/v1`. key_name: an environment variable, or `file:PATH`; None sends none. cache: folder of answers.

    at_once: requests. where: the section of the config that it is of, which errors name. Raises InputError for a URL or a key that cannot
    be used.
    """

    url: str
    key_name: str | None
    cache: Path
    attempts: int
    seconds: float
    at_once: int
    where: str = "evaluate.judge"

    @classmethod
    def of(cls, settings: EndpointSettings, where: str) -> Self:
        """The endpoint that a section of the config says."""
        return cls(
            settings.endpoint,
            settings.key,
            Path(settings.cache),
            settings.attempts,
            settings.seconds,
            settings.requests,
            where,
        )

    def __post_init__(self) -> None:
        masked_url = secret_masking.mask(self.url)
        try:
            parts = urlsplit(self.url)
            parts.port  # noqa: B018 - it raises for one above 65535
        except ValueError as error:
            why = "" if "@" in self.url else f": {error}"  # it quotes what may be a password
            raise InputError(
                f"{self.where}.endpoint is {masked_url!r}{why}; it must be a URL such as http://127.0.0.1:8000/v1"
            ) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"{self.where}.endpoint is {masked_url!r}; it must be a URL such as http://127.0.0.1:8000/v1"
            )
        if parts.username or parts.password:
            raise InputError(
                f"{self.where}.endpoint holds a name or a password: name an environment variable in {self.where}.key"
            )
        if "?" in self.url or "#" in self.url:  # without the URL: a key may be in it
            raise InputError(
                f"{self.where}.endpoint has a query or a fragment (`?`, `#`), which requests do not keep; it must be a URL such as "
                f"http://127.0.0.1:8000/v1, with a key in the environment variable that {self.where}.key names"
            )
        self.headers, self.key = {"Content-Type": "application/json"}, ""
        if self.key_name:
            self.key = secret_masking.read_secret(self.key_name, f"{self.where}.key")
            if not all("!" <= sign <= "~" for sign in self.key):  # without the key: http.client's own error quotes it
                raise InputError(
                    f"{self.where}.key is {self.key_name!r}: it holds a line break, a space or a character that is not ASCII; it must "
                    "be printable ASCII without spaces"
                )
            if parts.scheme != "https" and parts.hostname not in LOCAL:
                raise InputError(
                    f"{self.where}.endpoint is {masked_url!r}: a key is sent over https alone, or to this machine"
                )
            self.headers["Authorization"] = f"Bearer {self.key}"
        proxies = urllib.request.ProxyHandler({} if parts.hostname in LOCAL else None)
        self.opener = urllib.request.build_opener(NoRedirect, proxies)
        self.stop_event = threading.Event()

    def answer_path(self, body: dict[str, Any]) -> Path:
        """The file of the answer to a request: named by what is asked, not by whom."""
        name = hashlib.sha256(canonical_json(body).encode()).hexdigest()
        return self.cache / name[:2] / f"{name}.json"

    def cached_answer(self, body: dict[str, Any]) -> str | None:
        """The answer that is on the disk; None without a whole one."""
        try:
            entry = json.loads(self.answer_path(body).read_text(encoding="utf-8"))
            return str(entry["answer"]) if entry["asked"] == body else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def answer(self, body: dict[str, Any]) -> str:
        """The answer to a request, kept on the disk before it is returned. Raises InputError if there is none after all attempts."""
        why = "stopped"
        for attempt in range(self.attempts):
            if attempt:
                self.stop_event.wait(min(30.0, SLEEP * 2 ** (attempt - 1)))
            if self.stop_event.is_set():
                break
            try:
                text = self.post(body)
            except urllib.error.HTTPError as error:
                why = f"HTTP {error.code} {error_message(error)}".strip()
                if error.code not in RETRY_CODES and error.code < 500:
                    kind = RefusedError if error.code in REFUSAL_CODES else InputError
                    raise kind(f"{self.url} refuses: {why}") from None
            except (OSError, HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
                why = failure_reason(error)
            else:
                write_atomically(
                    self.answer_path(body), json.dumps({"asked": body, "answer": text}, ensure_ascii=False), shared=True
                )
                return text
        raise InputError(f"{self.url} gave no answer in {self.attempts} attempts: {why}")

    def post(self, body: dict[str, Any]) -> str:
        """The text that one request is answered with. Raises what urllib does, or ValueError, KeyError, … for another shape."""
        url = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), self.headers, method="POST")  # noqa: S310 - checked above
        with self.opener.open(request, timeout=self.seconds) as answer:
            reply = json.loads(answer.read(LARGEST_ANSWER))
        content = reply["choices"][0]["message"]["content"]
        if not isinstance(content, str):
            raise ValueError("an answer without text")
        return self.clean_reply(content)

    def clean_reply(self, content: str) -> str:
        """A reply as UTF-8 can hold it, for JSON may have half of a surrogate pair; without the key, where it repeats that."""
        return secret_masking.mask_values(content.encode(errors="replace").decode(), [self.key])

    def answers(self, bodies: Sequence[dict[str, Any]], progress: Progress | None = None) -> list[str | None]:
        """The answers to all requests, in their order; None for one that the endpoint refuses. What is on the disk is not asked again.

        progress: of all requests, where these are some of them.

        Raises InputError if one fails for good, or the first MOST_REFUSED, or all, are refused: no other is begun then, and those that came
        are kept.
        """
        replies = {at: text for at, body in enumerate(bodies) if (text := self.cached_answer(body)) is not None}
        if replies and progress is None:
            log.info("%s of %s answers are in %s", f"{len(replies):,}", f"{len(bodies):,}", self.cache)
        remaining = iter([at for at in range(len(bodies)) if at not in replies])
        progress = progress or Progress(len(bodies), "answers judged")
        progress.add(len(replies))
        refused: dict[int, InputError] = {}
        with ThreadPoolExecutor(self.at_once, "judge") as pool:
            running = {pool.submit(self.answer, bodies[at]): at for at in _next_items(remaining, self.at_once)}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    at = running.pop(future)
                    try:
                        replies[at] = future.result()
                    except InputError as error:
                        if is_refusal := isinstance(error, RefusedError):
                            refused[at] = error
                        if not is_refusal or (not replies and len(refused) >= min(MOST_REFUSED, len(bodies))):
                            self.stop_event.set()
                            on_disk = sum(self.cached_answer(body) is not None for body in bodies)
                            raise InputError(
                                f"{error}; {on_disk} of {len(bodies)} answers are kept in {self.cache} and will not be asked for again"
                            ) from None
                    progress.add()
                    running |= {pool.submit(self.answer, bodies[more]): more for more in _next_items(remaining, 1)}
        if refused:
            log.warning(
                "%s of %s requests are refused, such as: %s", len(refused), len(bodies), next(iter(refused.values()))
            )
        return [replies.get(at) for at in range(len(bodies))]


def _next_items(rest: Iterator[int], number: int) -> list[int]:
    return [at for _, at in zip(range(number), rest, strict=False)]


def error_message(error: urllib.error.HTTPError) -> str:
    """What an endpoint says of an error, in one short line."""
    try:
        content = json.loads(error.read(4096))
        text = str(content["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        text = ""
    return secret_masking.mask(" ".join(text.split()))[:200]


def failure_reason(error: Exception) -> str:
    """Why no answer came, in words; some errors quote what the endpoint sent."""
    return secret_masking.mask(str(getattr(error, "reason", "") or error) or type(error).__name__)
