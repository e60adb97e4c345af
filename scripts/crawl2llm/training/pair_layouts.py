"""How the rows of a file of `finetune.pairs.files` are read: as conversations, whatever the names of their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.pair_patterns import compile_patterns
from crawl2llm.training.pair_settings import PairsFile, PairsPattern

KEY = "finetune.pairs.files"
COLUMNS = "columns"  # the layout of an entry that names none
ROLES = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatgpt"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
Row = dict[str, Any]
Conversation = tuple[str, list[tuple[str, str]]]  # (system message or "", turns of question and answer)


class RowError(ValueError):
    """A row that is no pair; its message is the reason under which it is counted."""


def text_of(value: Any) -> str:
    """A value as text: parts of a message (`[{"type": "text", "text": …}]`) are joined. Raises RowError for anything else."""
    if isinstance(value, list):
        return "\n".join(
            text_of(part.get("text", part.get("value"))) if isinstance(part, dict) else text_of(part) for part in value
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError("no_text")
    return str(value).strip()


def alpaca_conversation(row: Row) -> Conversation:
    """`instruction`, perhaps `input`, and `output`."""
    question_parts = [text_of(row.get(name) or "") for name in ("instruction", "input")]
    return text_of(row.get("system") or ""), [
        ("\n".join(filter(None, question_parts)), text_of(row.get("output") or ""))
    ]


def chat_conversation(row: Row) -> Conversation:
    """`messages` or `conversations`: turns of a person and an assistant, perhaps after a system message. Else RowError."""
    messages = row.get("messages", row.get("conversations"))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RowError("no_text")
    roles = [ROLES.get(str(message.get("role", message.get("from"))).lower(), "") for message in messages]
    words = [text_of(message.get("content", message.get("value"))) for message in messages]
    first = "system" in roles[:1]
    if roles[-1:] == ["user"]:  # which nobody answers
        roles, words = roles[:-1], words[:-1]
    if roles[first:] != ["user", "assistant"] * ((len(roles) - first) // 2) or not roles[first:]:
        raise RowError("no_turns")
    return words[0] if first else "", list(zip(words[first::2], words[first + 1 :: 2], strict=True))


def column_layout(question: str, answer: str, labels: dict[str, str] | None = None) -> Callable[[Row], Conversation]:
    """A layout by templates such as `{question}`, which hold names of columns. labels: the word for each value of the answer."""

    def fill_template(template: str, row: Row) -> str:
        # One pass: what a column holds is no template.
        return re.sub(r"\{([^{}]+)\}", lambda match: text_of(row[match[1]]), template).strip()

    def read_row(row: Row) -> Conversation:
        try:
            question_text, answer_text = fill_template(question, row), fill_template(answer, row)
        except KeyError:
            raise RowError("no_text") from None
        if labels and answer_text not in labels:
            raise RowError("unknown_label")
        return "", [(question_text, labels[answer_text] if labels else answer_text)]

    return read_row


def row_reader(number: int, entry: PairsFile) -> Callable[[Row], Conversation]:
    """How an entry's rows are read. Raises InputError for keys that do not go together."""
    name = entry.layout or COLUMNS
    if name != COLUMNS:
        if misplaced := sorted({"question", "answer", "labels"} & entry.model_fields_set):
            raise InputError(
                f"{KEY}[{number}].{misplaced[0]} goes with layout: columns; {KEY}[{number}].layout is {name!r}"
            )
        return {"alpaca": alpaca_conversation, "chat": chat_conversation}[name]
    question, answer = entry.question or "{question}", entry.answer or "{answer}"
    for key, template in (("question", question), ("answer", answer)):
        if not re.search(r"\{[^{}]+\}", template):
            raise InputError(
                f"{KEY}[{number}].{key} is {template!r}; it must hold the name of a column, such as {{{key}}}"
            )
    words = entry.labels or {}
    if words and len(set(words.values())) < 2:
        raise InputError(f"{KEY}[{number}].labels is {words!r}; it must have two different words or more")
    return column_layout(question, answer, words)


def check_pair_settings(patterns: Sequence[PairsPattern], files: Sequence[PairsFile]) -> None:
    """InputError for settings of finetune.pairs by which no pair can be found: before a run, if no file is read yet."""
    if not compile_patterns(patterns) and not files:
        raise InputError(f"finetune.pairs.patterns and {KEY} are both empty; give one of them")
    seen: dict[str, str] = {}
    for number, entry in enumerate(files):
        row_reader(number, entry)
        name = Path(entry.path).name
        if seen.setdefault(name, entry.path) != entry.path:
            raise InputError(
                f"{KEY}[{number}].path is {entry.path!r}, and {seen[name]!r} has the same name, by which pairs are "
                "told apart: rename one"
            )
