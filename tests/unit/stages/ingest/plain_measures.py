"""The measures of a page's blocks in NumPy: what the compiled ones (stages/ingest/native/measures.pxi) must be."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from crawl2llm.stages.ingest.markup import Markup
from crawl2llm.stages.ingest.tags import AROUND, CODE, GROUPS

Ints = NDArray[np.int64]
LONG = 80  # characters of a block that looks like a paragraph
BITS = [*GROUPS, "hidden", *(f"<{name}>" for name in AROUND)]


LEVELS = [0, 1, 2, 3, 4, 6]  # elements above a block that are looked at
MANY = 100  # numbers of blocks, and distances in blocks, are counted so far
AGAIN = 8  # times that a text occurs on the page are counted so far
MOST = 32_000  # a measure is at most so large
# Kinds of characters, which are counted together, three to a number, 21 bits for each.
DIGIT, UPPER, SPACE, STOP, COMMA, SEPARATOR, END, FIRST = range(8)
FIELD = 21
LOOKED = 20_000  # characters of a block whose kinds are counted


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
    """Sums of the values of blocks [first, last); of several rows of values at once."""
    running = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.int64)
    np.cumsum(values, axis=-1, out=running[..., 1:])
    return running[..., last] - running[..., first]


def _share(part: Ints, whole: Ints | int) -> Ints:
    """The part in thousandths of the whole."""
    return part * 1000 // np.maximum(whole, 1)


def _beside(name: str, values: Ints, reach: int, outside: int) -> dict[str, Ints]:
    """The values of the blocks up to `reach` places before ("name -1") and behind ("name +1")."""
    edge = np.full(reach, outside, np.int64)
    wide = np.concatenate([edge, values, edge])
    return {f"{name} {by:+}": wide[reach + by : reach + by + len(values)] for by in range(-reach, reach + 1) if by}


def _since(where: NDArray[np.bool_], order: Ints) -> tuple[Ints, Ints]:
    """How many blocks ago one was of these, and how many further on one is."""
    ago = order - np.maximum.accumulate(np.where(where, order, -MANY))
    on = np.minimum.accumulate(np.where(where, order, len(order) + MANY)[::-1])[::-1] - order
    return np.minimum(ago, MANY), np.minimum(on, MANY)


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
        self.own_bits, self.bits = np.array(markup.own_bits, np.int64), np.array(markup.bits, np.int64)
        self.begin, self.end = np.array(markup.first, np.int64), np.array(markup.last, np.int64)
        self.above = np.empty((7, count), np.int64)  # the element of each block, the one around it, …
        self.above[0] = node = np.array(markup.node, np.int64)
        for level in range(6):
            self.above[level + 1] = self.parent[self.above[level]]
        # Blocks whose elements say the same are likely of one kind.
        make = np.array([self.code[node], self.bits[node], self.code[self.above[1]]])
        _, self.make = np.unique(make, axis=1, return_inverse=True)

    def of_make(self, values: Ints) -> Ints:
        """For each block, the sum over the blocks of its make."""
        return np.bincount(self.make, values).astype(np.int64)[self.make]

    def kinds(self) -> list[Ints]:
        """How many characters of each kind a block has, of the first LOOKED; what it ends with; whether it begins in upper case."""
        rows = []
        for text in self.texts:
            points = np.minimum(np.frombuffer(text[:LOOKED].encode("utf-32-le", "surrogatepass"), np.uint32), 65535)
            sums = KINDS[:, points].sum(1)
            found = [int(sums[kind // 3]) >> kind % 3 * FIELD & ((1 << FIELD) - 1) for kind in range(6)]
            last = int(KINDS[1, points[-1]])
            rows.append([*found, (last & 1) + 2 * (last >> FIELD & 1), int(KINDS[0, points[0]]) >> FIELD & 1])
        return list(np.array(rows, np.int64).T)

    def first(self) -> dict[str, Ints]:
        """The measures of every block, before any score."""
        count, order, length, linked = self.count, self.order, self.length, self.linked
        found, above = self.kinds(), self.above
        node, code = above[0], self.code[above[0]]
        density = _share(linked, length)
        long = np.where((length >= LONG) & (density < 400), length, 0)
        whole, prose = int(length.sum()), int(long.sum())
        digits, upper = _share(np.array([found[DIGIT], found[UPPER]]), np.minimum(length, LOOKED))
        out: dict[str, Ints] = {
            "length": length, "linked": linked, "links": self.links, "density": density, "marks": self.marks,
            "digits": digits, "upper": upper, "stops": found[STOP], "commas": found[COMMA],
            "separators": found[SEPARATOR], "spaces": found[SPACE],
            "end": found[END], "upper first": found[FIRST],
            "code": code, "code above": self.code[above[1]], "code two above": self.code[above[2]],
        }  # fmt: skip
        own = self.own_bits[above[:4]]
        for where, words in (("near", own[0] | own[1] | own[2] | own[3]), ("in", self.bits[node])):
            out.update((f"{where} {name}", words >> bit & 1) for bit, name in enumerate(BITS))
        # The elements around: how many blocks, how much of the page, how much of it links and paragraphs.
        sums = _sums(np.array([np.ones(count, np.int64), length, linked, long]), self.begin, self.end)
        size, text, link_text, paragraphs = sums
        sizes, texts, link_texts, prose_texts = sums[:, above[LEVELS]]
        for name, rows in (
            ("blocks", np.minimum(sizes, MANY)), ("share", _share(texts, whole)), ("density", _share(link_texts, texts)),
            ("prose", _share(prose_texts, prose)), ("prose in text", _share(prose_texts, texts)),
        ):  # fmt: skip
            out.update((f"{name} {level}", row) for level, row in zip(LEVELS, rows, strict=True))
        # The innermost element with most of the paragraphs, and how far from it a block is.
        for least in (500, 800):
            main = int(np.flatnonzero(paragraphs * 1000 >= prose * least)[-1]) if prose else 0
            begin, end = int(self.begin[main]), int(self.end[main])
            away = np.minimum(order - begin, 0) + np.maximum(order - end + 1, 0)
            out[f"from main {least}"] = np.clip(away, -MANY, MANY)
            out[f"main blocks {least}"] = np.full(count, min(int(size[main]), MANY))
            out[f"main density {least}"] = np.full(count, int(link_text[main]) * 1000 // max(int(text[main]), 1))
        out["place"], out["text before"] = _share(order, count), _share(np.cumsum(length) - length, whole)
        out["prose before"] = _share(np.cumsum(long) - long, prose)
        headings = np.flatnonzero(code == CODE["h1"])
        after = order - headings[np.argmax(length[headings])] if len(headings) else np.full(count, -MANY)
        out["after h1"] = np.clip(after, -MANY, MANY)
        out["since prose"], out["until prose"] = _since(long > 0, order)
        out["since heading"], _ = _since((code >= CODE["h1"]) & (code <= CODE["h6"]), order)
        of_make = [self.of_make(values) for values in (np.ones(count, np.int64), length, linked)]
        out["make"], out["make text"] = np.minimum(of_make[0], MANY), _share(of_make[1], whole)
        out["make density"] = _share(of_make[2], of_make[1])
        seen = Counter(self.texts)
        out["repeated"] = np.fromiter((min(seen[each], AGAIN) for each in self.texts), np.int64, count)
        out["page density"] = np.full(count, int(linked.sum()) * 1000 // max(whole, 1))
        out |= _beside("length", length, 3, -1) | _beside("density", density, 3, -1) | _beside("code", code, 3, -1)
        out |= _beside("stops", found[STOP], 1, -1)
        around = _beside("", node, 1, -1), _beside("", above[1], 1, -1)
        for by in (" -1", " +1"):
            out["siblings" + by] = ((around[0][by] == node) | (around[1][by] == above[1])).astype(np.int64)
        for reach in (4, 10):
            low, high = np.maximum(order - reach, 0), np.minimum(order + reach + 1, count)
            within = _sums(np.array([length, linked, long]), low, high)
            out[f"text within {reach}"], out[f"prose within {reach}"] = within[0], within[2]
            out[f"density within {reach}"] = _share(within[1], within[0])
        return out

    def second(self, scores: Ints) -> dict[str, Ints]:
        """The measures of every block that the scores of the first forest add."""
        count, order, length = self.count, self.order, self.length
        score = np.clip(scores, -800, 800)
        good = np.where(score > 0, length, 0)
        whole = max(int(good.sum()), 1)
        out: dict[str, Ints] = {"score": score} | _beside("score", score, 4, -900)
        before = np.cumsum(good)
        out["good before"], out["good after"] = _share(before - good, whole), _share(whole - before, whole)
        out["page good share"] = np.full(count, whole * 1000 // max(int(length.sum()), 1))
        out["since good"], out["until good"] = _since((score > 0) & (length >= LONG), order)
        weighed = length * np.clip(score, -300, 300)
        both = np.array([weighed, length, good])
        for reach in (3, 8):
            low, high = np.maximum(order - reach, 0), np.minimum(order + reach + 1, count)
            within = _sums(both[:2], low, high)
            out[f"score within {reach}"] = within[0] // np.maximum(within[1], 1)
        sums = _sums(both, self.begin, self.end)
        means, held = (sums[0] // np.maximum(sums[1], 1))[self.above], _share(sums[2], whole)[self.above]
        for level in range(5):
            out[f"score {level} above"], out[f"good {level} above"] = means[level], held[level]
        out["make score"] = self.of_make(weighed) // np.maximum(self.of_make(length), 1)
        return out
