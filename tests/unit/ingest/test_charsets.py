"""The charset of a page: declared, true and false, and told by its bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scripts.ingest.charsets import decode_text

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
    "cp437": "cp437",
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
        body = text.encode(ENCODINGS[label])
        assume(body.decode(ENCODINGS[label]) == text)
    except UnicodeError:
        assume(False)
    # What is valid UTF-8 beyond ASCII is read as UTF-8, whatever it declares; a byte-order mark goes first.
    try:
        assume(label == "utf-8" or body.isascii() or not body.decode("utf-8"))
    except UnicodeDecodeError:
        assume(not body.startswith((b"\xff\xfe", b"\xfe\xff")))
    assume(not text.startswith("\ufeff"))
    assume(not (label == "iso-2022-jp" and "\\" in text) and not (label == "iso-8859-1" and not text.isprintable()))
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
        assert charset == "cp1252"
    else:
        assert (found, charset, where) == (text, "cp1251", "meta")


def test_utf8_wins_over_any_declaration() -> None:
    text = '<meta charset="iso-8859-1">Zwölf Boxkämpfer'
    assert decode_text(text.encode(), "windows-1251") == (text, "utf-8", "bytes")


@pytest.mark.parametrize(
    ("mark", "codec"), [(b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")]
)
def test_byte_order_mark_wins_over_all(mark: bytes, codec: str) -> None:
    text = "<html>Zwölf 狐"
    assert decode_text(mark + text.encode(codec), "koi8-r") == (text, codec, "byte-order mark")


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


@pytest.mark.parametrize("label", [label for label in ENCODINGS if label not in {"utf-8", "iso-2022-jp", "cp437"}])
def test_page_in_another_charset_that_declares_utf8_is_not_read_as_utf8(label: str) -> None:
    text = f'<html><meta charset="utf-8"><p>{text_for(label) * 20}</p>'
    found, charset, where = decode_text(text.encode(ENCODINGS[label]), "utf-8")
    assert charset != "utf-8" and where == "bytes" and "\ufffd" not in found
    if label in {"windows-1251", "koi8-r", "shift_jis", "euc-jp", "big5", "gb2312", "windows-1252"}:
        assert found == text


def test_one_byte_that_the_meta_tag_explains_is_no_damage() -> None:
    text = '<html><meta charset="windows-1252"><p>A naïve page that a server calls UTF-8.</p>'
    assert decode_text(text.encode("cp1252"), "utf-8") == (text, "cp1252", "meta")


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
        assert decode_text(cut, None) == ("<html>Zwölf ", codec, "byte-order mark")


def test_large_page_in_another_charset_takes_little_memory() -> None:
    body = "Слово ".encode("cp1251") * 30_000
    tracemalloc.start()
    assert decode_text(body, "utf-8")[1] == "cp1251"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(body)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.none() | st.text(max_size=20) | st.sampled_from(sorted(ENCODINGS)))
def test_no_bytes_and_no_label_raise_anything(body: bytes, header: str | None) -> None:
    text, charset, where = decode_text(body, header)
    assert isinstance(text, str) and charset and where
