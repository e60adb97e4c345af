"""Pages on which a parser would take minutes, found before they are parsed: by counts, so that a result never depends on the machine.

A tag costs each parser about the same. What costs more than its size is nesting (the time grows with the square of the depth), attributes
of one tag (each is compared with those before), and formatting elements that are left open: each new paragraph opens all of them again.
"""

from __future__ import annotations

import re
from collections import Counter

from scripts.ingest.markup import CODE
from scripts.ingest.nesting import MOST, too_deep

TAGS = 200_000  # 1 s of cutting and reading; of 2,700 real pages the mean is 1,600, the largest 22,000
SQUARES = 100_000_000  # of the numbers of attributes, over all tags: 10,000 in one tag take 0.2 s
REOPENED = 1_000_000  # formatting elements
# https://html.spec.whatwg.org/multipage/parsing.html#formatting; at most three that are alike are opened again.
FORMATTING = frozenset(
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
)
ALIKE = 3
FEW = 50  # attributes that are not worth counting
ATTRIBUTE = re.compile(r"""[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*))?""")


def too_many_tags(page: str) -> str:
    """Why a page is not read at all, or "". What is counted is every `<`."""
    count = page.count("<")
    return f"{count:,} tags, at most {TAGS:,}" if count > TAGS else ""


def too_hard(page: str, parts: list[str]) -> tuple[str, str]:
    """(reason, detail) of a page, cut by `markup.tokens`, that an HTML parser is not given; ("", "") for others."""
    if too_deep(page):
        return "too_deep", f"elements nested over {MOST} deep"
    squares = 0
    tags = [each for each in (*parts[2::6], *parts[5::6]) if each and len(each) > 2 * FEW]
    if sum((len(each) // 2) ** 2 for each in tags) > SQUARES:  # an attribute takes two characters
        for tag in tags:
            number = sum(1 for _ in ATTRIBUTE.finditer(tag))
            squares += number * number if number > FEW else 0
            if squares > SQUARES:
                return "too_complex", f"a tag with {number:,} attributes"
    if _reopened(parts) > REOPENED:
        return "too_complex", f"over {REOPENED:,} formatting elements that are opened again"
    return "", ""


def _reopened(parts: list[str]) -> int:
    """About how many elements a parser makes because formatting elements were left open, at most REOPENED and a few."""
    names = Counter(parts[4::6])
    starts = sum(count for name, count in names.items() if name and name.lower() in FORMATTING)
    if starts * sum(names.values()) < REOPENED:
        return 0
    left: Counter[str] = Counter()  # by name, how many are open and not alike
    alike: Counter[tuple[str, str]] = Counter()
    total = opened = 0
    for name, attributes in zip(parts[4::6], parts[5::6], strict=True):
        if name is None:
            continue
        name = name.lower()
        if name in FORMATTING:
            alike[name, attributes] += 1
            if alike[name, attributes] <= ALIKE:
                left[name] += 1
                opened += 1
        elif name[0] == "/" and name[1:] in FORMATTING:
            if left[name[1:]]:
                left[name[1:]] -= 1
                opened -= 1
        elif opened and name.removeprefix("/") in CODE:
            total += opened
            if total > REOPENED:
                break
    return total
