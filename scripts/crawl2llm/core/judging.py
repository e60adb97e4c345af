"""What a judge behind an endpoint is asked of an answer, and the score that its reply holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crawl2llm.core.errors import InputError

FIELD = re.compile(r"\{(question|answer|reference)\}")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
OUT_OF = re.compile(r"(\d)\W*(?:/|\bout of\b)\s*\d+(?:\.\d+)?(?!\w)", re.IGNORECASE)


def scale_ends(scale: Sequence[float], where: str) -> tuple[float, float]:
    """The lowest and the highest score. Raises InputError, naming the section `where`, if they are not in this order."""
    low, high = map(float, scale)
    if low >= high:
        raise InputError(f"{where}.scale is {list(scale)}; its second number must be the greater one")
    return low, high


def fill_prompt(prompt: str, question: str, answer: str, reference: str) -> str:
    """The prompt with an answer in it; what the answer itself spells is not filled in."""
    values = {"question": question, "answer": answer, "reference": reference}
    return FIELD.sub(lambda match: str(values[match[1]]), prompt)


def score_request(
    model: str | None, prompt: str, max_tokens: int, question: str, answer: str, reference: str
) -> dict[str, Any]:
    """The body of a chat completion that asks for a score. prompt: see `fill_prompt`. max_tokens: of the reply."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": fill_prompt(prompt, question, answer, reference)}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }


def parse_score(reply: str | None, low: float, high: float) -> float | None:
    """The last number of a reply, except what another is out of ("7/10", "7 out of 10"); None without one or a reply, or off the scale."""
    numbers = [float(number) for number in NUMBER.findall(OUT_OF.sub(r"\1", reply or ""))]
    return numbers[-1] if numbers and low <= numbers[-1] <= high else None
