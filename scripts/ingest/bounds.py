"""Pages on which a parser would take minutes, found before they are parsed: by counts, so that a result never depends on the machine.

A tag costs each parser about the same. What costs more than its size is nesting (the time grows with the square of the depth), attributes
of one tag (each is compared with those before), and formatting elements that are left open: each new paragraph opens all of them again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from scripts.ingest.nesting import FORMATTING, HOLDING, STEPS, Bound, attributes_at_most, open_elements
from scripts.ingest.tags import CODE, FOREIGN, INNER, self_closed

TAGS = 200_000  # 1 s of cutting and reading; of 2,700 real pages the mean is 1,600, the largest 22,000
LIBRARY_TAGS = 100_000
TRAFILATURA_TAGS = 50_000  # of paragraphs: 1 s to 3 s
OPTIONS = 10_000  # Resiliparse's parser goes through those before: 0.5 s for as many, 15 s for 50,000
SQUARES = 100_000_000  # of the numbers of attributes, over all tags: 10,000 in one tag take 0.2 s
# trafilatura goes through all items for each where a page is hardly more than lists or tables: 1.4 s for 5,000, 16 s for 20,000.
ITEMS = 5_000
LISTED = ("li", "dt", "dd", "tr", "td", "th")
AGAIN = 2_000_000  # formatting elements that are opened again, and their attributes: 200 bytes of a tree each
ALIKE = 3  # of those that are the same so many are opened again
# Starts that may end elements in which formatting elements are open; any end tag may.
ENDING = frozenset(CODE) | {"col", "colgroup", "optgroup", "frameset", "hr", "rt", "rp"}
HTML_IN = INNER["svg"] | INNER["math"]
SCOPES = frozenset(["applet", "caption", "marquee", "object", "select", "table", "template"]) | FOREIGN
# Within these, an end tag may not find the formatting elements outside.
SCOPED = SCOPES | HTML_IN | {"td", "th", "annotation-xml"}
START = re.compile(r"<([a-zA-Z][^\s/>]*)")
FEW = 50  # attributes that are not worth counting
ANY_ATTRIBUTE = re.compile(r"""[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*))?""")


def too_many_tags(page: str) -> str:
    """Why a page is not read at all, or "". What is counted is every `<`."""
    count = page.count("<")
    return f"{count:,} tags, at most {TAGS:,}" if count > TAGS else ""


def too_hard(parts: list[str], bound: Bound | None = None) -> tuple[str, str]:
    """(reason, detail) of a page, cut by `markup.tokens`, that an HTML parser is not given; ("", "") for others.

    bound: what `open_elements` has found, if it was asked.
    """
    if (tags := len(parts) // 6) > LIBRARY_TAGS:
        return "too_complex", f"{tags:,} tags, at most {LIBRARY_TAGS:,} for a library"
    if tags > OPTIONS and (options := _starts(parts, "option")) > OPTIONS:
        return "too_complex", f"{options:,} options, at most {OPTIONS:,} for a library"
    bound = bound or open_elements(parts)
    if bound.again > AGAIN and opens_again(parts):
        return "too_complex", f"over {AGAIN:,} formatting elements and attributes that are opened again"
    if bound.steps > STEPS:
        return "too_deep", f"over {STEPS:,} open elements are looked through"
    squares = 0
    long = [each for each in (*parts[2::6], *parts[5::6]) if each and len(each) > 2 * FEW]
    if sum((len(each) // 2) ** 2 for each in long) > SQUARES:  # an attribute takes two characters
        for tag in long:
            number = sum(1 for _ in ANY_ATTRIBUTE.finditer(tag))
            squares += number * number if number > FEW else 0
            if squares > SQUARES:
                return "too_complex", f"a tag with {number:,} attributes"
    return "", ""


def too_many_items(parts: list[str]) -> str:
    """Why trafilatura is not given a page of so many tags, or items of lists and cells of tables, or ""."""
    if (tags := len(parts) // 6) > TRAFILATURA_TAGS:
        return f"{tags:,} tags, at most {TRAFILATURA_TAGS:,} for trafilatura"
    count = _starts(parts, *LISTED)
    return f"{count:,} items of lists, rows and cells, at most {ITEMS:,} for trafilatura" if count > ITEMS else ""


def _starts(parts: list[str], *names: str) -> int:
    """How many start tags have one of these names."""
    return sum(name.lower() in names for name in parts[4::6] if name)


def opens_again(parts: list[str], most: int = AGAIN) -> bool:
    """Whether a parser may open more than `most` formatting elements, and attributes of these, again because they were left open.

    An upper bound: each tag that may end elements counts for all that are left open, and an element is left open until an end tag that a
    parser cannot fail to take for its own.
    """
    left: defaultdict[str, list[str]] = defaultdict(list)  # by name, the attributes of those that an end tag would find
    outside: list[tuple[str, defaultdict[str, list[str]]]] = []  # each open one of SCOPED, and those outside of it
    alike: Counter[tuple[str, str]] = Counter()  # how many of all that are left open are the same
    forgets = not _starts(parts, "template")  # behind one, Resiliparse's parser does not find the links before it
    total = opened = holding = 0
    for raw, content, tag, attributes in zip(parts[1::6], parts[3::6], parts[4::6], parts[5::6], strict=True):
        if raw:
            total += opened
            if holding and "<" in content:
                found = sum(name.lower() in FORMATTING for name in START.findall(content))
                opened += found and found + _weight(content)
                total += opened * content.count("<")
                outside.append(("", left))  # what began in it may not have ended
                left = defaultdict(list)
        if tag:
            name = tag.lower()
            ended = name[1:] if name[0] == "/" else name if name in ("a", "nobr") and forgets else ""
            if ended in FORMATTING and left[ended]:
                was = left[ended].pop()
                alike[ended, was] -= 1
                opened -= _weight(was)
            if name in ENDING or name in ("a", "nobr") or name[0] == "/":
                total += opened
            if name in FORMATTING and alike[name, attributes] < ALIKE:
                alike[name, attributes] += 1
                left[name].append(attributes)
                opened += _weight(attributes)
            elif name in SCOPED and not (self_closed(attributes) and (name in FOREIGN or name in HTML_IN)):
                outside.append((name, left))
                left = defaultdict(list)
                holding += name in HOLDING
            elif ended in SCOPED:
                if ended == "table":
                    while outside and outside[-1][0] in ("td", "th", "caption"):
                        left = _joined(*outside.pop(), left)
                if outside and outside[-1][0] == ended:
                    left = _joined(*outside.pop(), left)
                    holding -= ended in HOLDING
        if total > most:
            return True
    return False


def _weight(attributes: str) -> int:
    """Of an element with these attributes that is made again."""
    return 1 + attributes_at_most(attributes) + len(attributes) // 64


def _joined(
    _: str, outer: defaultdict[str, list[str]], inner: defaultdict[str, list[str]]
) -> defaultdict[str, list[str]]:
    for name, every in inner.items():
        outer[name] += every
    return outer
