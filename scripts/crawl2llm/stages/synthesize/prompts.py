"""What is asked of a model: a seed, one of its passages, and the prompt that is made of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from crawl2llm.core.manifest import canonical_json
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.stages.synthesize.settings import TextSettings

FIELD = re.compile(r"\{(text|audience|format)\}")


@dataclass(frozen=True)
class Seed:
    """A document that texts are made from. origin: where it comes from (text/group_split.py)."""

    id: str
    text: str
    url: str
    origin: str


@dataclass(frozen=True)
class TextRequest:
    """One text that is asked for. part: what of the seed the model sees. number: of the text among those of the seed, from 0."""

    seed: Seed
    number: int
    style: str
    part: str
    prompt: str

    def body(self, settings: TextSettings) -> dict[str, Any]:
        """The chat completion that asks for it."""
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            **settings.request,
        }
        return {name: value for name, value in body.items() if value is not None}


def name_of(body: dict[str, Any]) -> str:
    """The hash of a request, which is also what its reply is called in the cache: sha256 of all that is asked, in hex."""
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def fill_prompt(prompt: str, **values: str) -> str:
    """The prompt with its fields filled in; what a seed itself spells is not filled in."""
    return FIELD.sub(lambda match: values.get(match[1], match[0]), prompt)


def choose_by_hash(names: list[str], number: int, seed: int, key: str) -> list[str]:
    """`number` of the names (all, if there are fewer) by the hash of (seed, key, name), in the order of that hash."""
    return sorted(names, key=lambda name: (uniform_hash(seed, f"{key}\x1f{name}", "style"), name))[:number]
