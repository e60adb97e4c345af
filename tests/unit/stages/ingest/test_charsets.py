"""The charset of a page: declared, true and false, and found in its bytes; decoders against the text of the WHATWG standard."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import endec
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.charsets import FAILED_SHARE, FALLBACK, charset_of, decode_as, decode_text, prescan_charset
from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.standard_decoders import reference
from tests.unit.stages.ingest.warcs import read

CASES = Path(os.environ.get("CRAWL2LLM_CASES", ROOT.parent / "shared" / "cases"))

# label on the web → the codec that writes such pages
ENCODINGS = {
    "utf-8": "utf-8",
    "windows-1252": "cp1252",
    "iso-8859-1": "latin-1",
    "iso-8859-2": "iso8859-2",
    "iso-8859-15": "iso8859-15",
    "windows-1251": "cp1251",
    "koi8-r": "koi8-r",
    "windows-1253": "cp1253",
    "windows-1256": "cp1256",
    "shift_jis": "cp932",
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "euc-kr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "cp950",
    "windows-874": "cp874",
}
TEXTS = {
    "windows-1251": "Быстрая бурая лиса прыгает через ленивую собаку. ",
    "koi8-r": "Быстрая бурая лиса прыгает через ленивую собаку. ",
    "windows-1253": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί. ",
    "windows-1256": "الثعلب البني السريع يقفز فوق الكلب الكسول. ",
    "shift_jis": "素早い茶色の狐が①のろまな犬を飛び越える。㈱ ",
    "euc-jp": "素早い茶色の狐がのろまな犬を飛び越える。 ",
    "iso-2022-jp": "素早い茶色の狐がのろまな犬を飛び越える。 ",
    "euc-kr": "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 똠방각하 ",
    "gb2312": "敏捷的棕色狐狸跳过懒狗。 ",
    "gbk": "敏捷的棕色狐貍跳過懶狗。 ",
    "gb18030": "敏捷的棕色狐狸跳过懒狗。㐂𠀀 ",
    "big5": "敏捷的棕色狐狸跳過懶狗。 ",
    "windows-874": "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ",
    "iso-8859-2": "Příliš žluťoučký kůň úpěl ďábelské ódy. ",
}


def text_for(label: str) -> str:
    return TEXTS.get(label, "Zwölf Boxkämpfer jagen Víctor quer über den großen Deich. ")


@pytest.mark.parametrize("label", ENCODINGS)
def test_charset_of_the_header_and_of_the_meta_tag(label: str) -> None:
    text = f"<html><p>{text_for(label) * 3}</p>"
    body = text.encode(ENCODINGS[label])
    assert decode_text(body, label)[0] == text
    assert decode_text(body, f' "{label.upper()}" ')[0] == text
    for head in (f'<meta charset="{label}">', f"<META http-equiv=Content-Type content='text/html; charset={label}'>"):
        found, _, where = decode_text((head + text).encode(ENCODINGS[label]), None)
        assert found == head + text and where == ("bytes" if label == "utf-8" else "meta")
    head = f'<?xml version="1.0" encoding="{label}"?>'
    assert decode_text((head + text).encode(ENCODINGS[label]), None)[0] == head + text


@settings(max_examples=200)
@given(st.sampled_from(sorted(ENCODINGS)), st.text(st.characters(exclude_categories=["Cs", "Cc", "Co"]), max_size=60))
def test_any_text_that_its_declared_charset_can_write_comes_back(label: str, text: str) -> None:
    try:
        body = endec.encode(text, label)
        assume(decode_as(body, label) == text)
    except UnicodeError:
        assume(False)
    # What is valid UTF-8 beyond ASCII is read as UTF-8, whatever it declares; a byte-order mark goes first.
    try:
        assume(label == "utf-8" or body.isascii() or not body.decode("utf-8"))
    except UnicodeDecodeError:
        assume(not body.startswith((b"\xff\xfe", b"\xfe\xff")))
    assume(not text.startswith("\ufeff"))
    found, charset, _ = decode_text(body, label)
    assert found == text, charset


@pytest.mark.parametrize("label", ["koi8-r", "windows-1251", "shift_jis", "euc-jp", "euc-kr", "big5", "gb18030"])
def test_charset_found_in_the_bytes_where_nothing_is_declared(label: str) -> None:
    text = f"<html><p>{text_for(label) * 20}</p>"
    found, _, where = decode_text(text.encode(ENCODINGS[label]), None)
    assert found == text and where == "bytes"


@pytest.mark.parametrize(
    "label", ["utf-8", "ascii", "no-such-charset", "", "utf-16", "x" * 99, "punycode", "unicode_escape"]
)
def test_lie_of_the_header_gives_way_to_the_meta_tag(label: str) -> None:
    text = '<meta charset="windows-1251">' + TEXTS["windows-1251"] * 5
    found, charset, where = decode_text(text.encode("cp1251"), label)
    if label == "ascii":  # browsers read it as windows-1252, under which almost any bytes are valid
        assert charset == "windows-1252"
    else:
        assert (found, charset, where) == (text, "windows-1251", "meta")


def test_utf8_wins_over_any_declaration() -> None:
    text = '<meta charset="iso-8859-1">Zwölf Boxkämpfer'
    assert decode_text(text.encode(), "windows-1251") == (text, "utf-8", "bytes")


@pytest.mark.parametrize(
    ("mark", "codec"), [(b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")]
)
def test_byte_order_mark_wins_over_all(mark: bytes, codec: str) -> None:
    text = "<html>Zwölf 狐"
    assert decode_text(mark + text.encode(codec), "koi8-r") == (text, codec.replace("16-", "16"), "byte-order mark")


def test_utf16_without_a_mark() -> None:
    text = "<html>Zwölf Boxkämpfer"
    assert decode_text(text.encode("utf-16-be"), "utf-16be")[0] == text


def test_utf8_with_a_stray_byte_is_not_taken_for_another_charset() -> None:
    body = ("<html>Zwölf Boxkämpfer" + " and many plain words" * 20).encode() + b"\xb7 end"
    assert decode_text(body, "utf-8")[:2] == (body.decode("utf-8", "replace"), "utf-8")


def test_utf8_cut_within_a_character() -> None:
    body = ("<html>" + "狐" * 100).encode()[:-1]
    found, charset, where = decode_text(body, "utf-8")
    assert found == "<html>" + "狐" * 99 + "\ufffd" and (charset, where) == ("utf-8", "header, with replacements")


PAGES = {
    "de": "Zwölf Boxkämpfer jagen Víctor quer über den großen Sylter Deich. ",
    "pl": "Zażółć gęślą jaźń, a potem idź nad rzekę. ",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy. ",
    "fr": "Dès Noël, où un zéphyr haï me vêt de glaçons würmiens, je dîne d’exquis rôtis. ",
    "ru": "Быстрая бурая лиса прыгает через ленивую собаку. ",
    "el": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί. ",
    "ar": "الثعلب البني السريع يقفز فوق الكلب الكسول. ",
    "hi": "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूद जाती है। ",
    "zh": "敏捷的棕色狐狸跳过懒狗。",
    "ko": "빠른 갈색 여우가 게으른 개를 뛰어넘는다. ",
    "emoji": "A page of plain English words 🦊 and little pictures 🐕. ",
    "en": "The quick brown fox jumps over the lazy dog, and nobody minds. ",
    "en, one quote": "Nobody minds the fox’s jump. " + "The dog is quick. " * 20,
}


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize("declared", ["header", "meta", "both"])
def test_declared_utf8_with_a_stray_byte_anywhere_is_utf8(language: str, declared: str) -> None:
    meta = '<meta charset="utf-8">' if declared != "header" else ""
    body = f"<html>{meta}<p>{PAGES[language] * 5}</p>".encode()
    header = "utf-8" if declared != "meta" else None
    start = body.index(b"<p>") + 3
    # In ASCII, before and within the first characters beyond ASCII (of up to four bytes), in the middle, at the end.
    beyond = next((at for at, byte in enumerate(body) if byte > 127), start)
    for at in {start, beyond - 1, *range(beyond, beyond + 5), len(body) // 2, len(body) - 4}:
        for stray in range(0x80, 0x100):
            spoilt = body[:at] + bytes([stray]) + body[at:]
            try:
                spoilt.decode()
            except UnicodeDecodeError:
                wanted = (
                    spoilt.decode("utf-8", "replace"),
                    "utf-8",
                    f"{'meta' if declared == 'meta' else 'header'}, with replacements",
                )
                assert decode_text(spoilt, header) == wanted, (at, stray)


@given(st.sampled_from(sorted(PAGES)), st.lists(st.tuples(st.floats(0, 1), st.integers(0x80, 0xFF)), max_size=6))
def test_rare_stray_bytes_are_replaced(language: str, strays: list[tuple[float, int]]) -> None:
    body = bytearray(f"<html><p>{PAGES[language] * 40}</p>".encode())
    assume(not body.isascii() and not language.startswith("en"))
    for place, stray in strays:
        body.insert(round(place * len(body)), stray)
    text, charset, _ = decode_text(bytes(body), "utf-8")
    assert charset == "utf-8" and text == bytes(body).decode("utf-8", "replace")


@pytest.mark.parametrize("words", ["“quoted” it’s", "café", "naïve café – “a” ’s", "© 2026"])
@pytest.mark.parametrize("stray", [b"\xa0", b"\xe9", b"\x92", b"\xa9"])
@pytest.mark.parametrize("number", [2, 5])
@pytest.mark.parametrize("other", ["utf-8", "iso-8859-1"])
def test_long_english_page_with_few_characters_beyond_ascii(words: str, stray: bytes, number: int, other: str) -> None:
    plain = b"Nobody minds that the quick brown fox jumps. " * 120
    body = f'<html><meta charset="{other}"><p>{words} '.encode() + plain + (b"so " + stray + b" " + plain) * number
    wanted = (body.decode("utf-8", "replace"), "utf-8", "header, with replacements")
    assert decode_text(body, "utf-8") == wanted


def test_english_page_in_cp1252_that_declares_utf8() -> None:
    plain = "Nobody minds that the quick brown fox jumps. " * 120
    text = f'<html><meta charset="utf-8"><p>{plain}It’s “quoted” – {plain}and it’s plain.'
    found, charset, where = decode_text(text.encode("cp1252"), "utf-8")
    assert charset != "utf-8" and where == "bytes" and found == text


def test_much_damage_is_not_rare_for_one_whole_character() -> None:
    body = "<html>“".encode() + "It’s a page, isn’t it? Nobody’s. ".encode("cp1252") * 30
    assert decode_text(body, "utf-8")[2].startswith("bytes")  # the declaration alone is not believed


@pytest.mark.parametrize("label", ["utf-16", "UTF-16BE", "utf-16le", "unicode"])
def test_utf16_of_a_tag_that_reads_as_ascii_is_utf8(label: str) -> None:
    for head in (f'<meta charset="{label}">', f'<?xml version="1.0" encoding="{label}"?>'):
        body = f"{head}<p>café ".encode() + b"\xff"
        assert decode_text(body, None) == (f"{head}<p>café \ufffd", "utf-8", "meta, with replacements")


@pytest.mark.parametrize("label", [label for label in ENCODINGS if label not in {"utf-8", "iso-2022-jp"}])
def test_page_in_another_charset_that_declares_utf8_is_not_read_as_utf8(label: str) -> None:
    text = f'<html><meta charset="utf-8"><p>{text_for(label) * 20}</p>'
    found, charset, where = decode_text(text.encode(ENCODINGS[label]), "utf-8")
    assert charset != "utf-8" and where == "bytes" and "\ufffd" not in found
    if label in {"windows-1251", "koi8-r", "shift_jis", "euc-jp", "big5", "gb2312", "windows-1252"}:
        assert found == text


def test_one_byte_that_the_meta_tag_explains_is_no_damage() -> None:
    text = '<html><meta charset="windows-1252"><p>A naïve page that a server calls UTF-8.</p>'
    assert decode_text(text.encode("cp1252"), "utf-8") == (text, "windows-1252", "meta")


@pytest.mark.parametrize("label", [None, "iso-8859-1", "windows-1251", "no-such-charset"])
def test_utf8_with_a_stray_byte_that_declares_nothing_or_something_else(label: str | None) -> None:
    body = b"<html>\xe4" + (PAGES["ru"] * 5).encode()
    assert decode_text(body, label) == (body.decode("utf-8", "replace"), "utf-8", "bytes, with replacements")


def test_byte_order_mark_of_damaged_pages() -> None:
    body = "<html>Zwölf 狐".encode()
    assert decode_text(b"\xef\xbb\xbf" + body + b"\xff", None) == (
        "<html>Zwölf 狐\ufffd",
        "utf-8",
        "byte-order mark, with replacements",
    )
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        cut = mark + "<html>Zwölf 狐".encode(codec)[:-1]
        wanted = ("<html>Zwölf \ufffd", codec.replace("16-", "16"), "byte-order mark, with replacements")
        assert decode_text(cut, None) == wanted


def test_large_page_in_another_charset_takes_little_memory() -> None:
    """A process of its own: the decoder's memory is not Python's. 16 MB of bytes are 32 MB of text (two bytes a character)."""
    code = """
from tests.unit.peak_memory import peak_bytes
from crawl2llm.stages.ingest.charsets import decode_text
body = "Слово ".encode("cp1251") * 2_700_000
before = peak_bytes()
assert decode_text(body, "utf-8")[1] == "windows-1251"
print(len(body), peak_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    size, peak = map(int, done.stdout.split())
    assert peak < 10 * size


@settings(max_examples=200)
@given(st.binary(max_size=300), st.none() | st.text(max_size=20) | st.sampled_from(sorted(ENCODINGS)))
def test_no_bytes_and_no_label_raise_anything(body: bytes, header: str | None) -> None:
    text, charset, where = decode_text(body, header)
    assert isinstance(text, str) and charset and where
    assert charset_of(charset) == charset


ESCAPES = {"iso-2022-jp": b"\x1b$B"}


def index(charset: str, sequence: bytes) -> str | None:
    """The text of a whole sequence beyond ASCII; None if there is none. DIGESTS prove it."""
    text = decode_as(ESCAPES.get(charset, b"") + sequence, charset)
    return None if "\ufffd" in text else text


def sequences(charset: str) -> Iterator[bytes]:
    """Every sequence that may have a place in the standard's index of a charset, except GB18030's of four bytes."""
    if charset in {"gbk", "gb18030", "big5", "euc-kr", "shift_jis"}:
        leads = [*range(0x81, 0xA0), *range(0xE0, 0xFD)] if charset == "shift_jis" else range(0x81, 0xFF)
        yield from (bytes([lead, trail]) for lead in leads for trail in range(0x40, 0xFF))
    elif charset == "euc-jp":
        pairs = [bytes([lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
        yield from pairs + [b"\x8f" + pair for pair in pairs]
    elif charset == "iso-2022-jp":
        yield from (bytes([lead, trail]) for lead in range(0x21, 0x7F) for trail in range(0x21, 0x7F))
    else:
        yield from (bytes([byte]) for byte in range(0x80, 0x100))


def digest(charset: str, index: Callable[[str, bytes], str | None]) -> str:
    """A short name of what all sequences of a charset mean."""
    text = "\n".join(index(charset, sequence) or "" for sequence in sequences(charset))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def four_bytes() -> Iterator[bytes]:
    """GB18030's sequences of four bytes."""
    digits, others = range(0x30, 0x3A), range(0x81, 0xFF)
    return (bytes([a, b, c, d]) for a in others for b in digits for c in others for d in digits)


# `digest` of the standard's index files (encoding.spec.whatwg.org, index-*.txt of May 2026: with GB 18030-2022).
DIGESTS = {
    "ibm866": "743f699e9d8e629d",
    "iso-8859-2": "532edb15ebf3b20d",
    "iso-8859-3": "de338d5b66900e67",
    "iso-8859-4": "e626e3ba9f09a0de",
    "iso-8859-5": "d7d53aa65fb021ad",
    "iso-8859-6": "ce46e369776e1212",
    "iso-8859-7": "c39191c40d778535",
    "iso-8859-8": "5d0fd1a453147b10",
    "iso-8859-8-i": "5d0fd1a453147b10",
    "iso-8859-10": "69dd7eccec52ac7a",
    "iso-8859-13": "97f8f49fc9c4aeb0",
    "iso-8859-14": "22dfe79969b47a4a",
    "iso-8859-15": "8e15a0f04c006cbf",
    "iso-8859-16": "190b40ad429bc815",
    "koi8-r": "ab097761abc89888",
    "koi8-u": "6893bfa3ddf22a54",
    "macintosh": "9bcfcf37deef34f3",
    "windows-874": "9a8256d681778487",
    "windows-1250": "d15762a6bad9ebcf",
    "windows-1251": "80e9fc763c05aac1",
    "windows-1252": "d538fb25e5bce1ca",
    "windows-1253": "d92dab01e7567fc6",
    "windows-1254": "2aa8d9d94546b8cc",
    "windows-1255": "262bf471c062a659",
    "windows-1256": "a01678264068176e",
    "windows-1257": "63e20e5a2e0c12b1",
    "windows-1258": "4166d1a6d5c3bdf8",
    "x-mac-cyrillic": "800a1ab2440a7763",
    "gbk": "79ea95b5b3098364",
    "gb18030": "79ea95b5b3098364",
    "big5": "d8c9ff4705ebfe6b",
    "euc-jp": "a546e422002bd422",
    "iso-2022-jp": "d440cb5cdf1efb18",
    "shift_jis": "9fe148ab090b379b",
    "euc-kr": "b6e82bbe4e058d47",
}
CHARSETS = [*DIGESTS, "utf-8", "utf-16be", "utf-16le", "replacement", "x-user-defined"]  # the standard's 40
FOUR_BYTES = "92bdae0e6267fb86"  # of all texts of four_bytes, U+FFFD for those without


@pytest.mark.parametrize("charset", DIGESTS)
def test_every_character_is_that_of_the_standard(charset: str) -> None:
    assert digest(charset, index) == DIGESTS[charset]


def test_every_character_of_four_bytes_is_that_of_the_standard() -> None:
    text = decode_as(b"".join(four_bytes()), "gb18030")
    assert len(text) == 126 * 10 * 126 * 10
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == FOUR_BYTES


# Bytes where decoders change their state, and where ranges begin and end.
CORNERS = sorted(
    {*b"\x00\x0e\x0f\x1b!$(09<@ABIJ~\x7f", *b"\x80\x81\x8e\x8f\x98\xa0\xa1\xc8\xd8\xdc\xdf\xe0\xfc\xfe\xff"}
)


@pytest.mark.parametrize("charset", [charset for charset in CHARSETS if charset != "utf-8"])
@settings(max_examples=100)
@given(st.data())
def test_decoders_equal_the_text_of_the_standard(charset: str, data: st.DataObject) -> None:
    byte = st.sampled_from(CORNERS) | st.integers(0, 255)
    body = bytes(data.draw(st.lists(byte, max_size=24)))
    assert decode_as(body, charset) == reference(body, charset, lambda sequence: index(charset, sequence))


@given(st.lists(st.sampled_from(CORNERS) | st.integers(0, 255), max_size=24).map(bytes))
def test_utf8_has_an_error_for_each_maximal_part(body: bytes) -> None:
    """Python does as the standard (and as Unicode recommends, 3.9)."""
    assert decode_as(body, "utf-8") == body.decode("utf-8", "replace")


def test_labels_are_those_of_the_standard() -> None:
    assert all(charset_of(charset) == charset for charset in CHARSETS)
    labels = {
        "latin1": "windows-1252",
        "us-ascii": "windows-1252",
        "iso-8859-9": "windows-1254",
        "tis-620": "windows-874",
        "gb2312": "gbk",
        "ks_c_5601-1987": "euc-kr",
        "sjis": "shift_jis",
        "big5-hkscs": "big5",
        "unicode": "utf-16le",
        "hz-gb-2312": "replacement",
        "x-x-big5": "big5",
        "\t UTF8\r\n": "utf-8",
    }
    assert {label: charset_of(label) for label in labels} == labels
    for label in ("utf-7", "cp437", "idna", "utf-32", "utf8\u00a0", "\N{KELVIN SIGN}oi8-r", "", None):
        assert charset_of(label) is None


def undefined(charset: str) -> list[int]:
    """The single bytes that have no character."""
    return [byte for byte in range(0x80, 0x100) if index(charset, bytes([byte])) is None]


def written(text: str, label: str) -> bytes:
    """The text in a charset; Big5 with HKSCS, which the standard reads and does not write."""
    return text.encode("big5hkscs") if label == "big5" else endec.encode(text, label)


HEBREW = "השועל החום המהיר קופץ מעל הכלב העצלן, ואיש אינו מוטרד מכך. "
CANTONESE = "佢哋喺度睇緊嘢，啲狐狸跳過咗隻懶狗。"  # 佢哋喺嘢啲咗 are of HKSCS: no plain Big5 has them
ONE_BAD_BYTE = [
    ("windows-1251", TEXTS["windows-1251"], 0x98, "\x98"),
    ("windows-1255", HEBREW, 0xFF, "\ufffd"),
    ("windows-1250", TEXTS["iso-8859-2"], 0x81, "\x81"),
    ("iso-8859-6", TEXTS["windows-1256"], 0xA1, "\ufffd"),
    ("iso-8859-8", HEBREW, 0xBF, "\ufffd"),
    ("windows-1253", TEXTS["windows-1253"], 0xD2, "\ufffd"),
    ("windows-874", TEXTS["windows-874"], 0xFC, "\ufffd"),
    ("big5", CANTONESE, 0xFF, "\ufffd"),
    ("gb18030", TEXTS["gb18030"], 0xFF, "\ufffd"),
    ("gb2312", TEXTS["gb2312"], 0xFF, "\ufffd"),
    ("shift_jis", TEXTS["shift_jis"], 0xFF, "\ufffd"),
    ("euc-jp", TEXTS["euc-jp"], 0xFF, "\ufffd"),
    ("euc-kr", TEXTS["euc-kr"], 0xFF, "\ufffd"),
    ("iso-2022-jp", TEXTS["euc-jp"], 0xFF, "\ufffd"),
]


@pytest.mark.parametrize(("label", "text", "bad", "instead"), ONE_BAD_BYTE, ids=[case[0] for case in ONE_BAD_BYTE])
@pytest.mark.parametrize("times", [1, 40])
def test_one_bad_byte_costs_one_character(label: str, text: str, bad: int, instead: str, times: int) -> None:
    page = f"<html><body><p>{text * times}"
    for end in ("", "</p>"):
        body = written(page, label) + bytes([bad]) + end.encode()
        suffix = ", with replacements" if instead == "\ufffd" else ""
        assert decode_text(body, label) == (page + instead + end, charset_of(label), f"header{suffix}")
    meta = f'<meta charset="{label}">'
    body = meta.encode() + written(page, label) + bytes([bad])
    assert decode_text(body, None) == (meta + page + instead, charset_of(label), f"meta{suffix}")


@pytest.mark.parametrize("label", [label for label in DIGESTS if len(undefined(label)) in range(1, 64)])
def test_a_single_byte_charset_survives_every_undefined_byte(label: str) -> None:
    body = b"<p>" + bytes(byte for byte in range(0x80, 0x100) if byte not in undefined(label))
    for byte in undefined(label):
        assert decode_text(body + bytes([byte]), label)[:2] == (decode_as(body, label) + "\ufffd", label)


def test_an_ascii_byte_after_a_lead_byte_is_not_lost() -> None:
    """A tag would lose its first character."""
    for label in ("big5", "gbk", "euc-jp", "shift_jis", "euc-kr"):
        text = text_for("gb2312" if label == "gbk" else label) * 10
        body = endec.encode(text, label) + b"\x81<b>" + endec.encode(text, label)
        assert decode_text(body, label)[0] == f"{text}\ufffd<b>{text}"


@pytest.mark.parametrize(
    ("label", "other"), [("euc-jp", "windows-1251"), ("iso-8859-6", "windows-1251"), ("big5", "shift_jis")]
)
def test_a_declared_charset_that_fails_gives_way(label: str, other: str) -> None:
    text = f"<html><p>{text_for(other) * 20}</p>"
    body = endec.encode(text, other)
    errors = decode_as(body, label).count("\ufffd")
    assert errors > FAILED_SHARE * sum(character > "\x7f" for character in decode_as(body, label)) + 1
    found, charset, where = decode_text(body, label)
    assert found == text and where == "bytes" and charset in {other, "koi8-u"}
    head = f'<meta charset="{other}">'.encode()
    assert decode_text(head + body, label) == (head.decode() + text, other, "meta")


def test_what_the_standard_replaces_is_one_character() -> None:
    assert decode_text(b"<p>~{VPND~}", "hz-gb-2312") == ("\ufffd", "replacement", "header, with replacements")
    # Korean pages that claim to be ISO-2022-KR are mostly EUC-KR.
    text = TEXTS["euc-kr"] * 20
    assert decode_text(endec.encode(text, "euc-kr"), "iso-2022-kr") == (text, "euc-kr", "bytes")


def test_x_user_defined() -> None:
    assert decode_text(b"caf\xe9", "x-user-defined")[:2] == ("caf\uf7e9", "x-user-defined")
    assert decode_text(b"<meta charset=x-user-defined>caf\xe9", None)[0].endswith("café")


@pytest.mark.parametrize(
    ("head", "charset"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<!-- <meta charset=koi8-r> --><meta charset=big5>", "big5"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<!-- <meta charset=koi8-r>", None),
        (b"<? x ><!x><meta/charset=koi8-r>", "koi8-r"),
        (b"<a title='<meta charset=koi8-r>'>", None),
        (b"<meta name=x content='text/html; charset=koi8-r'>", None),
        (b"<meta content='text/html; charset=koi8-r' http-equiv=content-type>", "koi8-r"),
        (b"<meta http-equiv=content-type content='text/html; charset=koi8-r' charset=big5>", "big5"),
        (b"<meta charset=big5 charset=koi8-r>", "big5"),
        (b"<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=koi8-r", None),
        (b"<meta charset='koi8-r>", None),
        (b"<?xml version='1.0' encoding='koi8-r'?>", "koi8-r"),
        (b"<?xml encoding = \"koi8-r\"?><meta charset=big5>", "big5"),
        (b" <?xml encoding='koi8-r'?>", None),
        (b"<?xml version='1.0'?><p encoding='koi8-r'>", None),
        (b"<\0?\0x\0m\0l\0", "utf-16le"),
        (b"\0<\0?\0x\0m\0l", "utf-16be"),
        (b"x" * 5000 + b"<meta charset=koi8-r>", "koi8-r"),
        (b"<head>" + b" " * 1024 + b"<body><meta charset=koi8-r>", None),
    ],
)  # fmt: skip
def test_declarations_are_found_as_browsers_find_them(head: bytes, charset: str | None) -> None:
    assert prescan_charset(head) == charset
    for cut in range(min(len(head), 200)):
        prescan_charset(head[:cut])


PARTS = re.findall(r"<!--|-->|\w+|.", "<!-- --> <meta charset=koi8-r '\"> </x <?")


@given(
    st.binary(max_size=200) | st.lists(st.sampled_from(PARTS), max_size=30).map(lambda parts: "".join(parts).encode())
)
def test_no_head_is_without_end(head: bytes) -> None:
    assert prescan_charset(head) in {None, *CHARSETS}


def html5lib_cases() -> Iterator[tuple[bytes, str]]:
    """(page, charset) of html5lib-tests' encoding/*.dat."""
    archive = next((CASES / "html5lib").glob("*.tar.zst"))
    with zstandard.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if re.search(r"encoding/[^/]*\.dat$", member.name) else None
            for case in re.split(rb"(?:^|\n)#data\n", content.read())[1:] if content else []:
                page, expected = case.split(b"\n#encoding\n")
                yield page, expected.split()[0].decode()


@pytest.mark.skipif(not (CASES / "html5lib").is_dir(), reason=f"no html5lib-tests at {CASES / 'html5lib'}")
def test_html5lib_encodings() -> None:
    """All but one: its comment is UTF-8 on a page that declares EUC-JP, and valid UTF-8 is UTF-8 here."""
    cases = list(html5lib_cases())
    assert len(cases) == 82
    wrong = [(page, label) for page, label in cases if decode_text(page, None)[1] != charset_of(label)]
    assert [(label, "京".encode() in page) for page, label in wrong] == [("euc-jp", True)]
    undeclared = [page for page, label in cases if charset_of(label) == FALLBACK and prescan_charset(page) is None]
    assert len(undeclared) > 20 and all(decode_text(page, None)[2] == "bytes" for page in undeclared)


# Page of the case → its charset, words of it, and how many U+FFFD it has.
UNDEFINED_BYTE = {
    "cp1251": ("windows-1251", "Шестерни старых башенных часов", 0),
    "cp1251-with-utf8-letter": ("windows-1251", "Шестерни старых башенных часов", 0),
    "cp1255": ("windows-1255", "גלגלי השיניים של השעון הישן", 0),
    "cp1253": ("windows-1253", "Τα γρανάζια του παλιού ρολογιού επισκευάστηκαν", 1),
    "tis620": ("windows-874", "เฟืองของนาฬิกาเก่าได้รับการซ่อมแซม", 1),
    "cp1250": ("windows-1250", "Koła zębate zegara zostały naprawione, są ścięte", 0),
    "big5-hkscs": ("big5", "這座鐘樓喺香港嘅啲嘢，佢哋去年春天修理咗", 0),
}


@pytest.mark.skipif(not (CASES / "pages").is_dir(), reason=f"no cases at {CASES / 'pages'}")
def test_case_of_one_undefined_byte() -> None:
    pages = [page for page in read(CASES / "pages/one-undefined-byte/a.warc.gz") if isinstance(page, Page)]
    assert {str(page.url).rpartition("/")[2] for page in pages} == set(UNDEFINED_BYTE)
    for page in pages:
        charset, words, errors = UNDEFINED_BYTE[str(page.url).rpartition("/")[2]]
        assert page.metadata["charset"] == charset and page.metadata["charset_from"].startswith("header")
        assert page.text.count(words) > 5 and page.text.count("\ufffd") == errors
