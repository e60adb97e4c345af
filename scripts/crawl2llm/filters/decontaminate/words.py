"""The words of a text as decontamination compares them: letters' case, punctuation, marks and line breaks do not count.

Each character is normalised by itself: compatibility decomposition (NFKD), full case folding, marks without width (Mn), format characters
(Cf) and apostrophes removed, a digit of any script as 0 to 9, and what is no letter, number or spacing mark a space. Words are what stands
between spaces. In scripts without spaces between words each character is a word, as in text/characters.py.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

from crawl2llm.text.shingles import UNSPACED

APOSTROPHES = frozenset("'\u2018\u2019\u02bc\uff07`\u00b4")  # don't, don’t and dont are one word
LONGER, UNKNOWN = 0x110000, 0x110001  # above every code point
SPACE = 32
Codes = npt.NDArray[np.uint32]


def normal_form(character: str) -> str:
    """What one character becomes: nothing, a space, or its normal form; between spaces where it is a word."""
    if character in APOSTROPHES:
        return ""
    out = []
    for part in unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold()):
        kind, digit = unicodedata.category(part), unicodedata.decimal(part, None)
        if kind in ("Mn", "Cf"):
            continue
        if digit is not None:
            out.append(str(digit))
        elif kind[0] not in "LNM":
            out.append(" ")
        elif any(first <= ord(part) <= last for first, last in UNSPACED):
            out.append(f" {part} ")
        else:
            out.append(part)
    return "".join(out)


class _NormalForms:
    """`normal_form` over whole texts with NumPy; each character's form is worked out once."""

    def __init__(self) -> None:
        self.single: Codes = np.full(0x110000, UNKNOWN, "<u4")  # the one character that a character becomes, or LONGER
        self.longer: dict[int, str] = {}  # what others become
        kept_characters = [chr(code) for code in range(128) if normal_form(chr(code))]
        self.removed = bytes(code for code in range(128) if chr(code) not in kept_characters)
        self.ascii = bytes(ord(normal_form(chr(code)) or " ") for code in range(128)) + bytes(range(128, 256))

    def _learn_forms(self, codes: list[int]) -> None:
        for code in codes:
            form = normal_form(chr(code))
            if len(form) == 1:
                self.single[code] = ord(form)
            else:
                self.single[code], self.longer[code] = LONGER, form

    def __call__(self, text: str) -> tuple[Codes, npt.NDArray[np.int64] | None]:
        """(normalised characters, the place in the text of each; None: each at its own)."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        singles = self.single.take(codes)
        if len(codes) and singles.max() == UNKNOWN:
            self._learn_forms(np.unique(codes[singles == UNKNOWN]).tolist())
            singles = self.single.take(codes)
        if not len(codes) or singles.max() < LONGER:
            return singles, None
        places = np.flatnonzero(singles == LONGER)
        lengths = np.ones(len(codes), np.int64)
        forms = [self.longer[code] for code in codes[places].tolist()]
        lengths[places] = [len(form) for form in forms]
        out = np.repeat(singles, lengths)
        joined = "".join(forms).encode("utf-32-le", "surrogatepass")
        out[np.repeat(singles == LONGER, lengths)] = np.frombuffer(joined, "<u4")
        return out, np.repeat(np.arange(len(codes)), lengths)


@cache
def _normal_forms() -> _NormalForms:
    return _NormalForms()


def split_words(text: str) -> list[bytes]:
    """The words of a text in UTF-8, in order."""
    forms = _normal_forms()
    if text.isascii():
        return text.encode().translate(forms.ascii, forms.removed).split()
    codes, _ = forms(text)
    if len(codes) and codes.max() < 128:
        return codes.astype(np.uint8).tobytes().split()
    normal = codes.tobytes().decode("utf-32-le", "surrogatepass")
    # By spaces alone: split() without them takes other characters for white space too.
    return [word for word in normal.encode("utf-8", "surrogatepass").split(b" ") if word]


def word_spans(text: str) -> npt.NDArray[np.int64]:
    """(words, 2): the first character of each word of `split_words`, and the character after its last, in the text."""
    codes, origin = _normal_forms()(text)
    if not len(codes):
        return np.zeros((0, 2), np.int64)
    inside = np.concatenate(([False], codes != SPACE, [False]))
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, lasts = edges[::2], edges[1::2] - 1
    if origin is not None:
        starts, lasts = origin[starts], origin[lasts]
    return np.stack((starts, lasts + 1), axis=1)
