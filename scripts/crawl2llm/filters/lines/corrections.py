"""RefinedWeb's line-wise corrections (Penedo et al. 2023, arXiv:2306.01116, appendix G.2): lines that are no text, and cuts in others.

The paper names the rules and an example of each; what they match is ours, in English. Its rule on lines of a single word is `words_min: 2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import re2

from crawl2llm.filters.lines.settings import ScoreSettings

SHORT_LINE_WORDS = 10  # words of a line at most from which navigation is cut (RefinedWeb)

# Of counts there are many ways to read a line, so RE2 reads it, in time that is linear. Its \W, \d and \s are of ASCII alone.
_SIGN, _SPACE = r"[^\pL\pN]", r"[\s\v\x1c-\x1f\x85\pZ]"
_NUMBER = rf"\p{{Nd}}[\p{{Nd}}.,\x{{a0}}\x{{202f}}]*{_SPACE}?(?:[KMB]|mio|mill?)?\+?"
_COUNTED = (
    "answers? bookmarks? comments? dislikes? downloads? downvotes? favou?rites? followers? following friends? hits? likes? members? "
    "photos? pins? points? posts? quotes? ratings? reactions? reads? replies reply reposts? retweets? reviews? shares? stars? "
    "subscribers? threads? tweets? upvotes? users? videos? viewers? views? visits? votes?"
).replace(" ", "|")
_COUNT = rf"(?:{_NUMBER}{_SPACE}*(?:{_COUNTED})|(?:{_COUNTED}){_SPACE}?[:(]{_SPACE}?{_NUMBER}\)?)"
_COUNTER = re2.compile(rf"(?is){_SIGN}*{_COUNT}(?:{_SIGN}+{_COUNT})*{_SIGN}*")

# Before a separator or the line's end. A word that also begins sentences, such as share, is none.
_FIRST = (
    "home|homepage|home page|main menu|menu|navigation|skip to (?:main )?content|skip navigation|sign[ -]?in|sign[ -]?up|log[ -]?in"
    "|log[ -]?out|register|create (?:an )?account|my account|subscribe|newsletter|contact(?: us)?|about us|site ?map|back to top"
)
_START = re.compile(rf"(?:(?:{_FIRST})\s*(?:[|/>»›·•:–—]+\s*|$))+", re.IGNORECASE)
_MORE = (
    "read more|read on|read the full (?:story|article)|continue reading|learn more|more info(?:rmation)?|show more|see more|see all"
    "|view all|view more|click here|full (?:story|article)|next page|previous page"
)
# At the end after the end of a sentence, or with dots or an arrow behind it.
# A run of spaces, signs or digits is read once, from its beginning (`*+`): else time would grow with the square of its length.
_END = re.compile(
    rf"(?:^|(?<=[.!?…|»\])])\s*+)(?:{_MORE})[\W_]*+$|\b(?:{_MORE})\s*+(?:\.\.|…|[»›→>])[\W_]*+$", re.IGNORECASE
)
_ANYWHERE = re.compile(
    r"(?:(?<!\d)\d++\s*+|(?<![\d\s])\s++)?items? in (?:your )?(?:shopping )?(?:cart|basket|bag)|add to (?:cart|basket|bag|wish ?list)"
    r"|your (?:shopping )?(?:cart|basket|bag) is (?:currently )?empty",
    re.IGNORECASE,
)


def correction_of(line: str, settings: ScoreSettings) -> str | None:
    """The correction that takes a line out; None for a line that stays. line: not empty, without white space around it."""
    if settings.numerals and not any(map(str.isalpha, line)) and any(map(str.isdigit, line)):
        return "numerals"
    if settings.counters and any(map(str.isdigit, line)) and is_counter(line):
        return "counters"
    if settings.uppercase_max is not None:
        letters = sum(map(str.isalpha, line))
        if letters and sum(map(str.isupper, line)) > settings.uppercase_max * letters:
            return "uppercase"
    if settings.navigation and (cut := list(navigation_places(line))):
        left = list(line)
        for start, end in cut:
            left[start:end] = [" "] * (end - start)
        if not any(map(str.isalpha, left)):
            return "navigation"
    return None


def is_counter(line: str) -> bool:
    """Whether a line holds counts of what people did with a page, and nothing else."""
    return _COUNTER.fullmatch(line.encode("utf-8", "replace")) is not None


def navigation_places(line: str) -> Iterator[tuple[int, int]]:
    """The places of words for navigation in a short line, in order and without overlaps."""
    if len(line.split(None, SHORT_LINE_WORDS)) > SHORT_LINE_WORDS:
        return
    at = 0
    if (first := _START.match(line)) and first.end():
        yield first.span()
        at = first.end()
    last = _END.search(line, at)
    for match in _ANYWHERE.finditer(line, at, last.start() if last else len(line)):
        yield match.span()
    if last and last.end() > last.start():
        yield last.span()
