"""An OpenAI-compatible endpoint that writes texts: replies with their ends and their tokens, kept on the disk, and waits that it asks for.

As core/endpoint.py, which asks a judge: https://platform.openai.com/docs/api-reference/chat. Retry-After: RFC 9110, 10.2.3.
"""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from crawl2llm.core import endpoint as judging
from crawl2llm.core.endpoint import LARGEST_ANSWER, RETRY_CODES, Endpoint, error_message, failure_reason
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.stages.synthesize.prompts import name_of

LONGEST_WAIT = 600.0  # most seconds that Retry-After is obeyed
REFUSAL_CODES = (400, 413, 422)  # HTTP status codes by which an endpoint refuses one prompt: too long, or filtered


@dataclass(frozen=True)
class Reply:
    """A reply. cut: it ended at max_tokens. prompt, completion: tokens, as the endpoint counts them; `counted` False: by us, a token for 4
    bytes. refused: what the endpoint said in place of an answer.
    """

    answer: str
    cut: bool = False
    prompt: int = 0
    completion: int = 0
    counted: bool = True
    refused: str = ""


def estimate_tokens(text: str) -> int:
    """Tokens of a text where nobody counted them."""
    return math.ceil(len(text.encode()) / 4)


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float:
    """What a Retry-After asks to wait, in seconds, at most LONGEST_WAIT; 0 without one that can be read."""
    if not header:
        return 0.0
    try:
        wait = float(header)
    except ValueError:
        try:
            at = parsedate_to_datetime(header)
        except ValueError:
            return 0.0
        wait = (at.astimezone(UTC) - (now or datetime.now(UTC))).total_seconds()
    return min(max(wait, 0.0), LONGEST_WAIT) if math.isfinite(wait) else 0.0


@dataclass
class Writer(Endpoint):
    """An endpoint of which `reply` may be called by several threads. A wait that it asks for holds for all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.until = 0.0  # on the monotonic clock: no request before

    def answer_path(self, body: dict[str, Any]) -> Path:
        name = name_of(body)
        return self.cache / name[:2] / f"{name}.json"

    def cached_reply(self, body: dict[str, Any]) -> Reply | None:
        """The reply that is on the disk; None without a whole one."""
        try:
            entry = json.loads(self.answer_path(body).read_text(encoding="utf-8"))
            return Reply(**entry["reply"]) if entry["asked"] == body else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def reply(self, body: dict[str, Any]) -> Reply:
        """The reply to a request, kept on the disk before it is returned; a refusal of this one prompt is returned, and not kept.

        Raises InputError if there is none after all attempts, and where the endpoint refuses to work at all.
        """
        why = "stopped"
        for attempt in range(self.attempts):
            self.wait(min(30.0, judging.SLEEP * 2 ** (attempt - 1)) * self.pause_factor(body) if attempt else 0.0)
            if self.stop_event.is_set():
                break
            try:
                reply = self.post_request(body)
            except urllib.error.HTTPError as error:
                retry_after = error.headers.get("Retry-After") if error.headers else None
                why = f"HTTP {error.code} {error_message(error)}".strip()
                if error.code in REFUSAL_CODES:
                    return Reply("", refused=why)
                if error.code not in RETRY_CODES and error.code < 500:
                    raise InputError(f"{self.url} refuses: {why}") from None
                self.until = max(self.until, time.monotonic() + retry_after_seconds(retry_after))
            except (OSError, HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
                why = failure_reason(error)
            else:
                entry = {"asked": body, "reply": asdict(reply)}
                write_atomically(self.answer_path(body), json.dumps(entry, ensure_ascii=False), shared=True)
                return reply
        raise InputError(f"{self.url} gave no answer in {self.attempts} attempts: {why}")

    def wait(self, pause: float) -> None:
        """Wait for `pause` seconds, and for as long as the endpoint asked for; not once all is to end."""
        self.stop_event.wait(pause)
        while (left := self.until - time.monotonic()) > 0 and not self.stop_event.wait(left):
            pass

    def pause_factor(self, body: dict[str, Any]) -> float:
        """From 1 to 1.5 by the hash of a request, so that those which failed together do not come back together."""
        return 1 + int(name_of(body)[:4], 16) / 0x20000

    def post_request(self, body: dict[str, Any]) -> Reply:
        """What one request is answered with. Raises what urllib does, or ValueError, KeyError, … for another shape."""
        url = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), self.headers, method="POST")  # noqa: S310 - checked in Endpoint
        with self.opener.open(request, timeout=self.seconds) as answer:
            response = json.loads(answer.read(LARGEST_ANSWER))
        choice = response["choices"][0]
        content = choice["message"]["content"]
        if content is None:  # filtered
            content = ""
        if not isinstance(content, str):
            raise ValueError("an answer without text")
        content = self.clean_reply(content)
        cut = choice.get("finish_reason") == "length"
        usage = response.get("usage") or {}
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int) and isinstance(completion, int) and min(prompt, completion) >= 0:
            return Reply(content, cut, prompt, completion)
        prompt_text = "".join(message["content"] for message in body["messages"])
        return Reply(content, cut, estimate_tokens(prompt_text), estimate_tokens(content), counted=False)
