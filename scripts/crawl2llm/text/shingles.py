"""Text to shingles: the normalisation, the tokens, and the hashes of every run of `k` consecutive tokens.

A number is one `0`, with its groups and decimals: `1,234.50`. Or it is kept, with its sign, in every text or in those that are dense with
numbers (`dedup.signature.numbers`): tables of numbers are else copies of each other. All else is normalised character by character, so that
it does not depend on context: compatibility decomposition (NFKD), full case folding, marks without width (Mn) and format characters
(Cf) removed, everything that is not a letter, number or spacing mark a space. How this differs from datatrove's
`simplify_text`, which FineWeb was made with: docs/filters/dedup.md. Tokens are what stands between spaces. In scripts that are written
without spaces between words (Han, Kana, Bopomofo, Thai, Lao, Khmer, Myanmar) each character is a token of its own: a shingle
of five "words" would else be a paragraph.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.formats.document_numbers import DENSE, KEEP, ZERO, group_starts
from crawl2llm.text.xxhash32 import Places, xxh32

# Blocks of the Unicode scripts that do not put spaces between words (first, last code point), after NFKD.
UNSPACED = (
    (0x0E01, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3005, 0x3007),  # iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3041, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extension B
    (0xAA60, 0xAA7F),  # Myanmar extension A
    (0xF900, 0xFAFF),  # Han compatibility
    (0x1AFF0, 0x1B16F),  # Kana extensions
    (0x20000, 0x323AF),  # Han extensions B to H
)
# What stands between the groups of a number, and before its decimals: one of these between two digits. Elsewhere a space.
# The raised dot (with its Greek twin, which NFC makes the same), the wide point and comma, the stroke of `½` after NFKD.
SEPARATORS = frozenset(".,'\u2019\u060c\u066b\u066c\u00a0\u2007\u2009\u202f\u00b7\u0387\uff0e\uff0c\u2044")
MARK = "\x1f"  # stands for a separator until its neighbours are known
SIGN = "\x1e"  # stands for a minus until its neighbours are known, where numbers are kept
MINUS = frozenset("-\u2212")
# Share of a text's tokens that are numbers, from which on it is dense with them. Of 132 pieces of tables that are else near-duplicates all
# have more, of 1,224 pages of the labelled crawl 3 (docs/filters/dedup.md).
DENSE_FROM = 0.2
LONGER, UNKNOWN = 0x110000, 0x110001  # above every code point


def fold_character(character: str, keep: bool = False) -> str:
    """What one character becomes: nothing, a space, MARK, or its folded form; between spaces where it is a token.

    keep: whether digits are kept, and a minus is SIGN.
    """
    if character in SEPARATORS:
        return MARK
    if keep and character in MINUS:
        return SIGN
    out = []
    for part in unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold()):
        kind = unicodedata.category(part)
        if kind in ("Mn", "Cf"):
            continue
        digit = unicodedata.decimal(part, None)
        if digit is not None:
            out.append(str(digit) if keep else "0")
        elif part == "\u2044":
            out.append(MARK)
        elif kind[0] not in "LNM":
            out.append(" ")
        elif any(first <= ord(part) <= last for first, last in UNSPACED):
            out.append(f" {part} ")
        else:
            out.append(part)
    if set(out) == {" "}:
        return " "
    return "".join(out)


class _Folder:
    """`fold_character` over a whole text with NumPy; each character's form is worked out once."""

    def __init__(self, keep: bool = False) -> None:
        self.keep = keep
        self.single = np.full(0x110000, UNKNOWN, "<u4")  # the one character that a character becomes, or LONGER
        self.longer: dict[int, str] = {}  # what others become
        self.ascii = bytes(ord(fold_character(chr(code), keep)) for code in range(128)) + bytes(range(128, 256))

    def _learn_forms(self, codes: list[int]) -> None:
        for code in codes:
            form = fold_character(chr(code), self.keep)
            if len(form) == 1:
                self.single[code] = ord(form)
            else:
                self.single[code], self.longer[code] = LONGER, form

    def __call__(self, text: str) -> bytes:
        if text.isascii():
            return text.encode().translate(self.ascii)
        codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
        folded = self.single.take(codes)
        if folded.max() == UNKNOWN:
            self._learn_forms(np.unique(codes[folded == UNKNOWN]).tolist())
            folded = self.single.take(codes)
        if folded.max() >= LONGER:
            return self._insert_longer(codes, folded).tobytes().decode("utf-32-le").encode()
        if folded.max() < 128:
            return folded.astype(np.uint8).tobytes()
        return folded.tobytes().decode("utf-32-le").encode()

    def _insert_longer(self, codes: npt.NDArray[np.uint32], folded: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """`folded` with the forms of any length in their places."""
        places = np.flatnonzero(folded == LONGER)
        lengths = np.ones(len(codes), np.int64)
        forms = [self.longer[code] for code in codes[places].tolist()]
        lengths[places] = [len(form) for form in forms]
        out = np.repeat(folded, lengths)
        out[np.repeat(folded == LONGER, lengths)] = np.frombuffer("".join(forms).encode("utf-32-le"), "<u4")
        return out


_folder = cache(_Folder)


def normalise(text: str, numbers: str = ZERO) -> bytes:
    """The tokens of a text in UTF-8, one space between them; empty for a text without letters and digits.

    numbers: ZERO: each becomes `0`. KEEP: `-1,234.50` is `-1.234.50`. DENSE: kept if at least DENSE_FROM of the text's tokens are numbers.
    """
    normal = _with_zeros(text)
    return _with_digits(text) if keeps_numbers(normal, numbers) else normal


def keeps_numbers(normal: bytes, numbers: str) -> bool:
    """Whether a text keeps its numbers. normal: as ZERO makes it. numbers: as for `normalise`."""
    return numbers == KEEP or (numbers == DENSE and is_dense(normal))


def _with_zeros(text: str) -> bytes:
    folded = _folder()(text)
    # Twice, as of `0,0,0` the first pass finds only one.
    folded = folded.replace(b"0\x1f0", b"00").replace(b"0\x1f0", b"00").replace(b"\x1f", b" ")
    codes = np.frombuffer(folded, np.uint8)
    # Of several digits or several spaces the first; faster than split and join, or regular expressions.
    run = (codes == ord("0")) | (codes == ord(" "))
    return _without_repeats(codes, run)


def _with_digits(text: str) -> bytes:
    """Numbers with their digits: a separator between two digits is a point, a minus before one and behind a space stays."""
    codes = np.frombuffer(b" " + _folder(True)(text) + b" ", np.uint8).copy()
    digit = (codes >= ord("0")) & (codes <= ord("9"))
    mark, sign = codes == ord(MARK), codes == ord(SIGN)
    between = np.zeros(len(codes), bool)
    between[1:-1] = mark[1:-1] & digit[:-2] & digit[2:]
    codes[mark] = ord(" ")
    codes[between] = ord(".")
    negative = np.zeros(len(codes), bool)
    negative[1:-1] = sign[1:-1] & (codes[:-2] == ord(" ")) & digit[2:]
    codes[sign] = ord(" ")
    codes[negative] = ord("-")
    return _without_repeats(codes, codes == ord(" "))


def _without_repeats(codes: npt.NDArray[np.uint8], where: npt.NDArray[np.bool_]) -> bytes:
    """The bytes, of equal ones in a row the first alone if they are among those in `where`; no space at the ends."""
    keep = np.ones(len(codes), bool)
    keep[1:] = ~(where[1:] & (codes[1:] == codes[:-1]))
    return codes[keep].tobytes().strip(b" ")


def count_numbers(normal: bytes) -> int:
    """The number of tokens that are numbers, of a text that was normalised with ZERO."""
    codes = np.frombuffer(b" " + normal + b" ", np.uint8)
    space = codes == ord(" ")
    return int(np.count_nonzero((codes[1:-1] == ord("0")) & space[:-2] & space[2:]))


def is_dense(normal: bytes) -> bool:
    """Whether a text, normalised with ZERO, is dense with numbers: see DENSE_FROM."""
    return bool(normal) and count_numbers(normal) >= DENSE_FROM * count_tokens(normal)


def count_tokens(normal: bytes) -> int:
    """The number of tokens of a normalised text."""
    return normal.count(b" ") + 1 if normal else 0


def shingles(normal: bytes, k: int) -> list[bytes]:
    """Every run of `k` tokens of a normalised text, in order, with repeats.

    A text of fewer tokens is one shingle; a text of none has none.
    """
    spaces = np.flatnonzero(np.frombuffer(normal, np.uint8) == 32)
    if len(spaces) + 1 <= k:
        return [normal] if normal else []
    starts = [0, *(spaces[: len(spaces) - k + 1] + 1).tolist()]
    ends = [*spaces[k - 1 :].tolist(), len(normal)]
    return [normal[start:end] for start, end in zip(starts, ends, strict=True)]


def shingle_spans(normals: list[bytes], k: int) -> tuple[bytes, Places, Places, Places]:
    """The shingles of many normalised texts, none of them empty, as spans of one buffer.

    Returns the buffer, the start and the end of every shingle, (shingles,) each, and the shingles of each text,
    (texts,). `shingles` says which those are.
    """
    buffer = b" ".join(normals)
    if not normals:
        return buffer, *np.zeros((3, 0), np.int64)
    after = np.flatnonzero(np.frombuffer(buffer, np.uint8) == 32)
    starts, ends = np.concatenate(([0], after + 1)), np.append(after, len(buffer))
    tokens = np.array([count_tokens(normal) for normal in normals])
    counts = np.maximum(tokens - k + 1, 1)
    first = np.cumsum(tokens) - tokens  # each text's first token
    begin = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    last = np.minimum(begin + k - 1, np.repeat(first + tokens - 1, counts))
    return buffer, starts[begin], ends[last], counts


def shingle_hashes(normals: list[bytes], k: int) -> tuple[npt.NDArray[np.uint32], Places]:
    """xxHash32 of every shingle of many normalised texts, none of them empty.

    Returns the hashes of one text after the other, (shingles,), and how many each text has, (texts,).
    """
    buffer, starts, ends, counts = shingle_spans(normals, k)
    return xxh32(buffer, starts, ends), counts


def shingle_set(text: str, k: int, numbers: str = ZERO) -> npt.NDArray[np.uint64]:
    """The set of a text's shingles as sorted distinct xxh3-64 hashes. numbers: as for `normalise`.

    Two different shingles of a pair of documents of 1,000 shingles each share a hash with a probability of 2e-13.
    """
    return sorted_distinct(
        np.array(list(map(xxhash.xxh3_64_intdigest, shingles(normalise(text, numbers), k))), np.uint64)
    )


def sorted_distinct(values: npt.NDArray) -> npt.NDArray:
    """The distinct values, sorted."""
    ordered = np.sort(values)
    return ordered[group_starts(ordered)]


def jaccard(first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]) -> float:
    """|A ∩ B| / |A ∪ B| of two sets as `shingle_set` gives them; 0 if both are empty."""
    both = np.sort(np.concatenate((first, second)))
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    return common / (len(both) - common) if len(both) else 0.0
