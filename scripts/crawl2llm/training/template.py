"""How a question and its answer are laid out as text, the same in fine-tuning and in evaluation.

The template is a key of `finetune.pairs`, which hands it on in its manifest's summary: whoever reads the pairs asks
them the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.special_tokens import EOS, SPECIAL

CHAT = "chat_template.jinja"  # as transformers calls it beside a tokenizer
LEFT, MIDDLE, RIGHT = "left", "middle", "right"  # the part of a question that goes if a text is too long


@dataclass(frozen=True)
class Template:
    """`text` is cut before the white space that leads to `{answer}`: byte-level BPE joins a space to the word after it."""

    text: str
    before: str  # up to that white space, with {question} in it
    delimiter: str  # the white space
    cut: str = MIDDLE  # the part of a question that goes if a text is too long (training/question_cuts.py)

    @classmethod
    def parse(cls, text: str, cut: str = MIDDLE) -> Template:
        """Cut a template such as `Question: {question}\\nAnswer: {answer}`; InputError says what it lacks."""
        head, sign, tail = text.partition("{answer}")
        if not sign or tail or head.count("{question}") != 1:
            raise InputError(
                f"finetune.pairs.template is {text!r}; it must hold {{question}} once and end with {{answer}}"
            )
        before = head.rstrip()
        return cls(text, before, head[len(before) :], cut)

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Template:
        """The template of settings of finetune.pairs. Raises InputError as `parse`."""
        return cls.parse(settings["template"], settings["question_cut"])

    def summary(self) -> dict[str, str]:
        """What a manifest's summary says of the template; `of_settings` reads it."""
        return {"template": self.text, "question_cut": self.cut}

    def prompt(self, question: str) -> str:
        """What the model is given; ends without white space."""
        return self.before.replace("{question}", question)

    def completion(self, answer: str) -> str:
        """What the model should continue with."""
        return self.delimiter + answer

    def conversation(self, system: str, turns: list[tuple[str, str]], question: str) -> str:
        """A question as the last of a conversation, to be laid out as any other: behind what was asked and answered before it.

        Earlier turns are laid out by this template, each answer with the end token after it, as the model wrote it. The
        system message is the first question's first paragraph.
        """
        _, _, tail = self.before.partition("{question}")
        earlier = [f"{turn_question}{tail}{self.completion(answer)}" for turn_question, answer in turns]
        return (f"{system}\n\n" if system else "") + self.with_exchanges(earlier, question)

    @property
    def _separator(self) -> str:
        """The text between an answer and the question after it. No question or answer holds it: rows that spell EOS are dropped."""
        return f"{EOS}\n{self.before.partition('{question}')[0]}"

    def with_exchanges(self, exchanges: Sequence[str], question: str) -> str:
        """A question behind earlier ones with their answers, as `exchanges_of` gives them."""
        return self._separator.join([*exchanges, question])

    def exchanges_of(self, conversation: str) -> tuple[list[str], str]:
        """(earlier questions, each with its answer; the last question) of what `conversation` laid out."""
        *exchanges, question = conversation.split(self._separator)
        return exchanges, question

    def question_of(self, exchange: str) -> str:
        """The question of an exchange, or the beginning of one that spells the text before an answer.

        "" if nothing stands between a question and its answer: nobody can tell then where the answer begins.
        """
        mark = self.before.partition("{question}")[2] + self.delimiter
        return exchange.partition(mark)[0] if mark else ""

    def chat_template(self) -> str:
        """The same as a chat template in Jinja, for programs that are given messages (transformers, vLLM, llama.cpp)."""
        head, _, tail = self.before.partition("{question}")
        return (
            "{% set ns = namespace(system='') %}{% for message in messages %}"
            "{% if message['role'] == 'system' %}{% set ns.system = message['content'] + '\\n\\n' %}"
            "{% elif message['role'] == 'user' %}"
            f"{{{{ {head!r} + ns.system + message['content'] + {tail!r} }}}}{{% set ns.system = '' %}}"
            f"{{% else %}}{{{{ {self.delimiter!r} + message['content'] + {EOS + chr(10)!r} }}}}{{% endif %}}{{% endfor %}}"
        )


def has_special_token(*parts: str) -> bool:
    """Whether a text spells a special token: fine-tuning, which recognises those in what it tokenizes, would take it for one."""
    return any(name in part for name in SPECIAL for part in parts)


def has_enough_pairs(manifest: Path, name: str) -> bool:
    """Whether finetune.pairs found enough pairs (`train` or `heldout`) to work with. Raises InputError as `read_pairs`."""
    return bool(_read_manifest(manifest).summary["enough"][name])


def _read_manifest(manifest: Path) -> Manifest:
    return Manifest.read_of_step("finetune.pairs", manifest, "--pairs")


def read_pairs(manifest: Path, name: str) -> tuple[list[dict[str, Any]], Template]:
    """The rows of `<name>.jsonl` of a finetune.pairs manifest, and the template to ask them with.

    Raises InputError for a manifest of another step, ManifestError for a damaged one.
    """
    pairs_manifest = _read_manifest(manifest)
    return pairs_manifest.rows(f"{name}.jsonl"), Template.of_settings(pairs_manifest.summary)
