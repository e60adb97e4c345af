"""From the bytes of a page to a Unicode string, as browsers read them: labels, `meta` tags and decoders of the WHATWG standards."""

from __future__ import annotations

import codecs
import re

import endec
import webencodings
from resiliparse.parse.encoding import detect_encoding

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
STRAY = re.compile("[\udc80-\udcff]{1,4}")  # bytes that are no UTF-8, as Python's surrogateescape shows them
LONGEST_DAMAGE = 5
NOT_ASCII = bytes(range(128, 256))
# UTF-8 is damaged, and no other encoding, if so many characters beyond ASCII are whole for each damaged place. Pages in other
# encodings have whole ones by chance: 915 pages in English, Polish, Greek, Russian and Chinese, written in each of 25 legacy
# encodings that hold their characters, had at most 1.8 for each damaged place.
WHOLE_RATIO = 4
UNDECLARED_RATIO = 40  # the same if UTF-8 is not declared
# English has few characters beyond ASCII, so few can be whole. A declaration is also believed if one is, and if
# there are so many bytes for each damaged place. Real damaged pages had 22,000 and more. Of 9,642 pages written in 27
# legacy encodings 60 would pass by chance, most of them long ones in EUC-JP or GB18030 with little but ASCII; at 250
# bytes 116 would, at 2,000 still 31.
RARE_DISTANCE = 1000
# A declared charset fails if more than this share of a page's characters beyond ASCII are errors, the first not counted. Of 643
# passages of 200 and 2,000 characters in 34 legacy encodings with 0.2 % of bad bytes none fails under its right label (at 1 % of
# bad bytes 0.5 % do), of 20,127 under a wrong one 25 % do (benchmarks/charsets.py; docs/stages/ingest.md has the other shares).
FAILED_SHARE = 0.05
# Names of uchardet that are no labels of the standard. KOI8-U has the letters of KOI8-R, and four Ukrainian ones.
GUESSES = {
    "cp949": "euc-kr",
    "euc_jp": "euc-jp",
    "iso2022_jp": "iso-2022-jp",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi8-u",
    "mac-cyrillic": "x-mac-cyrillic",
}
NOT_PLAIN = re.compile(rb"[\x1b\x80-\xff]")
CONTEXT = 256
FALLBACK = "windows-1252"  # the standard's, for most locales

# Bytes in which browsers look for a declaration before they parse. One that the parser meets later counts as well, so the
# search goes on: to the body or HEAD. Of the 1,174 pages of the labelled crawl that declare a charset
# in a tag, 139 do so after PRESCAN bytes.
PRESCAN, HEAD = 1024, 1 << 16
# WHATWG HTML, 13.2.3.2: "prescan a byte stream to determine its encoding", "get an attribute".
MARKUP = re.compile(rb"<(?:(!--)|(meta[\t\n\f\r /])|/?[a-z][^\t\n\f\r >]*|[!/?])", re.IGNORECASE)
ATTRIBUTE = re.compile(
    rb"""[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r /=>]*)"""
    rb"""(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)(?:"|\Z)|'([^']*)(?:'|\Z)|([^\t\n\f\r >"'][^\t\n\f\r >]*)|(?=>)|\Z))?"""
)
# "Algorithm for extracting a character encoding from a meta element"
CONTENT = re.compile(
    rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|(?=["'])|([^\t\n\f\r ;]*))""", re.IGNORECASE
)
# "Get an XML encoding"
XML = re.compile(rb"""encoding[\0-\x20]*=[\0-\x20]*(?:"([^\0-\x20"]+)"|'([^\0-\x20']+)')""")


def charset_of(label: bytes | str | None) -> str | None:
    """The standard's name of a label, in lower case; None for no label and for one that the standard does not have."""
    text = label.decode("latin-1") if isinstance(label, bytes) else label or ""
    encoding = webencodings.lookup(text)
    return encoding.name if encoding else None


def decode_as(body: bytes, charset: str) -> str:
    """The text of `body` by the standard's decoder of `charset`, a name of `charset_of`: U+FFFD for each error.

    A byte-order mark is a character here. No bytes raise an error.
    """
    return endec.decode(body, charset, "replace", bom="ignore")


def parse_attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """(the attributes of a tag from byte `at` on, names in lower case, the first of each name; if they end)."""
    values: dict[bytes, bytes] = {}
    while match := ATTRIBUTE.match(head, at):
        name, *quoted_or_not = match.groups()
        values.setdefault(name.lower(), next((value for value in quoted_or_not if value is not None), b""))
        at = match.end()
    return values, at


def meta_charset(tag: dict[bytes, bytes]) -> str | None:
    """The charset that the attributes of a `meta` element declare."""
    if b"charset" in tag:
        return charset_of(tag[b"charset"])
    content = CONTENT.search(tag.get(b"content", b""))
    if content and tag.get(b"http-equiv", b"").lower() == b"content-type":
        return charset_of(next((label for label in content.groups() if label is not None), None))
    return None


def prescan_charset(head: bytes) -> str | None:
    """The charset that the first bytes of a page declare, in a `meta` tag or else the XML declaration.

    WHATWG HTML, 13.2.3.2. A tag that is read as ASCII is in no page in UTF-16: such a label is UTF-8.
    """
    if head.startswith((b"<\0?\0x\0", b"\0<\0?\0x")):
        return "utf-16le" if head[0] else "utf-16be"
    at, last = 0, max(0, head.lower().rfind(b"charset"))  # no tag after the last one declares anything
    while match := MARKUP.search(head, at, last):
        if match.group(1) or match.group() in (b"<!", b"</", b"<?"):
            end = b"-->" if match.group(1) else b">"
            at = head.find(end, match.start() + 2) + len(end)
            if at < len(end):
                break
        elif match.start() >= PRESCAN and match.group().lower() == b"<body":
            break
        else:
            tag, at = parse_attributes(head, match.end())
            # A tag that does not end within these bytes declares nothing.
            charset = meta_charset(tag) if match.group(2) and at < len(head) else None
            if charset:
                return {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": FALLBACK}.get(charset, charset)
    declaration, closed, _ = head.partition(b">")
    label = XML.search(declaration) if closed and declaration.startswith(b"<?xml") else None
    charset = charset_of(label and (label.group(1) or label.group(2)))
    return "utf-8" if charset and charset.startswith("utf-16") else charset


def guess_charset(body: bytes) -> str:
    """The charset that uchardet finds in the bytes; FALLBACK if it is none of the standard's.

    It samples 64 KiB at each end of what it gets: the page from shortly before its first byte that is not plain ASCII.
    """
    first = NOT_PLAIN.search(body)
    start = max(0, first.start() - CONTEXT) if first else 0
    name = (detect_encoding(body[start:], html5_compatible=False) or "").lower()
    return charset_of(GUESSES.get(name, name)) or FALLBACK


def utf8_damage(body: bytes) -> tuple[int, int, bool]:
    """(characters beyond ASCII that are whole, damaged places, whether there is one place only) of a body read as UTF-8.

    A place is a run of up to four bytes that belong to no character. One stray byte within a character of four bytes
    leaves damage within five (LONGEST_DAMAGE).
    """
    text = body.decode("utf-8", "surrogateescape")
    rest, places = STRAY.subn("", text)
    whole = len(rest) - len(body.translate(None, NOT_ASCII))
    strays = [match.span() for match in STRAY.finditer(text)] if len(text) - len(rest) <= LONGEST_DAMAGE else []
    return whole, places, bool(strays) and strays[-1][1] - strays[0][0] <= LONGEST_DAMAGE


def has_many_errors(text: str) -> bool:
    """Whether more of a decoded page are errors than stray bytes explain (FAILED_SHARE)."""
    errors = text.count("\ufffd")
    return errors > 1 and errors - 1 > FAILED_SHARE * (len(text) - len(text.encode("ascii", "ignore")))


def decode_text(body: bytes, header: str | None) -> tuple[str, str, str]:
    """(text, charset, where the charset came from) of an HTML body.

    In this order: byte-order mark of UTF-16; UTF-8 if bytes beyond ASCII are valid UTF-8 (which text in another encoding
    almost never is, whatever it declares), or nearly so (WHOLE_RATIO, RARE_DISTANCE); the Content-Type header; the meta tag or XML
    declaration; UTF-8 that is declared, with a single damaged place; the bytes themselves (uchardet). A declared charset
    is ignored if it fails (FAILED_SHARE). What cannot be decoded is U+FFFD, and the third value ends with "with replacements".
    """
    mark, marked = next((pair for pair in BOMS if body.startswith(pair[0])), (b"", ""))
    body = body.removeprefix(mark)
    if marked.startswith("utf-16"):
        return _decoding_result(decode_as(body, marked), marked, "byte-order mark")
    places, rare, single = 0, False, False
    if marked or not body.isascii():
        try:
            return body.decode(), "utf-8", "byte-order mark" if marked else "bytes"
        except UnicodeDecodeError:
            whole, places, single = utf8_damage(body)
            rare = whole >= 1 and len(body) >= places * RARE_DISTANCE
    labels = (
        (marked, "byte-order mark"),
        (charset_of((header or "").strip(" \"'")), "header"),
        (prescan_charset(body[:HEAD]), "meta"),
    )
    utf8 = next((where for charset, where in labels if charset == "utf-8"), None)
    if places and (whole >= places * (WHOLE_RATIO if utf8 else UNDECLARED_RATIO) or (utf8 and rare)):
        return _decoding_result(decode_as(body, "utf-8"), "utf-8", utf8 or "bytes")
    for charset, where in labels:
        # UTF-16 reads almost any bytes: it must also look like text, so NUL bytes must have been there. The charsets that the
        # standard replaces by one U+FFFD have ASCII bytes alone.
        if (
            not charset
            or (charset == "utf-8" and places)
            or (charset.startswith("utf-16") and b"\0" not in body[:4096])
            or (charset == "replacement" and not body.isascii())
        ):
            continue
        text = decode_as(body, charset)
        if not has_many_errors(text):
            return _decoding_result(text, charset, where)
    if utf8 and single:
        return _decoding_result(decode_as(body, "utf-8"), "utf-8", utf8)
    charset = guess_charset(body)
    return _decoding_result(decode_as(body, charset), charset, "bytes")


def _decoding_result(text: str, charset: str, where: str) -> tuple[str, str, str]:
    return text, charset, f"{where}, with replacements" if "\ufffd" in text else where
