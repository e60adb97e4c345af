"""Adversarial strings, and whether the CPU time of a function grows faster than the string that it is given."""

from __future__ import annotations

import gc
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

Make = Callable[[int], str]

LENGTH = 1_500  # characters of the shortest string
LIMIT = 1.0  # seconds of CPU time for a call: what is exponential ends here
QUICK = 0.008  # seconds in which the longest string is no trouble: quadratic work on so many characters takes longer
BOUND = 7.0  # four times the length takes at most so many times as long: linear work takes 4, quadratic 16
TICK = 0.004  # seconds of the coarsest clock of CPU time
ATTEMPTS = 3  # another process may have taken the machine's caches


def _repeated(part: str) -> Make:
    return lambda length: (part * (length // len(part) + 1))[:length]


def _between(first: str, part: str, last: str) -> Make:
    return lambda length: first + _repeated(part)(max(length - len(first) - len(last), 0)) + last


def _drawn(alphabet: str) -> Make:
    return lambda length: "".join(random.Random(1).choices(alphabet, k=length))  # noqa: S311


# Of one character, over and over, and what regular expressions take as one thing: spaces, line ends, digits, letters, signs.
CHARACTERS = (
    "aA1 \n\t\r.,-_'\"\\/:;<>[(){}@%&=#*|!?+~`^$\0…»\u00a0\u0301\u200b\u3000漢かกع。😀\ud800\udcff\U0010ffffİß\ufdfa"
)
PARTS = (
    "a ", "a\n", "\u0301\u0323", "a\n\n", "a \n", " \n", "\r\n", "\t\n", "Ab. ", "The cat sat on the mat. ", "home\n", "home | ",
    "home home ", "ab ab ", "a@", "a.a@a.a ", "@a.", "http://", "http://a:a@", "://a?", "a/", "?a=", "%41", "%", "www.a.", "a.", "a-", "a_",
    "a'", "a:", "aB", "aA1 ", "1 ", "1.", "1,", "1-", "1/", "1_", "1+", "1 a ", "1\n", "12 34 ", "1\u00a0", "1:", "0x", "a1",
    "a1-", "1.1.1.1 ", "1.1.1.1-", "2001:", "DE00 ", "+49 ", "tel 1", "1.1.2000 ", "2000-01-01", "2000", "v1.2", "[{(", "[a",
    "[1]", "(1) ", "<a>", "<a ", "<a b='c'>", "</", "<<", "<!--", "<![CDATA[", "<script ", "<meta charset=", "encoding=",
    "charset=", "a=b ", "&amp;", "&#", "```\n", "# ", "> ", "- a\n", "|a", "===\n", "**", "*a", "--", "==", '{"a":', '"author":',
    '"author" : {"name" : "', '"datePublished" : "', '"license" : {"url" : "', "\\u0041", '\\"', '"a" ', "1 like ", "likes 1 ",
    "1,1 likes ", "1 items in ", "read more ", "read more .", ". read more", "javascript ", "terms of use ", "sk-ant-api01-",
    "-----BEGIN PRIVATE KEY-----", "eyJ", "eyJaaaaaaaa.", "ghp_", "<think>", "sure ", "sure: ", "here is\n", "max-snippet:",
    "noindex,", "noindex: ", "#### -1", "{question}", "{a", "a..", "a...", "... ", "..\n", ". ", ", ", "a, ", "a\ufe0f", "a\u0301",
    "\u202ea", "a\u200d", "xn--a.", "gpu:", "gpu:a(", "creativecommons.org/licenses/by-", "by-nc-", "SPDX-License-Identifier:",
    "Question: ", "answer : ", "1 out of ", "1/", "a\u200b", "漢\u200b", "漢 ", "か。", "\n \n", "\n\n ", "a\t", "\\x41, ", "A1",
    "1 2:", "bytes 1-", "1 bytes, not ", "1 tokens/s", "a->", "f(a)\n", "Abc def.\n", "a a. ", "%e3", "=?", "AKIA", "1h1m",
    "error: ", " left", "WARC/1.0\n",
)  # fmt: skip
STRINGS: dict[str, Make] = {
    **{repr(part): _repeated(part) for part in (*CHARACTERS, *PARTS)},
    # The end of a run makes an expression try again.
    **{f"{part!r} then \\x01": _between("", part, "\x01") for part in (*CHARACTERS, *PARTS)},
    **{f"x, {part!r}, x": _between("x", part, "x") for part in " \n1.-_'\"\\\u00a0\u0301"},
    "brackets in brackets": lambda length: "[" * (length // 2) + "]" * (length // 2),
    "braces in braces": lambda length: "{" * (length // 2) + "}" * (length // 2),
    "a long path": _between("http://example.org/", "a/", ""),
    "a long query": _between("http://example.org/?", "a=b&", ""),
    "a long host": _between("http://", "a.", "org/"),
    "a long host beyond ASCII": _between("http://", "ä.", "org/"),
    "a long label": _between("http://xn--", "a", ".org/"),
    "a long user": lambda length: f"http://{'a' * (length // 2)}:{'a' * (length // 2)}@example.org",
    "a long list of JSON": _between('{"text": [', "[", ""),
    "words that differ": lambda length: " ".join(f"w{number}" for number in range(length // 5)),
    "lines that differ": lambda length: "\n".join(f"Line {number}." for number in range(length // 9)),
    "letters and spaces": _drawn("ab \n"),
    "signs": _drawn(".,;:!?()[]{}<>'\"-_/\\ \n"),
    "digits and separators": _drawn("0123456789 .-/()+"),
    "all of ASCII": _drawn("".join(map(chr, range(32, 127))) + "\n"),
}  # fmt: skip

_SPECIAL = [name for name in STRINGS if name[0] not in "'\"" and name[:2] != "x,"]
_USUAL = [
    *map(repr, ("a ", "a\n", "a/", "1,1 likes ", "a@", "\u0301\u0323")),
    *(f"{part!r} then \\x01" for part in "a1 \n."),
]
FEW = [*map(repr, CHARACTERS), *_USUAL, *_SPECIAL]  # for a function, which may take milliseconds for each
MOST = [*map(repr, (*CHARACTERS, *PARTS)), *(f"{part!r} then \\x01" for part in CHARACTERS), *_SPECIAL]


class TooSlow(Exception):
    """A call took longer than its limit."""


def _end(number: int, frame: FrameType | None) -> None:
    raise TooSlow


@contextmanager
def limited() -> Iterator[None]:
    """Within, `cost` ends a call of over LIMIT. Regular expressions look for signals; other compiled code is ended when it returns."""
    before = signal.signal(signal.SIGPROF, _end)
    gc.collect()
    gc.disable()  # what others have left behind is no work of the call that comes next
    try:
        yield
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def cost(call: Callable[[Any], object], given: Any) -> float:
    """Seconds of CPU time of a call; infinity for one that is ended after LIMIT.

    The clock of the wall, unless other processes had the machine meanwhile: some kernels count CPU time in ticks.
    """
    wall, used = time.perf_counter(), time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        call(given)
    except TooSlow:
        return float("inf")
    except Exception:  # noqa: S110 - what a function refuses it has read
        pass
    return min(time.perf_counter() - wall, time.process_time() - used + TICK)


@cache
def string(name: str, length: int) -> str:
    """The string of a name in STRINGS."""
    return STRINGS[name](length)


def growth(call: Callable[[Any], object], name: str, length: int = LENGTH) -> tuple[float, float, float] | None:
    """CPU seconds for a string of 1, 2 and 4 times `length` if they grow faster than linearly, else None. name: of STRINGS.

    Each is the least of all attempts so far, and one attempt that is linear is enough: other processes only add time.
    """
    least = [float("inf")] * 3
    for _ in range(ATTEMPTS):
        for place, times in reversed(list(enumerate((1, 2, 4)))):
            least[place] = min(least[place], cost(call, string(name, length * times)))
            if place == 2 and least[2] < QUICK:
                return None
            if place == 2 and least[2] == float("inf"):
                break
        if least[2] < float("inf") and least[2] <= BOUND * least[0] + QUICK:
            return None
    return least[0], least[1], least[2]
