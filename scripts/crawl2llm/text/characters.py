"""Classes of characters that the measures share, for every script, and the tokens of a text.

A **token** is a run of letters, digits and marks (with an apostrophe, dot or underscore inside it, and a comma before a
digit), one punctuation mark or symbol (or a run of the same `. - = _ * ~ #`), or one character (with the marks on it) of
a script that is written without spaces: Han, kana, bopomofo, Thai, Lao, Khmer, Myanmar. A **word** is a token with a
letter, digit or mark in it.

Planes above the first: emoji and Han are distinguished; all others count as letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["BULLETS", "EAST_ASIA", "SENTENCE_END", "SPACELESS", "SYMBOLS", "TERMINAL", "is_symbol", "tokenize"]

# Scripts written without spaces between words.
_SPACELESS = (
    (0x0E01, 0x0E3A),  # Thai
    (0x0E40, 0x0E4E),
    (0x0E81, 0x0EBD),  # Lao
    (0x0EC0, 0x0ECE),
    (0x0EDC, 0x0EDF),
    (0x1000, 0x103F),  # Myanmar
    (0x1050, 0x108F),
    (0x1780, 0x17D3),  # Khmer
    (0x2E80, 0x2FD5),  # Han radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3041, 0x309F),  # hiragana
    (0x30A1, 0x30FA),  # katakana
    (0x30FC, 0x30FF),
    (0x3105, 0x312F),  # bopomofo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width katakana
    (0x20000, 0x3FFFF),  # Han, supplementary planes
)
EAST_ASIA = "\u2e80"  # spaceless scripts below are Southeast Asian, from here on Han, kana, bopomofo
_EMOJI = (0x1F000, 0x1FBFF)
_INVISIBLE = {0x200B, 0x2060, 0xFEFF}  # zero-width spaces: they part words, as punctuation does


def _code_point_ranges(points: list[int]) -> list[tuple[int, int]]:
    """Sorted code points as closed ranges."""
    ranges: list[tuple[int, int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return ranges


def _character_class(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges as the inside of a regular expression's character class."""
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _symbol_points() -> list[int]:
    points = []
    for point in range(0x10000):
        kind = unicodedata.category(chr(point))
        if kind[0] in "PS" or (kind == "Cc" and not chr(point).isspace()) or point in _INVISIBLE:
            points.append(point)
    return points


_SPACES = [point for point in range(0x10000) if chr(point).isspace()]
_SYMBOLS = _symbol_points()
_MARKS = [point for point in range(0x10000) if unicodedata.category(chr(point))[0] == "M"]

SYMBOLS = frozenset(map(chr, _SYMBOLS))
SPACELESS = re.compile(f"[{_character_class(_SPACELESS)}]")

_NO_WORD = (_code_point_ranges(_SPACES), _code_point_ranges(_SYMBOLS), _SPACELESS, (_EMOJI,))
_WORD = f"[^{''.join(map(_character_class, _NO_WORD))}]"
# ' ’ as in don't, . as in e.g. and example.org, _ as in snake_case, · as in Catalan col·legi, ׳ ״ as in Hebrew צה״ל.
_JOINERS = "['’._·׳״]"
_TOKEN = re.compile(
    rf"{_WORD}+(?:(?:{_JOINERS}|,(?=\d)){_WORD}+)*"
    r"|\.\.+|--+|==+|__+|\*\*+|~~+|##+"
    rf"|\S[{_character_class(_code_point_ranges(_MARKS))}]*"
)

# Unicode 16, PropList.txt, property Sentence_Terminal, without U+2024 (one dot leader).
_TERMINAL = """
0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E 1735-1736
17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049
2CF9-2CFB 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB
FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1
11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44
16E98 1BC9F 1DA88
"""
_TERMINAL_RANGES = [
    (int(first, 16), int(last or first, 16)) for first, _, last in (part.partition("-") for part in _TERMINAL.split())
]
TERMINAL = frozenset(chr(point) for first, last in _TERMINAL_RANGES for point in range(first, last + 1))

# A sentence ends at a terminal mark (and the quotes or brackets that close it) before a space and anything but a small
# ASCII letter or a mark; at a full-width mark also without a space. First plane only: ranges above it cost tenfold.
_WIDE = "。！？｡．"
SENTENCE_END = re.compile(
    rf"[…{_character_class([pair for pair in _TERMINAL_RANGES if pair[1] < 0x10000])}]"
    rf"(?:[\"'”’»)\]]*[ \t]+(?=[^\sa-z,;:.!?…)\]])|(?<=[{_WIDE}])(?=[^\n{_WIDE}」』”’）)]))"
)

BULLETS = ("•", "-", "‣", "◦", "●", "○", "▪", "▫", "■", "□", "∙", "·", "*", "–", "➢", "►")


def is_symbol(token: str) -> bool:
    """Whether a token is punctuation or a symbol, not a word."""
    return token[0] in SYMBOLS or _EMOJI[0] <= ord(token[0]) <= _EMOJI[1]


def tokenize(text: str) -> list[str]:
    """The tokens of a text in order: words, and punctuation marks as tokens of their own."""
    return _TOKEN.findall(text)
