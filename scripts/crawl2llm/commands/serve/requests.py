"""What a client may ask, as in OpenAI's API, and how it is refused.

https://platform.openai.com/docs/api-reference/chat and …/completions. What a model here does not have is refused by name, not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
COMMON_KEYS = {"model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options"}
KEYS = {
    "chat.completions": COMMON_KEYS | {"messages", "max_completion_tokens"},
    "completions": COMMON_KEYS | {"prompt"},
}
IGNORED_KEYS = {"user", "metadata", "store", "safety_identifier"}  # they say something of the caller
# Accepted with the value that changes nothing.
NEUTRAL_VALUES: dict[str, Any] = {
    "n": 1, "best_of": 1, "echo": False, "logprobs": False, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "tools": [],
    "functions": [], "response_format": {"type": "text"}, "suffix": "", "parallel_tool_calls": True, "modalities": ["text"],
}  # fmt: skip
DEFAULT_TOKENS = 256  # of an answer, where nothing is asked for
MOST_STOPS = 4


@dataclass
class RefusedRequest(Exception):
    """A request that is refused, with its HTTP status."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400
    type: str = "invalid_request_error"

    def error_body(self) -> dict[str, Any]:
        """The error as OpenAI's API has it."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class ApiRequest:
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


def parse_request(kind: str, body: Any) -> ApiRequest:
    """A request of `chat.completions` or `completions`. Raises Refused, which names the key, its value and what is allowed."""
    if not isinstance(body, dict):
        raise RefusedRequest("the body is not a JSON object")
    fields = {key: value for key, value in body.items() if value is not None and key not in IGNORED_KEYS}
    for key, value in fields.items():
        if key in NEUTRAL_VALUES and value != NEUTRAL_VALUES[key]:
            raise RefusedRequest(
                f"{key} is {value!r}; this server has {NEUTRAL_VALUES[key]!r} alone", key, "unsupported_value"
            )
        if key not in NEUTRAL_VALUES and key not in KEYS[kind]:
            raise RefusedRequest(
                f"{key!r} is not known; allowed are {', '.join(sorted(KEYS[kind]))}", key, "unknown_parameter"
            )
    options = fields.get("stream_options", {})
    if not isinstance(options, dict) or options.keys() - {"include_usage"}:
        raise RefusedRequest(f"stream_options is {options!r}; it may hold include_usage", "stream_options")
    name = fields.get("model")
    if not isinstance(name, str):
        raise RefusedRequest("model is missing: the name of a model; GET /v1/models lists them", "model")
    limit = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    chat = kind == "chat.completions"
    return ApiRequest(
        chat=chat,
        model=name,
        messages=parse_messages(fields.get("messages")) if chat else (),
        prompt="" if chat else parse_prompt(fields.get("prompt")),
        max_tokens=int(parse_number(fields, limit, DEFAULT_TOKENS, 1, 1_000_000, whole=True)),
        temperature=parse_number(fields, "temperature", 1.0, 0, 2),
        top_p=parse_number(fields, "top_p", 1.0, 0.001, 1),
        seed=int(parse_number(fields, "seed", 0, 0, 2**63 - 1, whole=True)) if "seed" in fields else None,
        stop=parse_stop(fields.get("stop", [])),
        stream=parse_flag(fields, "stream"),
        usage=parse_flag(options, "include_usage"),
    )


def parse_number(
    fields: dict[str, Any], key: str, default: float, low: float, high: float, *, whole: bool = False
) -> float:
    """A number within its limits."""
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise RefusedRequest(
            f"{key} is {value!r}; it must be {'a whole' if whole else 'a'} number from {low:g} to {high:g}", key
        )
    return value


def parse_flag(fields: dict[str, Any], key: str) -> bool:
    """True or false."""
    value = fields.get(key, False)
    if not isinstance(value, bool):
        raise RefusedRequest(f"{key} is {value!r}; it must be true or false", key)
    return value


def parse_stop(value: Any) -> tuple[str, ...]:
    """The texts before which an answer ends."""
    texts = (value,) if isinstance(value, str) else value
    if (
        not isinstance(texts, list | tuple)
        or len(texts) > MOST_STOPS
        or not all(isinstance(text, str) and text for text in texts)
    ):
        raise RefusedRequest(f"stop is {value!r}; it must be a text or a list of at most {MOST_STOPS}", "stop")
    return tuple(texts)


def parse_prompt(value: Any) -> str:
    """The text to go on with."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise RefusedRequest(f"prompt is {value!r}; it must be one text", "prompt")
    return encodable_text(value, "prompt")


def encodable_text(value: str, where: str) -> str:
    """A text that UTF-8 can write: JSON's escapes can spell half a character (a lone surrogate)."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RefusedRequest(f"{where} holds half a character, {value[error.start]!r}", where) from error
    return value


def parse_messages(value: Any) -> tuple[dict[str, str], ...]:
    """The conversation, with contents as texts: an optional system message, and turns of which the last is the user's."""
    if not isinstance(value, list) or not value:
        raise RefusedRequest("messages is missing: a list of {role, content}", "messages")
    turns = [_parse_message(number, message) for number, message in enumerate(value)]
    roles = [turn["role"] for turn in turns]
    dialogue = roles[1:] if roles[0] == "system" else roles
    expected = [("user", "assistant")[number % 2] for number in range(len(dialogue))]
    if dialogue != expected or roles[-1] != "user":
        raise RefusedRequest(
            f"messages are by {', '.join(roles)}; they must be user, assistant, user, …, user, after one system message or none",
            "messages",
        )
    return tuple(turns)


def _parse_message(number: int, message: Any) -> dict[str, str]:
    where = f"messages[{number}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or message["role"] not in ROLES:
        raise RefusedRequest(f"{where}.role must be one of {', '.join(ROLES)}", where)
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise RefusedRequest(f"{where}.content must be a text, or parts of type text", where)
    return {"role": ROLES[message["role"]], "content": encodable_text(content, f"{where}.content")}
