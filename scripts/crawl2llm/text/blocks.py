"""Lines and paragraphs of a text, as they are compared with others, and how they are taken out of it.

Compared are lower case, digits as 0, without punctuation and symbols, as CCNet does (arXiv:1911.00359, section 3.1; `normalize_for_dedup`
in cc_net/text_normalizer.py, which removes a list of signs; here it is Unicode's punctuation, symbols and control characters).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from crawl2llm.formats.spans import Span
from crawl2llm.text.characters import SYMBOLS

_REMOVED = sorted(
    SYMBOLS | set(map(chr, range(0x1C, 0x20)))
)  # str.strip takes the last four for space, bytes.strip does not
# What is not ASCII (that is removed and replaced as bytes), of the first plane: expressions with more are ten times as slow.
_OTHER = re.compile(f"[{re.escape(''.join(char for char in _REMOVED if not char.isascii()))}]+")
_DIGIT = re.compile(f"[{''.join(char for char in map(chr, range(0x80, 0x10000)) if char.isdecimal())}]")
_ASCII = bytes.maketrans(
    (string.ascii_uppercase + string.digits).encode(), (string.ascii_lowercase + "0" * 10).encode()
)
_DELETED = "".join(char for char in _REMOVED if char.isascii()).encode()
_SPACE = re.compile(r"\s*")

LINE, PARAGRAPH = "line", "paragraph"  # what a block is: a line, or the lines between blank ones


def compared_lines(text: str) -> list[bytes]:
    """Every line of a text as it is compared, in UTF-8; empty for one without a letter, digit or mark."""
    if text.isascii():
        return [line.strip() for line in text.encode().translate(_ASCII, _DELETED).split(b"\n")]
    plain = text.lower().encode().translate(_ASCII, _DELETED).decode()
    plain = _OTHER.sub("", _DIGIT.sub("0", plain))
    return [line.strip().encode() for line in plain.split("\n")]


def _paragraph_ranges(text: str) -> list[tuple[int, int]]:
    """(first, last + 1) of the lines of each paragraph."""
    ranges: list[tuple[int, int]] = []
    begin = None
    for number, line in enumerate([*text.split("\n"), ""]):
        if line and not line.isspace():
            begin = number if begin is None else begin
        elif begin is not None:
            ranges.append((begin, number))
            begin = None
    return ranges


def compared_blocks(text: str, by: str = LINE) -> list[bytes]:
    """Every block of a text as it is compared. by: LINE or PARAGRAPH."""
    keys = compared_lines(text)
    if by == LINE:
        return keys
    return [b"\n".join(filter(None, keys[first:last])) for first, last in _paragraph_ranges(text)]


def removal_spans(text: str, numbers: Iterable[int], rule: str, by: str = LINE) -> list[Span]:
    """The places of the blocks of these numbers, which ascend: one span for those that follow each other."""
    raw = text.split("\n")
    ends: list[int] = []  # of each line, without its line break
    at = -1
    for line in raw:
        at += len(line) + 1
        ends.append(at)
    groups = _paragraph_ranges(text) if by == PARAGRAPH else [(number, number + 1) for number in range(len(raw))]
    # Between two lines that go there may be blank ones, which go with them.
    order = [number for number, (first, last) in enumerate(groups) if any(map(str.strip, raw[first:last]))]
    place = {number: position for position, number in enumerate(order)}
    runs: list[tuple[int, int]] = []
    for number in numbers:
        position = place[number]
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    spans = []
    for begin, stop in runs:
        first, last = groups[order[begin]][0], groups[order[stop - 1]][1] - 1
        spans.append(Span(*removal_range(text, ends[first] - len(raw[first]), ends[last]), "", rule))
    return spans


def removal_range(text: str, start: int, end: int) -> tuple[int, int]:
    """The place to take out for `text[start:end]`, with the white space on one side of it.

    What stays before and after is parted by the longer of the two gaps, in line breaks; the line after keeps its indentation. Where the
    text ends with the place, it is the text that had ended before it.
    """
    match = _SPACE.match(text, end)
    after = match.end() if match else end
    before = start
    while before and text[before - 1].isspace():
        before -= 1
    if after == len(text) or (text.count("\n", end, after) > text.count("\n", before, start) and before):
        return before, end
    stop = text.rfind("\n", end, after)
    return start, after if stop < 0 else stop + 1
