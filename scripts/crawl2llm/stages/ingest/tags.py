"""What the tags of HTML mean for the text of a page: which make blocks, which hide text, what their attributes say.

Tables for the loops that read a page (stages/ingest/native), and the few functions that these call.
"""

from __future__ import annotations

import re

import re2

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
ALIKE = {"dir": "ul", "listing": "pre", "plaintext": "pre", "xmp": "pre"}  # obsolete elements that are shown as another
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary", "legend", "caption")
# What is done with an element (native/reading.pxi). By https://html.spec.whatwg.org/multipage/dom.html#phrasing-content what may stand
# within a paragraph never cuts one: it is text of it (INLINE, EITHER), or it is not read (SKIP, NOTHING).
NOTHING, INLINE, LINK, BREAK, RULE, BLOCK, SKIP, EITHER, BUTTON, DIALOG, TEMPLATE, RAISED = range(12)
# Not shown (NOTHING), or shown and no text of the page: a picture, a control, what stands in for another medium (SKIP).
UNREAD_TAGS = (
    "head",
    "title",
    "script",
    "style",
    "noframes",
    "noembed",
    "iframe",
    "textarea",
    "datalist",
    "annotation",
    "annotation-xml",
)
SKIPPED_TAGS = ("select", "svg", "object", "audio", "video", "canvas")
# Within a text each is a part of it; with a block within, or in one of PLACES with no text beside it, it is a block. An element such as
# <page-body> is one only with a block within.
IN_TEXT = ("label", "noscript", "math")
PLACES = (
    "body", "center", "main", "article", "section", "div", "form", "fieldset", "details", "dialog", "figure", "header", "footer", "aside",
    "nav", "search",
)  # fmt: skip
KIND: dict[str, int] = (
    {name: BLOCK for name in (*BLOCKS, *ALIKE)}
    | {name: NOTHING for name in UNREAD_TAGS}
    | {name: SKIP for name in SKIPPED_TAGS}
    | {name: EITHER for name in IN_TEXT}
    | {"a": LINK, "br": BREAK, "hr": RULE, "button": BUTTON, "dialog": DIALOG, "template": TEMPLATE, "sup": RAISED}
    | {name: INLINE for name in ("html", "meta", "link", "time", "area", "span", "img", "mi", "sub")}
)
ASKED = ("title", "meta", "link", "html", "time", "script", "a", "area")  # elements that say something of the page
# Attributes that are asked for: those that say something of a block, of a page's head, and of lists (the last three, and `type`).
ATTRIBUTES = (
    "class", "id", "role", "itemprop", "style", "hidden", "aria-hidden", "href", "open", "shadowrootmode", "type",
    "name", "property", "content", "http-equiv", "rel", "lang", "xml:lang", "pubdate", "datetime", "start", "value", "reversed",
)  # fmt: skip
# A page whose tree is known: it has each element of KIND, and each of ATTRIBUTES.
_VOID = ("br", "hr", "meta", "link", "area", "img")
_PLACED_TAGS = (
    "html",
    "head",
    "body",
    "title",
    "caption",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "th",
    "td",
    "plaintext",
    "template",
    "mi",
)
PROBE = (
    f"<!doctype html><html lang=a><head><title>b &amp; c</title></head><body {' '.join(f'{name}=x' for name in ATTRIBUTES)}>"
    + "".join(
        f"<div>a<{name}>" if name in _VOID else f"<div><{name} id=b class>c</{name}>d</div>"
        for name in KIND
        if name not in _PLACED_TAGS and not name.startswith("annotation")
    )
    + "<svg><title>e</title></svg><math><mi>f</mi><annotation>g</annotation><annotation-xml>h</annotation-xml></math>"
    + "<a-name-of-many-letters data-name-of-many-letters=x>\u2603</a-name-of-many-letters><template><p>within</template>"
    + "<table><caption>i</caption><thead><tr><th>j</th></tr></thead><tbody><tr><td>k</td></tr></tbody><tfoot></tfoot></table>"
    + "<plaintext>l"
)
# Characters that are not seen, and cut words in two for whoever counts them: the soft hyphen, U+200B, the word joiner in its two forms.
UNSEEN = "\u00ad\u200b\u2060\ufeff"
# U+200B stays between two characters of the scripts that have no spaces between words, where it is what a space is elsewhere: Thai, Lao,
# Myanmar, Khmer, Tai (class SA of https://www.unicode.org/reports/tr14/), in rows of 64.
UNSPACED = "\u0e00-\u0eff\u1000-\u10bf\u1780-\u17ff\u1940-\u1abf\ua9c0-\ua9ff\uaa40-\uaabf"
# What a <sup> may hold that is read as a number, as an expression, or else as a letter of one. Other letters are the end of an
# abbreviation or an ordinal (1st, XIXe, Mme).
_NUMBER = re.compile(r"[+\-\u2212\u2013\u00b1]?\d[\d.,;*+\-\u2212\u2013]*")
_EXPRESSION = re.compile(r"[\w+\-\u2212\u2013*/=.,\u00b7 ]*[\w]")
_LETTERS = frozenset("ijknpquvwxyzNTβγδεθλμνπρστφχψω")

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
CONCEALS = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
HIDDEN = 1 << len(GROUPS)
# Elements that a block may lie in, one bit each.
AROUND = (
    "aside", "nav", "footer", "header", "form", "figure", "figcaption", "article", "main", "section", "li", "ul", "ol", "table", "td", "th",
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "dl", "address", "center", "label", "fieldset", "details",
    "noscript",
)  # fmt: skip
WITHIN = {name: HIDDEN << number for number, name in enumerate(AROUND, 1)}


def _make_matcher() -> re2.Set:
    options = re2.Options()
    options.case_sensitive = False
    words = re2.Set.SearchSet(options)
    for group in GROUPS.values():
        words.Add(group)
    words.Compile()
    return words


MATCHER = _make_matcher()


def _matched_bits(words: str) -> int:
    bits = 0
    for number in MATCHER.Match(words) or ():
        bits |= 1 << number
    return bits


def name_bits(words: str) -> int:
    """The bits of GROUPS that the words of a class, an id, a role or an itemprop name, and HIDDEN for the word `hidden`."""
    parts = words.split()
    return _matched_bits(" ".join(parts)) | (HIDDEN if "hidden" in parts else 0)


def raised_mark(before: str, text: str, numerator: bool) -> str:
    """What is written between a text and a <sup> that follows it: `10^6`, `e^(n+1)`, `5 1/2`; nothing in `1st`, `word[1]`, `Brand™`.

    before: the last characters of the text, two or more if it has so many. text: what the element holds. numerator: whether a slash and a
    <sub> follow. `^(` asks for a bracket behind the element too.
    """
    last = before[-1:]
    if last.isspace() or not text:
        return ""
    if numerator:
        return " " if last.isdigit() else ""
    if _NUMBER.fullmatch(text):
        return "" if last in ",." and before[-2:-1].isdigit() else "^"  # 59,00 has its cents raised
    if text in _LETTERS:
        return "^"
    return "^(" if _EXPRESSION.fullmatch(text) and not text.replace(".", "").replace(" ", "").isalpha() else ""


def conceals(style: str) -> int:
    """HIDDEN if a style says that an element is not shown, else 0."""
    return HIDDEN if CONCEALS.search(style) else 0
