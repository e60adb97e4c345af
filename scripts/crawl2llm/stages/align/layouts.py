"""How the rows of a file of `align.pairs.files` are read: preferences, labelled answers or prompts, whatever the names of their fields.

`preference`: LLaMA-Factory's ShareGPT layout (`conversations`, and `chosen` and `rejected` as a message each), TRL's columns
(https://huggingface.co/docs/trl/dataset_formats: `prompt`, `chosen`, `rejected`, as texts or as lists of messages). `labels`: `messages` or
`prompt` and `completion`, with `label`. `prompts`: `prompt` or `question`, perhaps `answer`.
"""

from __future__ import annotations

from typing import Any

from crawl2llm.training.pair_layouts import ROLES, Bad, Row, text
from crawl2llm.training.template import Template, special

KEY = "align.pairs.files"
PREFERENCE, LABELS, PROMPTS = "preference", "labels", "prompts"
DPO, KTO = "dpo", "kto"  # methods of align.train
# The layouts of the rows that a method takes; the others take all.
LEARNS_FROM = {DPO: (PREFERENCE,), KTO: (PREFERENCE, LABELS)}
PROMPT_NAMES = ("prompt", "question", "instruction")  # columns
LABEL = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
Messages = list[tuple[str, str]]  # (role, text)


def messages(value: Any) -> Messages:
    """A conversation as (user, assistant or system, text). Raises Bad for what is none."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise Bad("no_text")
    return [
        (ROLES.get(str(one.get("role", one.get("from"))).lower(), ""), text(one.get("content", one.get("value"))))
        for one in value
    ]


def asked(said: Messages, template: Template) -> tuple[str, str]:
    """(first question, question at the end behind what was said before) of a conversation. Raises Bad for another order of roles."""
    first = said[:1] if said[:1] and said[0][0] == "system" else []
    rest = said[len(first) :]
    if [role for role, _ in rest] != (["user", "assistant"] * len(rest))[: len(rest)] or len(rest) % 2 == 0:
        raise Bad("no_turns")
    turns = [(question, answer) for (_, question), (_, answer) in zip(rest[:-1:2], rest[1::2], strict=True)]
    return rest[0][1], template.conversation(first[0][1] if first else "", turns, rest[-1][1])


def answer(value: Any) -> tuple[Messages, str]:
    """(what was said before, the answer) of a text, of a message, or of a conversation that ends with the answer."""
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list):
        said = messages(value)
        if said[-1][0] != "assistant":
            raise Bad("no_turns")
        return said[:-1], said[-1][1]
    return [], text(value)


def question(row: Row, before: Messages, template: Template) -> tuple[str, str]:
    """As `asked`, of a row: of its prompt, or of what its answer's conversation says before the answer."""
    if "conversations" in row:
        return asked(messages(row["conversations"]), template)
    for name in PROMPT_NAMES:
        if name in row:
            value = row[name]
            return asked(messages(value) if isinstance(value, list) else [("user", text(value))], template)
    return asked(before, template)


def preference(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, `chosen`, `rejected`."""
    if "chosen" not in row or "rejected" not in row:
        raise Bad("no_text")
    (before, chosen), (other, rejected) = answer(row["chosen"]), answer(row["rejected"])
    if before and other and before != other:
        raise Bad("other_question")
    if chosen == rejected:
        raise Bad("same_answers")
    first, last = question(row, before, template)
    return first, {"question": last, "chosen": chosen, "rejected": rejected}


def labelled(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, `answer`, `label`."""
    label = LABEL.get(str(row.get("label")).lower())
    if label is None:
        raise Bad("no_label")
    said = row.get("messages", row.get("conversations", row.get("completion", row.get("answer"))))
    before, found = answer(said)
    own = {name: value for name, value in row.items() if name != "conversations"}  # whose end is the answer
    first, last = question(own, before, template)
    return first, {"question": last, "answer": found, "label": label}


def prompt(row: Row, template: Template) -> tuple[str, Row]:
    """First question, and `question`, and `answer` where the row has one: what a reward may compare with."""
    said = row.get("messages")
    first, last = question(row, messages(said) if said else [], template)
    answered = {} if row.get("answer") is None else {"answer": text(row["answer"])}
    return first, {"question": last, **answered}


READ = {PREFERENCE: preference, LABELS: labelled, PROMPTS: prompt}


def read(row: Row, layout: str, template: Template) -> tuple[str, Row]:
    """(first question of its conversation, row) of a file's row. Raises Bad, whose message is the reason, for one that is none."""
    try:
        first, found = READ[layout](row, template)
        given = _given(row)
        "".join(given).encode()
    except (RecursionError, UnicodeEncodeError):  # lists in lists without end, half of a surrogate pair
        raise Bad("broken_row") from None
    parts = [value for value in found.values() if isinstance(value, str)]
    if not all(parts):
        raise Bad("empty")
    earlier = {part for name, part in found.items() if name != "question" and isinstance(part, str)}
    # The question may have the end token behind earlier answers, which the template puts there.
    if special(*earlier) or special(*given):
        raise Bad("special_token")
    return first, found


def _given(value: Any) -> list[str]:
    """Every text in a row."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for one in inside for part in _given(one)]
