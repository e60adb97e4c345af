"""A conversation as token ids, laid out by a model's template, in which a special token that a message spells is text.

Who asks cannot end a turn and begin another one's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Messages = list[dict[str, str]]


def spells_special_token(messages: Messages, special: Mapping[str, int]) -> bool:
    """Whether a message spells a special token."""
    return any(name in message["content"] for message in messages for name in special)


def conversation_ids(
    messages: Messages,
    special: Mapping[str, int],
    lay_out: Callable[[Messages], str],
    encode: Callable[[str], list[int]],
) -> list[int]:
    """The token ids of a conversation.

    special: the names of special tokens, with their ids; lay_out: the template's text; encode: the ids of a text in which special tokens
    are text, as in tokenize.encode.
    """
    if not special:
        return encode(lay_out(messages))
    conversation = "".join(message["content"] for message in messages)
    # Characters for private use, which the conversation does not hold, stand for its special tokens until the template's are known.
    free = (mark for mark in map(chr, range(0xF0000, 0xFFFFE)) if mark not in conversation)
    marks = {name: next(free) for name in sorted(special, key=len, reverse=True)}
    text = lay_out([message | {"content": replace_all(message["content"], marks)} for message in messages])
    names = {mark: name for name, mark in marks.items()}
    token_ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, marks))})", text):
        token_ids += [special[part]] if part in special else encode(replace_all(part, names))
    return token_ids


def replace_all(text: str, replacements: Mapping[str, str]) -> str:
    """A text with each key of `replacements` as its value."""
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text
