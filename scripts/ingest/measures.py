"""What a page's blocks look like, in whole numbers: their text, the elements around them, their neighbours, and where they stand.

All are integers, so a decision does not depend on how a processor rounds. `first` measures a page; `second` looks at the scores that
the first forest gave its blocks: those of the neighbours, and of the elements around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from scripts.ingest.markup import AROUND, CODE, GROUPS, Markup

Ints = NDArray[np.int64]
LONG = 80  # characters of a block that looks like a paragraph
BITS = [*GROUPS, "hidden", *(f"<{name}>" for name in AROUND)]


class All:
    """Every name."""

    def __contains__(self, name: object) -> bool:
        return True


FAR = 9999  # blocks, where there is none
MOST = 32_000  # a measure is at most so large
# Kinds of characters, which are counted together, three to a number, 21 bits for each.
DIGIT, UPPER, SPACE, STOP, COMMA, SEPARATOR, END, FIRST = range(8)
FIELD = 21
LOOKED = 20_000  # characters of a block whose kinds are counted
TOGETHER = 1_000_000  # characters that are counted at once


def _kinds() -> NDArray[np.int64]:
    out = np.zeros((2, 65536), np.int64)
    for number in range(0x3000):
        character = chr(number)
        out[0, number] = character.isdigit() | character.isupper() << FIELD | character.isspace() << 2 * FIELD
    for field, characters in enumerate((".!?…。！？।۔", ",;:、，；：—–", "|»«›‹•·/>→@#©")):
        for character in characters:
            out[1, ord(character)] = 1 << field * FIELD
    return out


KINDS = _kinds()


def _sums(values: Ints, first: Ints, last: Ints) -> Ints:
    """Sums of the values of blocks [first, last)."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running[last] - running[first]


def _share(part: Ints, whole: Ints | int) -> Ints:
    """The part in thousandths of the whole."""
    return part * 1000 // np.maximum(whole, 1)


def _near(values: Ints, by: int, outside: int) -> Ints:
    """The values of the blocks so many places further on."""
    out = np.full(len(values), outside, np.int64)
    if abs(by) < len(values):
        if by > 0:
            out[:-by] = values[by:]
        else:
            out[-by:] = values[:by]
    return out


def _since(where: NDArray[np.bool_], order: Ints) -> tuple[Ints, Ints]:
    """How many blocks ago one was of these, and how many further on one is."""
    ago = order - np.maximum.accumulate(np.where(where, order, -FAR))
    on = np.minimum.accumulate(np.where(where, order, FAR)[::-1])[::-1] - order
    return ago, on


class Page:
    """A page's blocks, and what is known of all of them."""

    def __init__(self, markup: Markup) -> None:
        self.count = count = len(markup.text)
        self.texts = markup.text
        self.order = np.arange(count)
        self.length = np.fromiter(map(len, markup.text), np.int64, count)
        self.links, self.marks = np.array(markup.links, np.int64), np.array(markup.marks, np.int64)
        self.linked = np.minimum(np.array(markup.linked, np.int64), self.length)
        self.parent, self.code = np.array(markup.parent, np.int64), np.array(markup.code, np.int64)
        self.own, self.bits = np.array(markup.own, np.int64), np.array(markup.bits, np.int64)
        self.begin, self.end = np.array(markup.first, np.int64), np.array(markup.last, np.int64)
        self.above = [np.array(markup.node, np.int64)]  # the element of each block, the one around it, …
        for _ in range(6):
            self.above.append(self.parent[self.above[-1]])
        node = self.above[0]
        # Blocks whose elements say the same are likely of one kind.
        make = self.code[node] * 1_000_003 + self.bits[node] * 31 + self.code[self.above[1]] * 7
        _, self.make = np.unique(make, return_inverse=True)

    def of_make(self, values: Ints) -> Ints:
        """For each block, the sum over the blocks of its make."""
        return np.bincount(self.make, values).astype(np.int64)[self.make]

    def kinds(self) -> list[Ints]:
        """How many characters of each kind a block has, of the first LOOKED; what it ends with; whether it begins in upper case."""
        parts = []
        looked = np.minimum(self.length, LOOKED)
        running = np.cumsum(looked)
        begin = 0
        while begin < self.count:  # in parts, which bounds memory
            before = running[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(running, before + TOGETHER, "right")))
            joined = "\n".join([text[:LOOKED] for text in self.texts[begin:end]])
            points = np.minimum(np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32), 65535)
            ends = np.cumsum(looked[begin:end] + 1) - 1
            begins = ends - looked[begin:end]
            sums = [_sums(kinds[points], begins, ends) for kinds in KINDS]
            found = [sums[kind // 3] >> kind % 3 * FIELD & ((1 << FIELD) - 1) for kind in range(6)]
            last = KINDS[1, points[ends - 1]]
            found += [(last & 1) + 2 * (last >> FIELD & 1), KINDS[0, points[begins]] >> FIELD & 1]
            parts.append(found)
            begin = end
        return [np.concatenate(rows) for rows in zip(*parts, strict=True)]

    def first(self, wanted: Container[str] = All()) -> dict[str, Ints]:
        """The measures of every block, before any score; of those that cost time only the wanted ones."""
        count, order, length, linked = self.count, self.order, self.length, self.linked
        found = self.kinds()
        node, above, code = self.above[0], self.above, self.code[self.above[0]]
        density = _share(linked, length)
        long = np.where((length >= LONG) & (density < 400), length, 0)
        whole, prose = int(length.sum()), int(long.sum())
        looked = np.minimum(length, LOOKED)
        out: dict[str, Ints] = {
            "length": length, "linked": linked, "links": self.links, "density": density, "marks": self.marks,
            "digits": _share(found[DIGIT], looked), "upper": _share(found[UPPER], looked), "stops": found[STOP], "commas": found[COMMA],
            "separators": found[SEPARATOR], "spaces": found[SPACE],
            "end": found[END], "upper first": found[FIRST],
            "code": code, "code above": self.code[above[1]], "code two above": self.code[above[2]],
        }  # fmt: skip
        near = self.own[above[0]] | self.own[above[1]] | self.own[above[2]] | self.own[above[3]]
        everywhere = self.bits[node]
        for bit, name in enumerate(BITS):
            if f"near {name}" in wanted:
                out[f"near {name}"] = near >> bit & 1
            if f"in {name}" in wanted:
                out[f"in {name}"] = everywhere >> bit & 1
        # The elements around: how many blocks, how much of the page, how much of it links and paragraphs.
        size, text, link_text, paragraphs = (
            _sums(values, self.begin, self.end) for values in (np.ones(count, np.int64), length, linked, long)
        )
        for level in (0, 1, 2, 3, 4, 6):
            at = above[level]
            out[f"blocks {level}"], out[f"share {level}"] = size[at], _share(text[at], whole)
            out[f"density {level}"], out[f"prose {level}"] = (
                _share(link_text[at], text[at]),
                _share(paragraphs[at], prose),
            )
            out[f"prose in text {level}"] = _share(paragraphs[at], text[at])
        # The innermost element with most of the paragraphs, and how far from it a block is.
        for least in (500, 800):
            main = int(np.flatnonzero(paragraphs * 1000 >= prose * least)[-1]) if prose else 0
            begin, end = int(self.begin[main]), int(self.end[main])
            out[f"from main {least}"] = np.minimum(order - begin, 0) + np.maximum(order - end + 1, 0)
            out[f"main blocks {least}"] = np.full(count, size[main])
            out[f"main density {least}"] = np.full(count, int(link_text[main]) * 1000 // max(int(text[main]), 1))
        out["place"], out["text before"] = _share(order, count), _share(np.cumsum(length) - length, whole)
        out["prose before"] = _share(np.cumsum(long) - long, prose)
        headings = np.flatnonzero(code == CODE["h1"])
        out["after h1"] = order - headings[np.argmax(length[headings])] if len(headings) else np.full(count, -FAR)
        out["since prose"], out["until prose"] = _since(long > 0, order)
        out["since heading"], _ = _since((code >= CODE["h1"]) & (code <= CODE["h6"]), order)
        out["make"], out["make text"] = self.of_make(np.ones(count, np.int64)), _share(self.of_make(length), whole)
        out["make density"] = _share(self.of_make(linked), self.of_make(length))
        seen = Counter(self.texts)
        out["repeated"] = np.fromiter((seen[each] for each in self.texts), np.int64, count)
        for name, value in (
            ("page blocks", count), ("page text", whole), ("page prose", prose), ("page longest", int(length.max())),
            ("page density", int(linked.sum()) * 1000 // max(whole, 1)),
        ):  # fmt: skip
            out[name] = np.full(count, value)
        for by in (-3, -2, -1, 1, 2, 3):
            out[f"length {by:+}"], out[f"density {by:+}"] = _near(length, by, -1), _near(density, by, -1)
            out[f"code {by:+}"] = _near(code, by, -1)
        for by in (-1, 1):
            out[f"stops {by:+}"] = _near(found[STOP], by, -1)
            out[f"siblings {by:+}"] = ((_near(node, by, -1) == node) | (_near(above[1], by, -1) == above[1])).astype(
                np.int64
            )
        for reach in (4, 10):
            low, high = np.maximum(order - reach, 0), np.minimum(order + reach + 1, count)
            out[f"text within {reach}"] = _sums(length, low, high)
            out[f"density within {reach}"] = _share(_sums(linked, low, high), out[f"text within {reach}"])
            out[f"prose within {reach}"] = _sums(long, low, high)
        return out

    def second(self, scores: Ints) -> dict[str, Ints]:
        """The measures of every block that the scores of the first forest add."""
        count, order, length = self.count, self.order, self.length
        score = np.clip(scores, -800, 800)
        good = np.where(score > 0, length, 0)
        whole = max(int(good.sum()), 1)
        out: dict[str, Ints] = {"score": score}
        for by in (-4, -3, -2, -1, 1, 2, 3, 4):
            out[f"score {by:+}"] = _near(score, by, -900)
        before = np.cumsum(good)
        out["good before"], out["good after"] = _share(before - good, whole), _share(whole - before, whole)
        out["page good"], out["page good share"] = (
            np.full(count, whole),
            np.full(count, whole * 1000 // max(int(length.sum()), 1)),
        )
        out["since good"], out["until good"] = _since((score > 0) & (length >= LONG), order)
        weighed = length * np.clip(score, -300, 300)
        for reach in (3, 8):
            low, high = np.maximum(order - reach, 0), np.minimum(order + reach + 1, count)
            out[f"score within {reach}"] = _sums(weighed, low, high) // np.maximum(_sums(length, low, high), 1)
        mean = _sums(weighed, self.begin, self.end) // np.maximum(_sums(length, self.begin, self.end), 1)
        held = _share(_sums(good, self.begin, self.end), whole)
        for level in range(5):
            out[f"score {level} above"], out[f"good {level} above"] = mean[self.above[level]], held[self.above[level]]
        out["make score"] = self.of_make(weighed) // np.maximum(self.of_make(length), 1)
        return out


def table(measures: dict[str, Ints], names: list[str]) -> NDArray[np.int16]:
    """The measures of these names, a row each."""
    rows = np.array([measures[name] for name in names])
    return np.clip(rows, -MOST, MOST, out=rows).astype(np.int16)
