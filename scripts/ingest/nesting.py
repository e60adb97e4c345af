"""How deep the elements of a page are nested, found before the page is parsed: a parser's time grows with the square of the depth.

A page of 150 kB with 30,000 nested elements takes minutes. Browsers stop at a depth of 512.

What is kept is never less than a parser's own stack, up to elements that cannot be nested in themselves: an end tag closes here at most
what it closes there. So a broken page may look deeper than it is, but never less deep. The rules are those of tree construction:
https://html.spec.whatwg.org/multipage/parsing.html#tree-construction
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from scripts.ingest.markup import BREAKS_OUT, FOREIGN, INNER, VOID, self_closed

MOST = 4096  # a page as deep takes 0.3 s
# Elements that the next one of their kind ends, or that are there once.
FLAT = frozenset([
    "body", "button", "colgroup", "dd", "dt", "form", "head", "html", "li", "optgroup", "option", "tbody", "td", "tfoot", "th", "thead",
    "tr",
])  # fmt: skip
# These are opened again behind the end of what they were left open in; at most three that are alike.
FORMATTING = frozenset([
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
])  # fmt: skip
ALIKE = 3
AGAIN = 1_000_000  # formatting elements that are opened again
# The end tag of an element that is in neither list ends nothing outside the newest of these.
SPECIAL = frozenset([
    "address", "applet", "article", "aside", "blockquote", "caption", "center", "details", "dir", "div", "dl", "fieldset", "figcaption",
    "figure", "footer", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "listing", "main", "marquee", "menu", "nav",
    "noscript", "object", "ol", "p", "plaintext", "pre", "search", "section", "select", "summary", "table", "template", "ul",
])  # fmt: skip
ENDS_P = SPECIAL - {"applet", "caption", "frameset", "marquee", "noscript", "object", "select", "table", "template"} | {
    "hr", "xmp",
}  # fmt: skip
# Starts of these do not open formatting elements again; those of FLAT that do.
QUIET = frozenset(["caption", "frameset", "noscript", "table", "template"])
OPENING = frozenset(["button", "optgroup", "option"])
# Within these, an end tag ends nothing outside; a table ends all but a template, a template all.
SCOPES = frozenset(["applet", "caption", "marquee", "object", "select", "table", "template"]) | FOREIGN
HTML_IN = INNER["svg"] | INNER["math"]
FONT = re.compile(r"color|face|size", re.IGNORECASE)
START = re.compile(r"<([a-zA-Z][^\s/>]*)")


@dataclass(slots=True)
class Scope:
    """The open elements within one of SCOPES, the newest last: (name, attributes of formatting elements), or None for one that is closed.

    Those of FLAT, which do not count, are called `<name>`. where: the places of those of a name. special: the places of those of SPECIAL
    and FLAT.
    """

    name: str = ""
    opened: list[tuple[str, str] | None] = field(default_factory=list)
    where: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    special: list[int] = field(default_factory=list)
    unsure: bool = False  # whether it may have ended


class Nesting:
    """The open elements of a page, and how many they are."""

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self.depth = 0
        self.left: list[tuple[str, str]] = []  # formatting elements that text opens again
        self.alike: Counter[tuple[str, str]] = Counter()  # how many of these are the same
        self.waiting: Counter[str] = Counter()  # how many of these are of a name
        self.again = 0  # how many were opened again
        self.marked = (
            False  # whether a template has ended: Resiliparse's parser does not find the links before it any more
        )
        self.doubt = False  # whether it may be SVG or MathML although no scope says so

    def start(self, name: str, attributes: str) -> None:
        """A start tag."""
        here = self.scopes[-1]
        if here.name in FOREIGN:
            if name not in BREAKS_OUT or (name == "font" and not FONT.search(attributes)):
                here.unsure |= name == "annotation-xml"  # it may hold HTML
                if here.unsure or not self_closed(attributes):
                    self._push(name, "", scope=name == here.name or name in INNER[here.name])
                return
            self.doubt |= name == "font" and ('"' in attributes or "'" in attributes)
            self._dissolve()
            here = self.scopes[-1]
        if name in VOID:
            if name == "hr":
                self._end_p(here)
            else:
                self.text()
            if self.doubt and name not in BREAKS_OUT:
                self._push(f"/{name}", "")
        elif name in FLAT and self.doubt and name not in BREAKS_OUT:
            self._push(f"/{name}", "")
        elif name in FLAT:
            self._forget_p(here)
            if name in OPENING:
                self.text()
            last = here.opened[here.special[-1]] if here.special else None
            if last and (
                (name == "li" and last[0] in ("<dd>", "<dt>")) or (name in ("dd", "dt") and last[0] == "<li>")
            ):
                self._push(f"/{name}", "")  # an item does not end what is defined, nor the other way round
            here.special.append(len(here.opened))
            here.opened.append((f"<{name}>", ""))
        elif name in FORMATTING:
            self.text()
            if name in ("a", "nobr") and here.where[name] and not self.marked:
                self._end_formatting(here, name)
                self.text()
            self._push(name, attributes)
        else:
            if name in ENDS_P:
                self._end_p(here)
            elif name == "caption" and here.name != "table":
                return
            elif name not in QUIET:
                self.text()
            self._push(name, "", scope=name in SCOPES)

    def text(self) -> None:
        """Text, which opens formatting elements again that were left open."""
        if self.left:
            for each in self.left:
                self._push(*each)
            self.again += len(self.left)
            self.depth -= len(self.left)
            self.left.clear()
            self.alike.clear()
            self.waiting.clear()

    def end(self, name: str) -> None:
        """An end tag. One that no rule here is sure of ends nothing."""
        here = self.scopes[-1]
        if here.name in FOREIGN and name != here.name:
            if name in ("p", "br"):
                self._dissolve()
                self._end_p(self.scopes[-1])
            elif here.where[name]:
                self._cut(here, here.where[name][-1])
            else:
                here.unsure = True
        elif name in SCOPES or name in HTML_IN:
            if name == here.name and not (name in HTML_IN and here.special):
                self._close_scope()
            elif name in ("table", "template"):
                for at in range(len(self.scopes) - 1, max(len(self.scopes) - 64, 0), -1):
                    if self.scopes[at].name == name:
                        while len(self.scopes) > at:
                            self._close_scope()
                        break
                    if self.scopes[at].name == "template":
                        break
        elif name in FLAT:
            self._forget_p(here)
            while here.opened and here.opened[-1] is None:
                here.opened.pop()
            if here.opened and here.opened[-1] == (f"<{name}>", ""):
                here.opened.pop()
                here.special.pop()
        elif name == "p":
            self._end_p(here)
        elif name in FORMATTING:
            self._end_formatting(here, name)
        elif here.where[name] and (name in ENDS_P or not here.special or here.special[-1] < here.where[name][-1]):
            self._cut(here, here.where[name][-1])

    def raw(self, name: str, content: str) -> None:
        """An element whose content is text in HTML. Within SVG and MathML it is not: it may hold any elements."""
        if self.doubt or any(scope.name in FOREIGN for scope in self.scopes[-64:]) or len(self.scopes) > 64:
            for found in START.finditer(content):
                self._push(found.group(1).lower(), "")
                if self.depth > MOST:
                    return
        elif name in ENDS_P:
            self._end_p(self.scopes[-1])

    def _push(self, name: str, attributes: str, scope: bool = False) -> None:
        self.depth += 1
        here = self.scopes[-1]
        if scope:
            self.scopes.append(Scope(name))
            return
        here.where[name].append(len(here.opened))
        if name in SPECIAL:
            here.special.append(len(here.opened))
        here.opened.append((name, attributes))

    def _cut(self, here: Scope, size: int) -> None:
        """Close elements of a scope until so many are left."""
        while len(here.opened) > size:
            last = here.opened.pop()
            if here.special and here.special[-1] == len(here.opened):
                here.special.pop()
            if last is None or last[0][0] == "<":
                continue
            name = last[0]
            here.where[name].pop()
            self.depth -= 1
            if name in FORMATTING and self.alike[last] < ALIKE:
                self.left.append(last)
                self.waiting[name] += 1
                self.alike[last] += 1
                self.depth += 1

    def _close_scope(self) -> None:
        self.marked |= self.scopes[-1].name == "template"
        self._cut(self.scopes[-1], 0)
        self.scopes.pop()
        self.depth -= 1

    def _dissolve(self) -> None:
        """SVG or MathML may have ended here: what is open in it is as if it was open outside, for as long as that."""
        ended: list[Scope] = []
        while self.scopes[-1].name in FOREIGN:
            ended.append(self.scopes.pop())
        here = self.scopes[-1]
        for scope in reversed(ended):
            self.depth -= 1
            self._push("/svg", "")  # no end tag ends it
            for each in scope.opened:
                if each is None:
                    continue
                if each[0][0] == "<":
                    here.special.append(len(here.opened))
                    here.opened.append(each)
                else:
                    self.depth -= 1
                    self._push(*each)

    def _end_p(self, here: Scope) -> None:
        if here.where["p"]:
            self._cut(here, here.where["p"][-1])

    def _forget_p(self, here: Scope) -> None:
        """A paragraph may have ended: its end is not waited for, and what is in it stays open."""
        for place in here.where["p"]:
            here.opened[place] = ("/p", "")
            here.where["/p"].append(place)
        here.where["p"].clear()

    def _end_formatting(self, here: Scope, name: str) -> None:
        if self.waiting[name]:
            found = next(each for each in reversed(self.left) if each[0] == name)
            self.left.remove(found)
            self.alike[found] -= 1
            self.waiting[name] -= 1
            self.depth -= 1
        elif here.where[name]:
            place = here.where[name][-1]
            if not here.special or here.special[-1] < place:  # else the block within stays open
                self._cut(here, place + 1)
            here.where[name].pop()
            here.opened[place] = None
            self.depth -= 1


def nested(parts: list[str], most: int = MOST, again: int = AGAIN) -> str:
    """ "deep" where elements of a page, cut by `markup.tokens`, are nested more than `most` deep, "again" where a parser would open more
    than `again` formatting elements once more, else "". The work is in proportion to the page and to `again`.
    """
    names = parts[4::6]
    tags = len(names) + sum(content.count("<") for content in parts[3::6] if content)
    if tags <= most and tags * sum(name is not None and name.lower() in FORMATTING for name in names) <= again:
        return ""
    nesting = Nesting()
    every = zip(parts[1::6], parts[3::6], names, parts[5::6], parts[6::6], strict=True)
    for raw, content, name, attributes, text in every:
        if raw:
            nesting.raw(raw.lower(), content)
        elif name:
            name = name.lower()
            if name[0] == "/":
                nesting.end(name[1:])
            else:
                nesting.start(name, attributes)
        if nesting.left and text and not text.isspace():
            nesting.text()
        if nesting.depth > most:
            return "deep"
        if nesting.again > again:
            return "again"
    return ""
