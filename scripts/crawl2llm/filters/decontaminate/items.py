"""An item of an evaluation set as decontamination searches for it: question, answer, and which words have to be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.decontaminate.words import words
from crawl2llm.formats.documents import Writer, rows

FILE = "items.parquet"  # of decontaminate.index
Asked = tuple[
    list[str], str
]  # the question, in each form that it may be written; the right answer, "" where there is none
BETWEEN = (b"", b"answer", b"a")  # what may stand between a short question and its answer
ALIKE = 3  # items of a set that may have the same words; of brackets alone, as in BIG-bench's dyck_languages, a thousand have
SCHEMA = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("questions", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("whole", pa.bool_()),
        ("short", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Item:
    """One item. questions: its words in each form, one space between words; answer: likewise. whole: every word has to be found.

    short: too few words to be told from chance, or the words of another item of the set, of which only the signs differ; it is not
    searched for.
    """

    set: str
    id: str
    questions: list[str]
    answer: str = ""
    whole: bool = False
    short: bool = False


def item(of: str, name: str, asked: Asked, n: int, least: int) -> Item:
    """An item as it is searched for by stretches of `n` words.

    A question of fewer than `n` or `least` words counts where it is found as a whole; of fewer than `least` (GPT-3 takes 8:
    arXiv:2005.14165, appendix C) together with its answer, and not at all where both have fewer.
    """
    questions = [found for found in dict.fromkeys(tuple(words(text)) for text in asked[0]) if found]
    answer = words(asked[1])
    length = min(map(len, questions), default=0)
    whole = length < max(n, least)
    if questions and length < least:
        if length + len(answer) < least or not answer:
            return Item(of, name, [_joined(one) for one in questions], _joined(answer), True, True)
        questions = [(*one, *filter(None, [mark]), *answer) for one in questions for mark in BETWEEN]
        answer = []
    return Item(of, name, [_joined(one) for one in questions], _joined(answer), whole, not questions)


def _joined(found: Iterable[bytes]) -> str:
    return b" ".join(found).decode("utf-8", "replace")


def items(asked: Iterable[tuple[str, str, Asked]], n: int, least: int) -> list[Item]:
    """The items of (set, id, what is asked)."""
    found, texts = [], dict[tuple[str, ...], set[str]]()
    for of, name, one in asked:
        made = item(of, name, one, n, least)
        texts.setdefault((of, *made.questions, made.answer), set()).add("\x1f".join([*one[0], one[1]]))
        found.append(made)
    return [replace(one, short=one.short or len(texts[one.set, *one.questions, one.answer]) > ALIKE) for one in found]


def write(path: Path, items: Iterable[Item]) -> None:
    """Write items as a table."""
    with Writer(path, SCHEMA) as writer:
        for one in items:
            writer.add(asdict(one))


def read(manifest: Path) -> tuple[list[Item], dict[str, object]]:
    """(the items, the settings of the search) that decontaminate.index left. Raises ManifestError for a damaged file."""
    made = Manifest.read(manifest)
    return list(_read(made.file(FILE))), dict(made.summary["search"])


def _read(path: Path) -> Iterator[Item]:
    yield from (Item(**row) for row in rows(path))
