"""How the rows of a file of `align.pairs.files` are read: preferences, labelled answers or prompts, whatever the names of their fields.

`preference`: LLaMA-Factory's ShareGPT layout (`conversations`, and `chosen` and `rejected` as a message each), TRL's columns
(https://huggingface.co/docs/trl/dataset_formats: `prompt`, `chosen`, `rejected`, as texts or as lists of messages). `labels`: `messages` or
`prompt` and `completion`, with `label`. `prompts`: `prompt` or `question`, perhaps `answer`.
"""

from __future__ import annotations

from typing import Any

from crawl2llm.training.pair_layouts import ROLES, Row, RowError, text_of
from crawl2llm.training.template import Template, has_special_token

KEY = "align.pairs.files"
PREFERENCE, LABELS, PROMPTS = "preference", "labels", "prompts"
DPO, KTO = "dpo", "kto"  # methods of align.train
# The layouts of the rows that a method takes; the others take all.
LEARNS_FROM = {DPO: (PREFERENCE,), KTO: (PREFERENCE, LABELS)}
PROMPT_NAMES = ("prompt", "question", "instruction")  # columns
LABEL = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
Messages = list[tuple[str, str]]  # (role, text)


def parse_messages(value: Any) -> Messages:
    """A conversation as (user, assistant or system, text). Raises RowError for what is none."""
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        raise RowError("no_text")
    return [
        (
            ROLES.get(str(message.get("role", message.get("from"))).lower(), ""),
            text_of(message.get("content", message.get("value"))),
        )
        for message in value
    ]


def conversation_questions(conversation: Messages, template: Template) -> tuple[str, str]:
    """(first question, question at the end behind what was said before) of a conversation. Raises RowError for another order of roles."""
    first = conversation[:1] if conversation[:1] and conversation[0][0] == "system" else []
    rest = conversation[len(first) :]
    if [role for role, _ in rest] != (["user", "assistant"] * len(rest))[: len(rest)] or len(rest) % 2 == 0:
        raise RowError("no_turns")
    turns = [(question, answer) for (_, question), (_, answer) in zip(rest[:-1:2], rest[1::2], strict=True)]
    return rest[0][1], template.conversation(first[0][1] if first else "", turns, rest[-1][1])


def parse_answer(value: Any) -> tuple[Messages, str]:
    """(what was said before, the answer) of a text, of a message, or of a conversation that ends with the answer."""
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list):
        conversation = parse_messages(value)
        if conversation[-1][0] != "assistant":
            raise RowError("no_turns")
        return conversation[:-1], conversation[-1][1]
    return [], text_of(value)


def row_questions(row: Row, before: Messages, template: Template) -> tuple[str, str]:
    """As `conversation_questions`, of a row: of its prompt, or of what its answer's conversation says before the answer."""
    if "conversations" in row:
        return conversation_questions(parse_messages(row["conversations"]), template)
    for name in PROMPT_NAMES:
        if name in row:
            value = row[name]
            return conversation_questions(
                parse_messages(value) if isinstance(value, list) else [("user", text_of(value))], template
            )
    return conversation_questions(before, template)


def parse_preference(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, `chosen`, `rejected`."""
    if "chosen" not in row or "rejected" not in row:
        raise RowError("no_text")
    (before_chosen, chosen), (before_rejected, rejected) = parse_answer(row["chosen"]), parse_answer(row["rejected"])
    if before_chosen and before_rejected and before_chosen != before_rejected:
        raise RowError("other_question")
    if chosen == rejected:
        raise RowError("same_answers")
    first, last = row_questions(row, before_chosen, template)
    return first, {"question": last, "chosen": chosen, "rejected": rejected}


def parse_labelled(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, `answer`, `label`."""
    label = LABEL.get(str(row.get("label")).lower())
    if label is None:
        raise RowError("no_label")
    content = row.get("messages", row.get("conversations", row.get("completion", row.get("answer"))))
    before, answer_text = parse_answer(content)
    rest = {name: value for name, value in row.items() if name != "conversations"}  # whose end is the answer
    first, last = row_questions(rest, before, template)
    return first, {"question": last, "answer": answer_text, "label": label}


def parse_prompt(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, and `answer` where the row has one: what a reward may compare with."""
    conversation = row.get("messages")
    first, last = row_questions(row, parse_messages(conversation) if conversation else [], template)
    answered = {} if row.get("answer") is None else {"answer": text_of(row["answer"])}
    return first, {"question": last, **answered}


PARSERS = {PREFERENCE: parse_preference, LABELS: parse_labelled, PROMPTS: parse_prompt}


def parse_row(row: Row, layout: str, template: Template) -> tuple[str, Row]:
    """(first question of its conversation, row) of a file's row. Raises RowError, whose message is the reason, for one that is none."""
    try:
        first, parsed = PARSERS[layout](row, template)
        texts = _texts_in(row)
        "".join(texts).encode()
    except (RecursionError, UnicodeEncodeError):  # lists in lists without end, half of a surrogate pair
        raise RowError("broken_row") from None
    parts = [value for value in parsed.values() if isinstance(value, str)]
    if not all(parts):
        raise RowError("empty")
    earlier = {part for name, part in parsed.items() if name != "question" and isinstance(part, str)}
    # The question may have the end token behind earlier answers, which the template puts there.
    if has_special_token(*earlier) or has_special_token(*texts):
        raise RowError("special_token")
    return first, parsed


def _texts_in(value: Any) -> list[str]:
    """Every text in a row."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [part for item in value for part in _texts_in(item)] if isinstance(value, list) else []
