"""A page of XML as one of HTML, for a parser of HTML: <script/> is an empty element in XML, and an open one in HTML.

https://www.w3.org/TR/xhtml1/#guidelines names the differences. Only the type application/xhtml+xml makes a browser read a page as XML; an
XML declaration does not.
"""

from __future__ import annotations

import html
import re

TYPE = "application/xhtml+xml"
# Elements that HTML gives no end tag: https://html.spec.whatwg.org/multipage/syntax.html#void-elements
VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
ATTRIBUTES = r"""(?:[^<>"'/]++|"[^"<]*+"|'[^'<]*+'|/(?!>))*+"""
# Comments, instructions, CDATA and raw elements go to their ends or that of the page, and a tag ends before the next `<`: the work is
# linear.
MARKUP = re.compile(
    r"<!--(?:.*?-->|.*+)|<\?(?:.*?\?>|.*+)|<!\[CDATA\[(?P<data>.*?)(?:\]\]>|\Z)"
    rf"|<(?P<raw>script|style)(?=[\s>/]){ATTRIBUTES}>(?:.*?</(?P=raw)\s*+>|.*+)"
    rf"|<(?P<name>[A-Za-z_][^\s<>\"'/]*+)(?P<attributes>{ATTRIBUTES})/>|</(?P<end>{VOID})\s*+>",
    re.DOTALL,
)
EMPTY = frozenset(VOID.split("|"))


def as_html(page: str) -> str:
    """The page with an end tag for each empty element, sections of CDATA as text, and without end tags of HTML's void elements."""
    return MARKUP.sub(_replace_match, page)


def _replace_match(match: re.Match[str]) -> str:
    if match["name"]:
        end = "" if match["name"] in EMPTY else f"</{match['name']}>"
        return f"<{match['name']}{match['attributes']}>{end}"
    if match["data"] is not None:
        return html.escape(match["data"], quote=False)
    return "" if match["end"] else match[0]
