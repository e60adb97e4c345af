"""HTML into blocks of text, in one pass over its tags that makes no tree: flat lists of elements and of blocks.

A block is the text between two tags of block elements (or two `<br>`). An element knows its parent and which blocks lie within it, so that
sums over a subtree are differences of running sums. End tags that were left out are supplied as HTML does for paragraphs, list items and
tables; anything else that is misnested costs a wrong parent and no text. The work is linear in the size of the page, whatever it holds.
"""

from __future__ import annotations

import html as entities
import re
from dataclasses import dataclass, field
from functools import lru_cache

import re2

# Quotes count only behind an equals sign. Possessive, and ended by the end of the page: nothing is read twice.
ATTRIBUTES = r"""((?:[^>=]++|=\s*+"[^"]*+"|=\s*+'[^']*+'|=)*+)(?:>|\Z)"""
RAW = "script|style|textarea|title|iframe|noembed|noframes|xmp"  # tags within these are text
TOKEN = re.compile(
    rf"<(?:!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))|[!?][^>]*+(?:>|\Z)|/(?=[^a-zA-Z])[^>]*+(?:>|\Z)"
    rf"|(?i:({RAW}))(?=[\s/>]){ATTRIBUTES}((?:[^<]++|<(?!/(?i:\1)))*+)(?:</[^>]*+>|\Z)"
    rf"|(/?[a-zA-Z][^\s/>]*+){ATTRIBUTES})"
)
ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
VALUE = re.compile(r"""=\s*(?:"[^"]*"|'[^']*'|[^\s"'>][^\s>]*)""")
FOREIGN = frozenset(["svg", "math"])  # elements that hold other than HTML
VOID = frozenset([
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input", "keygen", "link", "meta", "param",
    "source", "track", "wbr",
])  # fmt: skip
# A raw element that may end with its own tag, where it is in SVG or MathML.
SELF_CLOSED = re.compile(rf"<(?:{RAW})[\s/][^<>]*+(?<=/)>", re.IGNORECASE)
# Where HTML begins again within each.
INNER = {"svg": frozenset(["desc", "foreignobject"]), "math": frozenset(["mi", "mn", "mo", "ms", "mtext"])}
# What ends SVG and MathML; `<font>` only with one of three attributes.
BREAKS_OUT = frozenset([
    "b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "font", "h1", "h2", "h3", "h4",
    "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s", "small", "span",
    "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var", "/br", "/p",
])  # fmt: skip
FONT = re.compile(r"(?:^|[\s/])(?:color|face|size)(?=[\s=/]|$)", re.IGNORECASE)
LOOK = 64  # elements that an end tag is looked for in, from the innermost


def self_closed(attributes: str) -> bool:
    """Whether a tag with these attributes ends in a slash that is not part of a value."""
    return attributes.endswith("/") and VALUE.sub("=", attributes).endswith("/")


def breaks_out(name: str, attributes: str) -> bool:
    """Whether a tag, its name in lower case and with "/" where it ends, ends the SVG or MathML that it stands in."""
    return name in BREAKS_OUT and (name != "font" or FONT.search(VALUE.sub("= ", attributes)) is not None)


def _follow(around: list[str], name: str, attributes: str) -> bool:
    """What is open of FOREIGN and INNER, the innermost last, behind a tag. Returns whether the tag has broken out."""
    inner = around[-1] if around else ""
    if inner in FOREIGN and breaks_out(name, attributes):
        while around and around[-1] in FOREIGN:
            around.pop()
        return True
    if name[0] == "/":
        if name[1:] in around[-LOOK:]:
            while around.pop() != name[1:]:
                pass
    elif (name in INNER.get(inner, FOREIGN) or name == inner) and not self_closed(attributes):
        around.append(name)
    return False


def tokens(page: str) -> list[str]:
    """A page cut at its tags: text; then for each tag, comment or raw element five parts and the text behind it.

    The five: name, attributes and content of a raw element; name, with "/" where it ends, and attributes of another tag. What is
    not there is None. Within SVG and MathML a raw element such as `<style/>` is another tag, for it ends at once.
    """
    if not SELF_CLOSED.search(page):
        return TOKEN.split(page)
    parts: list[str] = []
    around: list[str] = []
    begin = at = 0
    while found := TOKEN.search(page, at):
        raw, attributes, _, name, others = groups = found.groups()
        parts.append(page[begin : found.start()])
        at = found.end()
        if raw and around and around[-1] in FOREIGN and self_closed(attributes):
            groups = (None, None, None, raw, attributes)
            at = min(found.end(2) + 1, len(page))
        elif name:
            name = name.lower()
            if around or name in FOREIGN:
                _follow(around, name, others)
        parts += groups
        begin = at
    parts.append(page[begin:])
    return parts


def attributes_of(tag: str) -> dict[str, str]:
    """The attributes of a tag that have a value, by their name in lower case; of two with one name the first."""
    found: dict[str, str] = {}
    for name, *values in ATTRIBUTE.findall(tag):
        found.setdefault(name.lower(), entities.unescape("".join(values)))
    return found


# Elements that make a block of their own. A block's features have the number of its element here, so the order counts: those of prose,
# of reference (code, definitions, lists, tables), of pictures, of what stands around a text, and of forms lie side by side.
BLOCKS = (
    "body", "center", "main", "article", "section", "div", "p", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hgroup",
    "pre", "dl", "dt", "dd", "ul", "ol", "menu", "li", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td",
    "figure", "figcaption", "details", "summary", "address", "header", "aside", "nav", "footer", "search",
    "form", "fieldset", "legend", "label", "button", "dialog", "option", "select", "noscript", "svg", "template", "object", "audio",
    "video", "canvas", "math",
)  # fmt: skip
CODE = {name: number for number, name in enumerate(BLOCKS, 1)}
CUSTOM = 0  # an element such as <page-body>
# What the loop over the tags does with each.
NOTHING, INLINE, LINK, BREAK, BEGIN, END = range(6)
KIND: dict[str | None, int] = (
    {None: NOTHING, "a": LINK, "/a": LINK, "br": BREAK, "hr": BREAK}
    | {
        name: INLINE
        for each in ("span", "b", "i", "em", "strong", "font", "img", "html", "link", "meta")
        for name in (each, "/" + each)
    }
    | {name: BEGIN for name in BLOCKS}
    | {"/" + name: END for name in BLOCKS}
)
SAYS = 400  # characters of attributes that are looked at
SKIPPED = frozenset(["select", "svg", "template", "object", "audio", "video", "canvas", "button", "dialog"])
SPECIAL = SKIPPED | FOREIGN | {"pre"}
# What the start of an element ends, looking up to the given boundary: https://html.spec.whatwg.org/multipage/syntax.html#optional-tags
ENDS = {
    "li": (frozenset(["li"]), frozenset(["ul", "ol", "menu"])),
    "dt": (frozenset(["dt", "dd"]), frozenset(["dl"])),
    "dd": (frozenset(["dt", "dd"]), frozenset(["dl"])),
    "td": (frozenset(["td", "th"]), frozenset(["tr", "table"])),
    "th": (frozenset(["td", "th"]), frozenset(["tr", "table"])),
    "tr": (frozenset(["tr"]), frozenset(["table", "tbody", "thead", "tfoot"])),
    "tbody": (frozenset(["tbody", "thead", "tfoot"]), frozenset(["table"])),
    "tfoot": (frozenset(["tbody", "thead", "tfoot"]), frozenset(["table"])),
    "option": (frozenset(["option"]), frozenset(["select"])),
}
CELLS = frozenset(
    ["td", "th", "caption", "table"]
)  # an end tag within ends nothing outside, but tables and their parts
TABLE = frozenset(["td", "th", "tr", "tbody", "thead", "tfoot", "table", "caption"])

# What the words of a class, an id, a role or an itemprop say: one bit for each group.
GROUPS = {
    "comment": r"comment|disqus|respond|reply|replies|komentar|komentarz|kommentar|commentaire|livefyre|discussion",
    "share": r"shar(?:e|ing)|social|facebook|twitter|pinterest|whatsapp|linkedin|addthis|addtoany|sociable|follow|bookmark",
    "related": r"relat|recommend|similar|more[-_]?(?:news|stories|articles|posts|from|on|in)|read[-_]?(?:more|next|also)|also|trending"
    r"|popular|most[-_]?(?:read|viewed)|latest|recent|outbrain|taboola|teaser|suggest|(?:^|[-_ ])(?:next|prev)|upsell",
    "cards": r"card|carousel|slider|slide|swiper|tile|grid|promo",
    "ad": r"(?:^|[-_ ])ads?(?:[-_ \d]|$)|advert|adslot|adsense|sponsor|banner|dfp|marketing|partner|affiliate|commercial|reklam|werbung",
    "nav": r"nav|menu|toolbar|topbar|(?:^|[-_ ])tabs?(?:[-_ ]|$)|skip|jump",
    "crumb": r"crumb|pager|pagina|paging|(?:^|[-_ ])(?:toc|index)(?:[-_ ]|$)|contents-list",
    "side": r"side|rail|right[-_]?col|left[-_]?col|col(?:umn)?[-_]?right|col(?:umn)?[-_]?left|aside|secondary|complementary",
    "widget": r"widget|module|block|box|panel|plugin|container",
    "foot": r"foot|copyright|legal|bottom|disclaimer|colophon|imprint|contentinfo",
    "head": r"header|masthead|logo|brand|(?:^|[-_ ])top",
    "subscribe": r"subscri|newsletter|sign[-_]?up|log[-_]?in|register|paywall|email|(?:^|[-_ ])cta|call[-_]?to|donat|form"
    r"|search|survey|poll",
    "cookie": r"cookie|consent|gdpr|modal|popup|overlay|lightbox|notice|alert|dialog|tooltip|dropdown",
    "tags": r"(?:^|[-_ ])tag|categor|keyword|topic|label|filed|taxonomy",
    "meta": r"meta|date|time|byline|author|publish|posted|updated|credit|source|views|rating|info",
    "tools": r"print|tool|action|button|btn|icon|utility|control|vote|like",
    "media": r"caption|gallery|photo|image|img|picture|thumb|video|player|media|figure|embed|audio",
    "bio": r"(?:^|[-_ ])bio|about|profile|avatar|contributor|vcard|(?:^|[-_ ])user",
    "title": r"title|headline|heading|(?:^|[-_ ])(?:sub)?hed(?:[-_ ]|$)",
    "lead": r"subhead|subtitle|deck|(?:^|[-_ ])dek|lede|lead|standfirst|summary|abstract|intro|excerpt",
    "content": r"article[-_]*(?:body|text|content|copy)|(?:entry|post|story|page|main|body|field|text|rich|blog)[-_]*"
    r"(?:content|body|text|copy)"
    r"|prose|wysiwyg|markdown|mw-parser-output|entry|hentry|paragraph|copy",
    "article": r"article|story|post|content|main|blog|news|single|text|body|detail|description|product",
    "thread": r"answer|question|thread|message|topic|forum|review",
    "list": r"list|item|result|archive|feed|row|collection|stream",
}  # fmt: skip
BIT = {name: 1 << number for number, name in enumerate(GROUPS)}
NAMED = re.compile(r"""\b(?:class|id|role|itemprop)\s*=\s*(?:"([^"]*)|'([^']*)|([^\s"'>]+))""", re.IGNORECASE)
CONCEALS = re.compile(
    r"""(?<![-\w])hidden(?![-\w:;])|aria-hidden\s*=\s*["']?true|display\s*:\s*none|visibility\s*:\s*hidden""",
    re.IGNORECASE,
)
HIDDEN = 1 << len(GROUPS)
# Elements that a block may lie in, one bit each.
AROUND = (
    "aside", "nav", "footer", "header", "form", "figure", "figcaption", "article", "main", "section", "li", "ul", "ol", "table", "td", "th",
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "dl", "address", "center", "label", "fieldset", "details",
    "noscript",
)  # fmt: skip
WITHIN = {name: HIDDEN << number for number, name in enumerate(AROUND, 1)}


def _matcher() -> re2.Set:
    options = re2.Options()
    options.case_sensitive = False
    words = re2.Set.SearchSet(options)
    for group in GROUPS.values():
        words.Add(group)
    words.Compile()
    return words


MATCHER = _matcher()


@lru_cache(maxsize=16384)
def said(attributes: str) -> int:
    """The bits of GROUPS that the attributes of a tag name, and HIDDEN."""
    bits = HIDDEN if ("hidden" in attributes or "none" in attributes) and CONCEALS.search(attributes) else 0
    words = " ".join("".join(values) for values in NAMED.findall(attributes))
    if words:
        for number in MATCHER.Match(words) or ():
            bits |= 1 << number
    return bits


@dataclass(slots=True)
class Markup:
    """The elements and the blocks of a page, each in the order of the page.

    Elements, number 0 being the page: `parent`, `code` (number in BLOCKS), `own` and `bits` (what the element says, what it and those
    around it say), `first` and `last` (its blocks are [first, last)). Blocks: `text` (white space folded but in <pre>; a line for each
    <br>), `node` (the element), `links` and `linked` (number of links and characters in them), `marks` (inline tags).
    """

    parent: list[int] = field(default_factory=lambda: [0])
    code: list[int] = field(default_factory=lambda: [0])
    own: list[int] = field(default_factory=lambda: [0])
    bits: list[int] = field(default_factory=lambda: [0])
    first: list[int] = field(default_factory=lambda: [0])
    last: list[int] = field(default_factory=lambda: [0])
    text: list[str] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    linked: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


def _plain(pieces: list[str], raw: bool) -> str:
    """The text of a block's pieces; "\\x00" is a line break."""
    text = "".join(pieces)
    if "&" in text:
        text = entities.unescape(text)
    if raw:
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\n").strip("\n").rstrip()
    if "\x00" in text:
        return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\x00"))))
    return " ".join(text.split())


def read(parts: list[str]) -> Markup:
    """The elements and blocks of a page that `tokens` has cut."""
    out = Markup()
    parent, code, own, bits, first, last = out.parent, out.code, out.own, out.bits, out.first, out.last
    texts, nodes, links, linked, marks = out.text, out.node, out.links, out.linked, out.marks
    names: list[str] = [""]  # of the open elements, the innermost last
    open_: list[int] = [0]
    number: dict[str, int] = {}
    skipping = pre = 0  # how many open elements hide their text, or keep its white space
    pieces: list[str] = []
    in_link = False
    link_count = link_chars = mark_count = breaks = 0
    here = 0

    def flush() -> None:
        nonlocal link_count, link_chars, mark_count, breaks
        text = _plain(pieces, pre > 0)
        pieces.clear()
        if text and not text.isspace():
            texts.append(text)
            nodes.append(here)
            links.append(link_count)
            linked.append(link_chars)
            marks.append(mark_count)
        link_count, link_chars, mark_count, breaks = int(in_link), 0, 0, 0

    def end(size: int) -> None:
        """Close open elements until so many are left."""
        nonlocal skipping, pre
        now = len(texts)
        while len(names) > size:
            name = names.pop()
            number[name] -= 1
            last[open_.pop()] = now
            if name in SKIPPED:
                skipping -= 1
            elif name == "pre":
                pre -= 1

    around: list[str] = []
    sizes: list[int] = []  # how many elements are open outside of each of these

    def follow(name: str, attributes: str) -> None:
        """A tag that begins SVG or MathML or stands in it. What breaks out of it ends it."""
        nonlocal here
        before = len(names) - (name in FOREIGN)  # these are open already
        while sizes and sizes[-1] >= before:  # ended with what is around it
            sizes.pop()
            around.pop()
        broken = _follow(around, name, attributes)
        while len(sizes) > len(around):
            before = sizes.pop()
        if broken:
            if pieces:
                flush()
            end(before)
            here = open_[-1]
        elif len(sizes) < len(around):
            sizes.append(before if name in FOREIGN else sizes[-1])

    if not parts[0].isspace():
        pieces.append(parts[0])
    for name, attributes, text in zip(parts[4::6], parts[5::6], parts[6::6], strict=True):
        kind = KIND.get(name)
        if kind is None:
            name = name.lower()
            kind = KIND.get(name, INLINE if "-" not in name else END if name[0] == "/" else BEGIN)
        if kind == BEGIN and name in FOREIGN:
            if self_closed(attributes):
                kind = NOTHING
        elif around and name:
            follow(name, attributes)
        if kind == BEGIN:
            if pieces:
                flush()
            if names[-1] == "p" and name != "option":
                end(len(names) - 1)
            elif name in ENDS:
                at = len(names) - 1
                ended, boundary = ENDS[name]
                for inner in reversed(names[-LOOK:]):
                    if inner in ended:
                        end(at)
                        break
                    if inner in boundary or inner == "table":
                        break
                    at -= 1
            above = open_[-1]
            mine = WITHIN.get(name, 0)
            if len(attributes) > 5:
                mine |= said(attributes if len(attributes) < SAYS else attributes[:SAYS])
            here = len(parent)
            parent.append(above)
            code.append(CODE.get(name, CUSTOM))
            own.append(mine)
            bits.append(bits[above] | mine)
            first.append(len(texts))
            last.append(-1)
            names.append(name)
            open_.append(here)
            number[name] = number.get(name, 0) + 1
            if name in SPECIAL:
                skipping += name in SKIPPED
                pre += name == "pre"
                if name in FOREIGN:
                    follow(name, attributes)
        elif kind == END:
            if pieces:
                flush()
            inner = name[1:]
            if number.get(inner):
                if names[-1] == inner and inner not in SPECIAL:  # as `end` does, for speed
                    names.pop()
                    number[inner] -= 1
                    last[open_.pop()] = len(texts)
                else:
                    at = len(names) - 1
                    table = inner in TABLE
                    for other in reversed(names[-LOOK:]):
                        if other == inner:
                            end(at)
                            break
                        if not table and other in CELLS:
                            break
                        at -= 1
                here = open_[-1]
        elif kind == INLINE:
            mark_count += 1
        elif kind == LINK:
            in_link = name in ("a", "A") and "href" in attributes
            link_count += in_link
        elif kind == BREAK and pieces:
            breaks += 1
            if breaks > 1 and not pre:
                flush()
            else:
                pieces.append("\x00")
        if text and not skipping:
            if not text.isspace():
                if in_link:
                    link_chars += len(text)
                breaks = 0
                pieces.append(text)
            elif pieces:
                pieces.append(text)
    if pieces:
        flush()
    end(1)
    last[0] = len(texts)
    return out
