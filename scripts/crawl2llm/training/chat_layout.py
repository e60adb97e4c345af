"""How a published model is asked: by its own chat template, in place of `finetune.pairs.template`.

What finetune.pairs wrote stays as it is. A conversation that it laid out by its own template is taken apart again, and each turn laid out
as the model knows it. Templates are Jinja in the sandbox of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.template import Template

QUESTION, ANSWER = "3f2aq", "3f2aa"  # stand for a question and an answer: no template has them
DAY = datetime(2024, 7, 26)  # of every conversation: that of Llama 3.2's template where it is told none


@dataclass(frozen=True)
class ChatLayout(Template):
    """A template whose prompts and answers are those of a tokenizer's own. delimiter: what stands between the two."""

    origin: Template = field(kw_only=True)  # by which the pairs were laid out
    tokenizer: Any = field(kw_only=True, compare=False)

    def prompt(self, question: str) -> str:
        """What the model is given: the turns so far, and the beginning of its own."""
        exchanges, last = self.exchanges_of(question)
        messages = []
        mark = self.origin.before.partition("{question}")[2] + self.origin.delimiter
        for exchange in exchanges:
            earlier = self.origin.question_of(exchange)
            messages += [user_message(earlier), {"role": "assistant", "content": exchange[len(earlier) + len(mark) :]}]
        return render_messages(self.tokenizer, [*messages, user_message(last)], begin_answer=True)

    def question_of(self, exchange: str) -> str:
        """See Template."""
        return self.origin.question_of(exchange)

    def chat_template(self) -> str:
        """That of the model."""
        return str(self.tokenizer.chat_template)


def user_message(text: str) -> dict[str, str]:
    """A turn of a person."""
    return {"role": "user", "content": text}


def render_messages(tokenizer: Any, messages: list[dict[str, str]], begin_answer: bool) -> str:
    """Messages as text, without the token of a beginning that the tokenizer puts before every text itself.

    Raises InputError for a template that cannot lay out a question and its answer.
    """
    try:
        with same_day():
            text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=begin_answer))
    except Exception as error:  # whatever a template of somebody else raises
        raise InputError(f"the model's chat template cannot lay out a conversation: {error}") from error
    return without_beginning(tokenizer, text)


@contextmanager
def same_day() -> Iterator[None]:
    """Let it be DAY for templates that write the date (`strftime_now`): a result is a function of its input, on whatever day it is made,
    and a training that resumes after midnight goes on with the same texts.
    """
    from transformers.utils import chat_template_utils

    class Calendar(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return DAY

    clock = chat_template_utils.datetime
    chat_template_utils.datetime = Calendar  # type: ignore[misc]
    try:
        yield
    finally:
        chat_template_utils.datetime = clock  # type: ignore[misc]


def without_beginning(tokenizer: Any, text: str) -> str:
    """A text without the token of a beginning at its head, if the tokenizer puts that before every text itself."""
    first = tokenizer.bos_token
    if first and text.startswith(first) and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]:
        return text.removeprefix(first)
    return text


def take_end_of_turn(tokenizer: Any) -> None:
    """Let the end token of a tokenizer be the special token with which its chat template ends an answer, if there is one: some models
    are published with that of their pre-training, which no answer ends with.
    """
    if not tokenizer.chat_template:
        return
    try:
        turns = [user_message(QUESTION), {"role": "assistant", "content": ANSWER}]
        tail = render_messages(tokenizer, turns, begin_answer=False).partition(ANSWER)[2].lstrip()
    except InputError:  # which is said where somebody asks the model
        return
    names = [
        str(token) for token in tokenizer.added_tokens_decoder.values() if token.special and tail.startswith(str(token))
    ]
    if names and max(names, key=len) != tokenizer.eos_token:
        tokenizer.eos_token = max(names, key=len)


def layout_for(template: Template, tokenizer: Any) -> Template:
    """How the model of a tokenizer is asked: by `template`, if it has no chat template or this one's, as every model of the run itself."""
    own_template = getattr(tokenizer, "chat_template", None)  # a tokenizer of `tokenizers` has none
    if not own_template or own_template == template.chat_template():
        return template
    question = [user_message(QUESTION)]
    prompt = render_messages(tokenizer, question, begin_answer=True)
    whole = render_messages(tokenizer, [*question, {"role": "assistant", "content": ANSWER}], begin_answer=False)
    if QUESTION not in prompt or ANSWER not in whole:
        raise InputError("the model's chat template leaves the question or the answer out")
    between = whole[len(prompt) : whole.index(ANSWER)] if whole.startswith(prompt) else ""
    return ChatLayout(template.text, template.before, between, template.cut, origin=template, tokenizer=tokenizer)
