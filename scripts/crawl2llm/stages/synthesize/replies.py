"""Which part of a reply is a text, and why a reply has none: empty, cut, a refusal, a copy of what was given, another language."""

from __future__ import annotations

import re

import numpy as np

from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.stages.ingest.warc import tidy
from crawl2llm.stages.synthesize.endpoint import Reply
from crawl2llm.stages.synthesize.prompts import TextRequest
from crawl2llm.stages.synthesize.settings import TextSettings
from crawl2llm.text.shingles import shingle_set

HEAD = 300  # characters of a reply in which a refusal is looked for: further down a text may speak of one
WORDS = 5  # of a shingle, as in dedup.signature
LEAST_PROBABILITY = 0.65  # least probability of both languages, for them to be compared (language.select.threshold)
THINK_BEGIN, THINK_END = "<think>", "</think>"  # around what models think aloud
# `Sure! Here is the text in simple words:` on a line of its own.
PREAMBLE = re.compile(
    r"(?<!\s)\s*+(?:sure|certainly|of course|okay|ok|absolutely|here(?:'s|’s| is| are))\b[^\n]{0,200}:[*_ ]*+\n",
    re.IGNORECASE,
)
REASONS = ("rejected", "empty", "cut", "refusal", "copy_of_seed", "copy_of_prompt", "language")


def without_thoughts(answer: str) -> str:
    """A reply without the first thoughts that it holds, and the white space before them."""
    before, _, rest = answer.partition(THINK_BEGIN)
    _, ended, after = rest.partition(THINK_END)
    return before.rstrip() + after if ended else answer


class Judge:
    """Says of each reply whether it is a text."""

    def __init__(self, settings: TextSettings) -> None:
        self.refusals = [re.compile(pattern, re.IGNORECASE) for pattern in settings.refusals]
        self.most = settings.copy_max
        key = "synthesize: language"  # of both of its steps
        self.identify = Identifier(model_path(settings.language, key), key) if settings.language else None

    def __call__(self, request: TextRequest, reply: Reply) -> tuple[str, str]:
        """(text, "") of a reply, or ("", why it is none): one of REASONS."""
        if reply.refused:
            return "", "rejected"
        text = tidy(PREAMBLE.sub("", without_thoughts(reply.answer), count=1))
        if reply.cut:
            return "", "cut"
        if not text:
            return "", "empty"
        if any(pattern.search(text[:HEAD]) for pattern in self.refusals):
            return "", "refusal"
        if why := self.copy_reason(text, request):
            return "", why
        return ("", "language") if self.is_other_language(text, request.part) else (text, "")

    def copy_reason(self, text: str, request: TextRequest) -> str:
        """`copy_of_seed` or `copy_of_prompt` where at least `copy_max` of the text's shingles are there; "" elsewhere."""
        shingles = shingle_set(text, WORDS)
        for source, why in ((request.part, "copy_of_seed"), (request.prompt, "copy_of_prompt")):
            if len(shingles) and np.isin(shingles, shingle_set(source, WORDS)).mean() >= self.most:
                return why
        return ""

    def is_other_language(self, text: str, part: str) -> bool:
        """Whether the text is in another language than what it was made from, where both are certain."""
        if self.identify is None:
            return False
        (language_of_part, probability_of_part), (language, probability) = self.identify(part), self.identify(text)
        return language_of_part != language and min(probability_of_part, probability) >= LEAST_PROBABILITY
