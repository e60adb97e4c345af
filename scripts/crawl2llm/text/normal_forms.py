"""Unicode's normal forms in time that is linear in the text.

unicodedata.normalize sorts the marks on a letter by insertion: on one letter with a million of them it takes an hour.
"""

from __future__ import annotations

import re
import sys
from typing import Literal
from unicodedata import combining, normalize

MANY = 32  # marks on one letter; Unicode's Stream-Safe Text Format has 30 at most (Standard Annex 15, section 13)


def _mark_run_pattern(last: int, also: str = "") -> re.Pattern[str]:
    """Finds runs of the marks up to a code point that normalisation sorts. also: what else may be in them."""
    mark = f"[{''.join(char for char in map(chr, range(0x300, last + 1)) if combining(char))}{also}]"
    return re.compile(f"{mark}{mark}{{{MANY - 1},}}")  # to look for the first one alone is faster


RUN = _mark_run_pattern(sys.maxunicode)
# Beyond the first plane one range, since each costs time at every character.
POSSIBLE_RUN = _mark_run_pattern(0xFFFF, also=f"\U00010000-{chr(sys.maxunicode)}")


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """The same as unicodedata.normalize."""
    if not text.isascii():
        text = POSSIBLE_RUN.sub(lambda run: RUN.sub(_in_order, run.group()), text)
    return normalize(form, text)


def _in_order(run: re.Match[str]) -> str:
    """A run of marks in the order of Unicode's canonical ordering algorithm (section 3.11), which sorts no further what is sorted."""
    return "".join(sorted("".join(normalize("NFD", mark) for mark in run.group()), key=combining))
