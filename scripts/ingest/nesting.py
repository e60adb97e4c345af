"""How deep the elements of a page are nested: a bound before it is parsed, and the sum over a parser's tree.

A parser of the HTML standard looks through its open elements at most tags, so 100,000 nested elements take it minutes, and Resiliparse
goes through each node and its text again for most of its ancestors to find the main content: 10,000 short paragraphs that are 1,000 deep
take it 0.5 s, 1 MB of text there 10 s. So what is bounded are sums of depths, not the greatest.
"""

from __future__ import annotations

from typing import NamedTuple

from resiliparse.parse.html import DOMContext, HTMLTree, traverse_dom

from scripts.ingest.tags import BREAKS_OUT, FOREIGN, VOID, self_closed

# Elements that a parser opens again behind the end of what they were left open in.
FORMATTING = frozenset([
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
])  # fmt: skip
# Elements within which the start of a raw element may make no such element, so that what looks like its text is tags: all are elements in
# SVG and MathML; a template drops most starts where it has held a column, a frameset always.
HOLDING = FOREIGN | {"template", "frameset"}
# What a start tag ends, outside of these.
ENDED_BY = {
    "p": frozenset(["p"]), "li": frozenset(["li"]), "option": frozenset(["option"]), "dt": frozenset(["dt", "dd"]),
    "dd": frozenset(["dt", "dd"]), "td": frozenset(["td", "th"]), "th": frozenset(["td", "th"]), "tr": frozenset(["td", "th", "tr"]),
}  # fmt: skip
# What an end tag ends with its own element, where nothing else is between.
ENDED_WITH = {
    "div": frozenset(["p"]), "ul": frozenset(["li", "p"]), "ol": frozenset(["li", "p"]), "dl": frozenset(["dt", "dd", "p"]),
    "table": frozenset(["td", "th", "tr"]), "select": frozenset(["option"]),
}  # fmt: skip
LEFT_OPEN = 3  # elements at most that an end tag ends with its own: more would be work for each tag
# Elements looked through by a parser, up to 6 ns each, 25 where attributes are compared; 2,700,000 on the worst of 1,200 real pages.
STEPS = 40_000_000
# The sum over all nodes of a tree of depth * (NODE + characters), 10 ns each; 4,000,000 on the worst of 400 real pages. 20 MB of text
# may be 4 deep, 8,000 elements may be nested, or 100,000 nodes lie 300 deep.
DEPTHS = 100_000_000
NODE = 3
ROOT = 4  # the depth of what is in the body: document, html, body


class Bound(NamedTuple):
    """At most so many open elements are looked through, are open at once, and (with their attributes) opened again.

    texts: the sum over all texts of their depth and characters, at most.
    """

    steps: int
    depth: int
    again: int
    texts: int


def attributes_at_most(tag: str) -> int:
    """An upper bound of the number of attributes: each begins a word, or stands behind the value of another."""
    return len(tag.replace("/", " ").split()) + tag.count("=")


def open_elements(parts: list[str]) -> Bound:
    """Upper bounds for a page, cut by `markup.tokens`.

    An element is open until its own end tag comes when all that began in it has ended; no parser can fail to end it then, whatever it made
    of the tags before. Other end tags end nothing here but what is in ENDED_WITH, and start tags only what is in ENDED_BY. A parser may
    open two more elements for one, as `<tbody><tr>` for a cell.
    """
    opened: list[str] = []
    sizes: list[int] = []  # of the formatting elements among them
    outside: list[int] = []  # places of HOLDING among them
    steps = depth = again = texts = left = 0  # left: the sum of sizes
    loose = 0  # elements that may be open, of which no end is waited for
    # Behind a template, Resiliparse's parser keeps elements that have ended among those that it opens again.
    template = False
    every = zip(parts[1::6], parts[3::6], parts[4::6], parts[5::6], parts[6::6], strict=True)
    for raw, content, name, attributes, text in every:
        if raw:
            texts += (len(opened) + loose + ROOT) * len(content)
            if outside and "<" in content:
                hidden = content.count("<") + 1
                loose += hidden
                left += len(content)
                steps += hidden * (len(opened) + loose)
                again += hidden * left
        elif name:
            name = name.lower()
            if name[0] == "/":
                if opened and opened[-1] == name[1:]:
                    opened.pop()
                    if name[1:] in FORMATTING:
                        size = sizes.pop()
                        left -= 0 if template else size
                    elif outside and outside[-1] == len(opened):
                        outside.pop()
                elif name[1:] in ENDED_WITH and not outside:
                    at = -1
                    while at >= -LEFT_OPEN and at > -len(opened) and opened[at] in ENDED_WITH[name[1:]]:
                        at -= 1
                    if opened and opened[at] == name[1:]:
                        del opened[at:]
            elif name in VOID:
                loose += bool(outside) and name not in BREAKS_OUT
            elif outside and self_closed(attributes):
                loose += 1
            else:
                if name in ENDED_BY and not outside:
                    while opened and opened[-1] in ENDED_BY[name]:
                        opened.pop()
                if name in HOLDING:
                    template |= name == "template"
                    outside.append(len(opened))
                elif name in FORMATTING:
                    loose += template
                    size = 2 + len(attributes) // 2  # an attribute takes two characters
                    # Compared with those that are left, but a link ends the one before.
                    others = template * loose + (0 if name in ("a", "nobr") else len(sizes))
                    if others:
                        steps += others * attributes_at_most(attributes) ** 2
                    left += size
                    sizes.append(size)
                opened.append(name)
        here = len(opened) + loose
        steps += here
        texts += (here + ROOT) * len(text)
        again += left
        if here > depth:
            depth = here
    return Bound(steps, depth, again, texts)


class _TooDeep(Exception):
    pass


def too_deep(tree: HTMLTree, tags: int, bound: Bound, most: int = DEPTHS) -> bool:
    """Whether a tree is too deep for its nodes and texts. tags, bound: of its page.

    Nodes are looked at (8 µs each) only where the bound leaves it open; each tag may have a text before it, or be a comment.
    """
    root = tree.document
    if root is None:
        return False
    nodes = len(root.query_selector_all("*")) + 2 * (tags + bound.depth)
    if 2 * (NODE * nodes * (bound.depth + ROOT) + bound.texts) <= most:
        return False
    total = 0

    def add(context: DOMContext) -> None:
        nonlocal total
        text = getattr(context.node, "node_value", None)
        total += context.depth * (NODE + (len(text) if text else 0))
        if total > most:
            raise _TooDeep

    try:
        traverse_dom(root, add)
    except _TooDeep:
        return True
    return False
