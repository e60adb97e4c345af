"""What a client may ask, as in OpenAI's API, and how it is refused.

https://platform.openai.com/docs/api-reference/chat and …/completions. What a model here does not have is refused by name, not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
COMMON = {"model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options"}
KEYS = {
    "chat.completions": COMMON | {"messages", "max_completion_tokens"},
    "completions": COMMON | {"prompt"},
}
IGNORED = {"user", "metadata", "store", "safety_identifier"}  # they say something of the caller
# Accepted with the value that changes nothing.
PLAIN: dict[str, Any] = {
    "n": 1, "best_of": 1, "echo": False, "logprobs": False, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "tools": [],
    "functions": [], "response_format": {"type": "text"}, "suffix": "", "parallel_tool_calls": True, "modalities": ["text"],
}  # fmt: skip
TOKENS = 256  # of an answer, where nothing is asked for
STOPS = 4


@dataclass
class Refused(Exception):
    """A request that is refused, with its HTTP status."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400
    type: str = "invalid_request_error"

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API has it."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class Asked:
    """A request, of a `chat` or of a completion. messages: roles and texts, of a chat; prompt: a text to go on with, of a completion."""

    chat: bool
    model: str
    messages: tuple[dict[str, str], ...]
    prompt: str
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    stream: bool
    usage: bool  # whether a stream says at its end how many tokens there were


def asked(kind: str, body: Any) -> Asked:
    """A request of `chat.completions` or `completions`. Raises Refused, which names the key, its value and what is allowed."""
    if not isinstance(body, dict):
        raise Refused("the body is not a JSON object")
    given = {key: value for key, value in body.items() if value is not None and key not in IGNORED}
    for key, value in given.items():
        if key in PLAIN and value != PLAIN[key]:
            raise Refused(f"{key} is {value!r}; this server has {PLAIN[key]!r} alone", key, "unsupported_value")
        if key not in PLAIN and key not in KEYS[kind]:
            raise Refused(
                f"{key!r} is not known; allowed are {', '.join(sorted(KEYS[kind]))}", key, "unknown_parameter"
            )
    options = given.get("stream_options", {})
    if not isinstance(options, dict) or options.keys() - {"include_usage"}:
        raise Refused(f"stream_options is {options!r}; it may hold include_usage", "stream_options")
    name = given.get("model")
    if not isinstance(name, str):
        raise Refused("model is missing: the name of a model; GET /v1/models lists them", "model")
    limit = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    chat = kind == "chat.completions"
    return Asked(
        chat=chat,
        model=name,
        messages=messages(given.get("messages")) if chat else (),
        prompt="" if chat else prompt(given.get("prompt")),
        max_tokens=int(number(given, limit, TOKENS, 1, 1_000_000, whole=True)),
        temperature=number(given, "temperature", 1.0, 0, 2),
        top_p=number(given, "top_p", 1.0, 0.001, 1),
        seed=int(number(given, "seed", 0, 0, 2**63 - 1, whole=True)) if "seed" in given else None,
        stop=stop(given.get("stop", [])),
        stream=flag(given, "stream"),
        usage=flag(options, "include_usage"),
    )


def number(given: dict[str, Any], key: str, default: float, low: float, high: float, *, whole: bool = False) -> float:
    """A number within its limits."""
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise Refused(
            f"{key} is {value!r}; it must be {'a whole' if whole else 'a'} number from {low:g} to {high:g}", key
        )
    return value


def flag(given: dict[str, Any], key: str) -> bool:
    """True or false."""
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise Refused(f"{key} is {value!r}; it must be true or false", key)
    return value


def stop(value: Any) -> tuple[str, ...]:
    """The texts before which an answer ends."""
    found = (value,) if isinstance(value, str) else value
    if (
        not isinstance(found, list | tuple)
        or len(found) > STOPS
        or not all(isinstance(one, str) and one for one in found)
    ):
        raise Refused(f"stop is {value!r}; it must be a text or a list of at most {STOPS}", "stop")
    return tuple(found)


def prompt(value: Any) -> str:
    """The text to go on with."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise Refused(f"prompt is {value!r}; it must be one text", "prompt")
    return written(value, "prompt")


def written(value: str, where: str) -> str:
    """A text that UTF-8 can write: JSON's escapes can spell half a character (a lone surrogate)."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{where} holds half a character, {value[error.start]!r}", where) from error
    return value


def messages(value: Any) -> tuple[dict[str, str], ...]:
    """The conversation, with contents as texts: an optional system message, and turns of which the last is the user's."""
    if not isinstance(value, list) or not value:
        raise Refused("messages is missing: a list of {role, content}", "messages")
    found = [_message(number, one) for number, one in enumerate(value)]
    first = found[0]["role"] == "system"
    if [one["role"] for one in found[first:]] != (["user", "assistant"] * len(found))[: len(found) - first] or found[
        -1
    ]["role"] != "user":
        said = ", ".join(one["role"] for one in found)
        raise Refused(
            f"messages are by {said}; they must be user, assistant, user, …, user, after one system message or none",
            "messages",
        )
    return tuple(found)


def _message(number: int, one: Any) -> dict[str, str]:
    where = f"messages[{number}]"
    if not isinstance(one, dict) or not isinstance(one.get("role"), str) or one["role"] not in ROLES:
        raise Refused(f"{where}.role must be one of {', '.join(ROLES)}", where)
    content = one.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise Refused(f"{where}.content must be a text, or parts of type text", where)
    return {"role": ROLES[one["role"]], "content": written(content, f"{where}.content")}
