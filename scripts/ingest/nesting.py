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
from typing import NamedTuple

from scripts.ingest.tags import BREAKS_OUT, FOREIGN, INNER, VOID, breaks_out, self_closed

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
FAR = 64  # scopes in which the end of a table is looked for
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
START = re.compile(r"<([a-zA-Z][^\s/>]*)")


class Open(NamedTuple):
    """An open element. Those of FLAT do not count."""

    name: str
    attributes: str = ""  # of a formatting element
    counts: bool = True


ENDLESS = Open("")  # one that no end tag ends
ENDED = Open("", counts=False)


@dataclass(slots=True)
class Scope:
    """The open elements within one of SCOPES, the newest last. where: the places of those of a name that end by their end tag.
    special: the places of those of SPECIAL and FLAT.
    """

    name: str = ""
    opened: list[Open] = field(default_factory=list)
    where: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    special: list[int] = field(default_factory=list)
    unsure: bool = False  # whether it may have ended


class Nesting:
    """The open elements of a page, and how many they are."""

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self.depth = 0
        self.foreign = 0  # how many scopes are SVG or MathML, or may be
        self.left: list[Open] = []  # formatting elements that text opens again
        self.alike: Counter[Open] = Counter()  # how many of these are the same
        self.waiting: Counter[str] = Counter()  # how many of these are of a name
        # Whether a template has ended: Resiliparse's parser does not find the links before it any more.
        self.marked = False

    def start(self, name: str, attributes: str) -> None:
        """A start tag."""
        here = self.scopes[-1]
        if here.name in FOREIGN:
            if not breaks_out(name, attributes):
                here.unsure |= name == "annotation-xml"  # it may hold HTML
                if here.unsure or not self_closed(attributes):
                    self._push(Open(name), scope=name == here.name or name in INNER[here.name])
                return
            here = self._break_out()
        if self.foreign and (name in VOID or name in FLAT) and name not in BREAKS_OUT:
            self._push(ENDLESS)  # where this is SVG
        elif name in VOID:
            if name == "hr":
                self._end_p(here)
            else:
                self.text()
        elif name in FLAT:
            self._forget_p(here)
            if name in OPENING:
                self.text()
            last = here.opened[here.special[-1]].name if here.special else ""
            if (name == "li" and last in ("dd", "dt")) or (name in ("dd", "dt") and last == "li"):
                self._push(ENDLESS)  # an item does not end what is defined, nor the other way round
            here.special.append(len(here.opened))
            here.opened.append(Open(name, counts=False))
        elif name in FORMATTING:
            self.text()
            if name in ("a", "nobr") and here.where[name] and not self.marked:
                self._end_formatting(here, name)
                self.text()
            self._push(Open(name, attributes))
        else:
            if name in ENDS_P:
                self._end_p(here)
            elif name == "caption" and here.name != "table":
                return
            elif name not in QUIET:
                self.text()
            self._push(Open(name), scope=name in SCOPES)

    def text(self) -> None:
        """Text, which opens formatting elements again that were left open."""
        if self.left:
            for each in self.left:
                self._push(each)
            self.depth -= len(self.left)
            self.left.clear()
            self.alike.clear()
            self.waiting.clear()

    def end(self, name: str) -> None:
        """An end tag. One that no rule here is sure of ends nothing."""
        here = self.scopes[-1]
        if here.name in FOREIGN and name != here.name:
            if breaks_out(f"/{name}", ""):
                self._end_p(self._break_out())
            elif here.where[name]:
                self._cut(here, here.where[name][-1])
            else:
                here.unsure = True
        elif name in SCOPES or name in HTML_IN:
            if name == here.name and not (name in HTML_IN and here.special):
                self._close_scope()
            elif name in ("table", "template"):
                for at in range(len(self.scopes) - 1, max(len(self.scopes) - FAR, 0), -1):
                    if self.scopes[at].name == name:
                        while len(self.scopes) > at:
                            self._close_scope()
                        break
                    if self.scopes[at].name == "template" or self.scopes[at].unsure:
                        break
        elif name in FLAT:
            self._forget_p(here)
            while here.opened and here.opened[-1] is ENDED:
                here.opened.pop()
            if here.opened and here.opened[-1] == Open(name, counts=False):
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
        if self.foreign:
            for found in START.finditer(content):
                self.scopes[-1].unsure = True  # HTML may have begun within a title
                self._push(Open(found.group(1).lower()))
                if self.depth > MOST:
                    return
        elif name in ENDS_P:
            self._end_p(self.scopes[-1])

    def _push(self, element: Open, scope: bool = False) -> None:
        self.depth += 1
        here, name = self.scopes[-1], element.name
        if scope:
            self.foreign += name in FOREIGN
            self.scopes.append(Scope(name))
            return
        here.where[name].append(len(here.opened))
        if name in SPECIAL:
            here.special.append(len(here.opened))
        here.opened.append(element)

    def _cut(self, here: Scope, size: int) -> None:
        """Close elements of a scope until so many are left."""
        while len(here.opened) > size:
            last = here.opened.pop()
            if here.special and here.special[-1] == len(here.opened):
                here.special.pop()
            if not last.counts:
                continue
            here.where[last.name].pop()
            self.depth -= 1
            if last.name in FORMATTING and self.alike[last] < ALIKE:
                self.left.append(last)
                self.waiting[last.name] += 1
                self.alike[last] += 1
                self.depth += 1

    def _close_scope(self) -> None:
        here = self.scopes[-1]
        self.marked |= here.name == "template"
        self._cut(here, 0)
        self.scopes.pop()
        self.foreign -= here.name in FOREIGN
        self.depth -= 1

    def _break_out(self) -> Scope:
        """SVG or MathML ends here. What is open in it is forgotten and counts on, for it may have ended before, and this be open in HTML.
        Where that may be, nothing that was open before is ended any more.
        """
        unsure = False
        while (here := self.scopes[-1]).name in FOREIGN:
            unsure |= here.unsure
            self.foreign -= 1
            self.scopes.pop()
        if unsure:
            self.foreign += 1
            here = Scope(unsure=True)
            self.scopes.append(here)
        return here

    def _end_p(self, here: Scope) -> None:
        if here.where["p"]:
            self._cut(here, here.where["p"][-1])

    def _forget_p(self, here: Scope) -> None:
        """A paragraph may have ended: its end is not waited for, and what is in it stays open."""
        for place in here.where["p"]:
            here.opened[place] = ENDLESS
            here.where[""].append(place)
        here.where["p"].clear()

    def _end_formatting(self, here: Scope, name: str) -> None:
        if self.waiting[name]:
            found = next(each for each in reversed(self.left) if each.name == name)
            self.left.remove(found)
            self.alike[found] -= 1
            self.waiting[name] -= 1
            self.depth -= 1
        elif here.where[name]:
            place = here.where[name][-1]
            if not here.special or here.special[-1] < place:  # else the block within stays open
                self._cut(here, place + 1)
            here.where[name].pop()
            here.opened[place] = ENDED
            self.depth -= 1


def too_deep(parts: list[str], most: int = MOST) -> bool:
    """Whether elements of a page, cut by `markup.tokens`, are nested more than `most` deep. The work is in proportion to the page."""
    names = parts[4::6]
    if len(names) + sum(content.count("<") for content in parts[3::6] if content) <= most:
        return False
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
            return True
    return False
