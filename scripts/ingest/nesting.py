"""How deep the elements of a page are nested, found before the page is parsed: a parser's time grows with the square of the depth.

A page of 150 kB with 30,000 nested elements takes minutes. Browsers stop at a depth of 512.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

MOST = 4096  # a page as deep takes 0.3 s
# Elements without an end tag, and those that the next one of their kind ends.
FLAT = frozenset([
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr", "body",
    "colgroup", "dd", "dt", "head", "html", "li", "optgroup", "option", "p", "rb", "rp", "rt", "rtc", "tbody", "td", "tfoot",
    "th", "thead", "tr",
])  # fmt: skip
# Within these, an end tag ends nothing outside.
SCOPES = frozenset(["applet", "caption", "marquee", "math", "object", "svg", "table", "template"])
# Tags within these are text.
TEXT = frozenset(["script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"])
TAG = re.compile(r"<(?:(!--)|(/?)([a-zA-Z][^\s/>]*))")


@dataclass
class Scope:
    """The open elements within one of SCOPES."""

    name: str = ""
    opened: list[str] = field(default_factory=list)
    number: Counter[str] = field(default_factory=Counter)


def too_deep(html: str, most: int = MOST) -> bool:
    """Whether elements are nested more than `most` deep, as nearly as can be told in linear time."""
    if html.count("<") - html.count("</") <= most:
        return False
    scopes, depth, at = [Scope()], 0, 0
    while found := TAG.search(html, at):
        at = found.end()
        comment, closes, name = found.groups()
        if comment:
            at = html.find("-->", at) + 3
            if at == 2:  # it has no end
                return False
            continue
        name = name.lower()
        if closes:
            depth -= _close(scopes, name)
        elif name in TEXT:
            end = re.compile(f"</{name}", re.IGNORECASE).search(html, at)
            if end is None:
                return False
            at = end.end()
        elif name not in FLAT:
            depth += 1
            if depth > most:
                return True
            if name in SCOPES:
                scopes.append(Scope(name))
            else:
                scopes[-1].opened.append(name)
                scopes[-1].number[name] += 1
    return False


def _close(scopes: list[Scope], name: str) -> int:
    """End the newest element of this name, with all in it; how many that are."""
    here = scopes[-1]
    if name in SCOPES:
        if not any(scope.name == name for scope in scopes[-8:]):  # misnested deeper than that: left open
            return 0
        closed = 0
        while True:
            scope = scopes.pop()
            closed += 1 + len(scope.opened)
            if scope.name == name:
                return closed
    if not here.number[name]:
        return 0
    closed = 0
    while True:
        last = here.opened.pop()
        here.number[last] -= 1
        closed += 1
        if last == name:
            return closed
