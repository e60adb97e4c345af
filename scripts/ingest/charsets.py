"""From the bytes of a page to a Unicode string: which charset they are in."""

from __future__ import annotations

import codecs
import re

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

META_CHARSET = re.compile(rb"""<meta[^>]{0,256}?charset\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{2,40})""", re.IGNORECASE)
XML_CHARSET = re.compile(rb"""^\s*<\?xml[^>]{0,128}?encoding\s*=\s*["']([a-zA-Z0-9_.-]{2,40})""")
# What browsers read under these labels (WHATWG Encoding): supersets of the codecs that Python has by the same name.
WIDER = {"shift_jis": "cp932", "euc_kr": "cp949", "gbk": "gb18030", "big5": "cp950", "iso8859-11": "cp874"}
# Python codecs that are no charset of a page; decoding long input with some of them takes quadratic time.
NO_CHARSET = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
STRAY = re.compile("[\udc80-\udcff]{1,4}")  # bytes that are no UTF-8, as Python's surrogateescape shows them
# UTF-8 is damaged, and no other encoding, where so many characters beyond ASCII are whole for each damaged place. Pages in other
# encodings have whole ones by chance: 915 pages in English, Polish, Greek, Russian and Chinese, written in each of 25 legacy
# encodings that hold their characters, had at most 1.8 for each damaged place.
WHOLE = 4
UNDECLARED = 40  # the same where UTF-8 is not declared
# English has few characters beyond ASCII, so few can be whole. A declaration is also believed where one is, and where
# there are so many bytes for each damaged place. Real damaged pages had 22,000 and more. Of 9,642 pages written in 27
# legacy encodings 60 would pass by chance, most of them long ones in EUC-JP or GB18030 with little but ASCII; at 250
# bytes 116 would, at 2,000 still 31.
RARE = 1000


def _known(label: bytes | str | None) -> str | None:
    """The Python codec for a charset label of the web, or None for one that no codec reads."""
    if not label:
        return None
    text = label.decode("ascii", "ignore") if isinstance(label, bytes) else label
    text = text.strip().strip("\"'")
    found = map_encoding_to_html5(text, fallback_utf8=False) or text
    try:
        if codecs.lookup(found).name in NO_CHARSET:
            return None
        "".encode(found)
    except (LookupError, UnicodeError, ValueError):
        return None
    return WIDER.get(found, found)


def _strictly(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def damage(body: bytes) -> tuple[int, int, bool]:
    """(characters beyond ASCII that are whole, damaged places, whether there is one place only) of a body read as UTF-8.

    A place is a run of up to four bytes that belong to no character. One stray byte within a character of four bytes
    leaves damage within five.
    """
    text = body.decode("utf-8", "surrogateescape")
    places = lost = first = last = 0
    for match in STRAY.finditer(text):
        first = first if places else match.start()
        last, places, lost = match.end(), places + 1, lost + match.end() - match.start()
    whole = len(text) - lost - len(body.translate(None, bytes(range(128, 256))))
    return whole, places, 0 < last - first <= 5


def decode_text(body: bytes, header: str | None) -> tuple[str, str, str]:
    """(text, charset, where the charset came from) of an HTML body.

    In this order: byte-order mark; UTF-8 where bytes beyond ASCII are valid UTF-8 (which text in another encoding almost
    never is, whatever it declares), or nearly so (WHOLE, RARE); the Content-Type header; the meta tag or XML
    declaration; UTF-8 that is declared, with a single damaged place; the bytes themselves (uchardet). A declared charset under which the
    bytes are not valid is ignored. Damaged UTF-8 and the last resort have U+FFFD for what cannot be decoded.
    """
    for mark, encoding in BOMS:
        # A page in UTF-16 may be cut within a character.
        size = len(body) if encoding == "utf-8" else len(body) // 2 * 2
        if body.startswith(mark) and (text := _strictly(body[len(mark) : size], encoding)) is not None:
            return text, encoding, "byte-order mark"
    if not body.isascii() and (text := _strictly(body, "utf-8")) is not None:
        return text, "utf-8", "bytes"
    head = body[:4096]
    found = META_CHARSET.search(head) or XML_CHARSET.search(head)
    meta = _known(found and found.group(1))
    # A tag that is read as ASCII is in no page in UTF-16: browsers take such a label for UTF-8 (WHATWG HTML, 13.2.3.2).
    labels = ((_known(header), "header"), ("utf-8" if meta and meta.startswith("utf-16") else meta, "meta"))
    utf8 = [
        where
        for label, where in (("utf-8" * body.startswith(BOMS[0][0]), "byte-order mark"), *labels)
        if label == "utf-8"
    ]
    whole, places, single = (0, 0, False) if body.isascii() else damage(body)
    rare = bool(utf8) and whole >= 1 and len(body) >= places * RARE
    if places and (rare or whole >= places * (WHOLE if utf8 else UNDECLARED)):
        return _replaced(body), "utf-8", f"{utf8[0] if utf8 else 'bytes'}, with replacements"
    for encoding_or_none, where in labels:
        if encoding_or_none and (text := _strictly(body, encoding_or_none)) is not None:
            # UTF-16 reads almost any bytes: it must also look like text, so NUL bytes must have been there.
            if encoding_or_none.startswith("utf-16") and b"\x00" not in head:
                continue
            return text, encoding_or_none, where
    if utf8 and single:
        return _replaced(body), "utf-8", f"{utf8[0]}, with replacements"
    guessed = detect_encoding(body, html5_compatible=False) or ""
    # Korean pages are found as CP949, a label that browsers do not know; of the other guesses, only what they know.
    guess = "cp949" if guessed.lower() == "cp949" else _known(map_encoding_to_html5(guessed)) or "utf-8"
    text = _strictly(body, guess)
    if text is not None:
        return text, guess, "bytes"
    return body.decode(guess, "replace"), guess, "bytes, with replacements"


def _replaced(body: bytes) -> str:
    return body.removeprefix(BOMS[0][0]).decode("utf-8", "replace")
