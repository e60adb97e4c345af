"""Pages on which a parser would take minutes, found before they are parsed: by counts, so that a result never depends on the machine.

A tag costs each parser about the same. What costs more than its size is nesting (the time grows with the square of the depth), attributes
of one tag (each is compared with those before), and formatting elements that are left open: each new paragraph opens all of them again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from scripts.ingest.markup import CODE
from scripts.ingest.nesting import AGAIN, ALIKE, FORMATTING, MOST, nested

TAGS = 200_000  # 1 s of cutting and reading; of 2,700 real pages the mean is 1,600, the largest 22,000
SQUARES = 100_000_000  # of the numbers of attributes, over all tags: 10,000 in one tag take 0.2 s
# Starts that may end elements in which formatting elements are open; any end tag may.
ENDING = frozenset(CODE) | {"col", "colgroup", "optgroup", "frameset", "hr", "rt", "rp"}
FEW = 50  # attributes that are not worth counting
ATTRIBUTE = re.compile(r"""[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*))?""")


def too_many_tags(page: str) -> str:
    """Why a page is not read at all, or "". What is counted is every `<`."""
    count = page.count("<")
    return f"{count:,} tags, at most {TAGS:,}" if count > TAGS else ""


def too_hard(parts: list[str]) -> tuple[str, str]:
    """(reason, detail) of a page, cut by `markup.tokens`, that an HTML parser is not given; ("", "") for others."""
    nesting = "again" if _opened_again(parts) > AGAIN else nested(parts)
    if nesting == "deep":
        return "too_deep", f"elements nested over {MOST} deep"
    if nesting == "again":
        return "too_complex", f"over {AGAIN:,} formatting elements that are opened again"
    squares = 0
    tags = [each for each in (*parts[2::6], *parts[5::6]) if each and len(each) > 2 * FEW]
    if sum((len(each) // 2) ** 2 for each in tags) > SQUARES:  # an attribute takes two characters
        for tag in tags:
            number = sum(1 for _ in ATTRIBUTE.finditer(tag))
            squares += number * number if number > FEW else 0
            if squares > SQUARES:
                return "too_complex", f"a tag with {number:,} attributes"
    return "", ""


def _opened_again(parts: list[str]) -> int:
    """The most elements that a parser makes because formatting elements were left open, at most AGAIN and a few."""
    names = Counter(parts[4::6])
    starts = sum(count for name, count in names.items() if name and name.lower() in FORMATTING)
    if starts * sum(names.values()) < AGAIN:
        return 0
    left: defaultdict[str, list[str]] = defaultdict(list)  # by name, the attributes of those that are open
    alike: Counter[tuple[str, str]] = Counter()  # how many of these are the same
    total = opened = 0
    for name, attributes in zip(parts[4::6], parts[5::6], strict=True):
        if name is None:
            continue
        name = name.lower()
        ended = name if name in ("a", "nobr") else name[1:] if name[0] == "/" else ""
        if ended in FORMATTING and left[ended]:
            alike[ended, left[ended].pop()] -= 1
            opened -= 1
        if name in FORMATTING:
            if alike[name, attributes] < ALIKE:
                alike[name, attributes] += 1
                left[name].append(attributes)
                opened += 1
        elif opened and (name in ENDING or (name[0] == "/" and ended not in FORMATTING)):
            total += opened
            if total > AGAIN:
                break
    return total
