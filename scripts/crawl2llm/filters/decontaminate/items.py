"""An item of an evaluation set as decontamination searches for it: question, answer, and which words have to be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.decontaminate.words import split_words
from crawl2llm.formats.documents import Writer, rows

FILE = "items.parquet"  # of decontaminate.index
QuestionAndAnswer = tuple[
    list[str], str
]  # the question, in each form that it may be written; the right answer, "" if there is none
ANSWER_MARKS = (b"", b"answer", b"a")  # what may stand between a short question and its answer
MOST_ALIKE = 3  # items of a set that may have the same words; of brackets alone, as in BIG-bench's dyck_languages, a thousand have
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


def build_item(set_name: str, name: str, texts: QuestionAndAnswer, n: int, least_words: int) -> Item:
    """An item as it is searched for by stretches of `n` words.

    A question of fewer than `n` or `least_words` words counts where it is found as a whole; of fewer than `least_words` (GPT-3 takes 8:
    arXiv:2005.14165, appendix C) together with its answer, and not at all if both have fewer.
    """
    questions = [form for form in dict.fromkeys(tuple(split_words(text)) for text in texts[0]) if form]
    answer = split_words(texts[1])
    length = min(map(len, questions), default=0)
    whole = length < max(n, least_words)
    if questions and length < least_words:
        if length + len(answer) < least_words or not answer:
            return Item(
                set_name, name, [_join_words(form_words) for form_words in questions], _join_words(answer), True, True
            )
        questions = [(*question, *filter(None, [mark]), *answer) for question in questions for mark in ANSWER_MARKS]
        answer = []
    return Item(
        set_name, name, [_join_words(question) for question in questions], _join_words(answer), whole, not questions
    )


def _join_words(word_list: Iterable[bytes]) -> str:
    return b" ".join(word_list).decode("utf-8", "replace")


def build_items(questions: Iterable[tuple[str, str, QuestionAndAnswer]], n: int, least_words: int) -> list[Item]:
    """The items of (set, id, what is asked)."""
    all_items, texts = [], dict[tuple[str, ...], set[str]]()
    for set_name, name, entry in questions:
        built_item = build_item(set_name, name, entry, n, least_words)
        texts.setdefault((set_name, *built_item.questions, built_item.answer), set()).add(
            "\x1f".join([*entry[0], entry[1]])
        )
        all_items.append(built_item)
    return [
        replace(item, short=item.short or len(texts[item.set, *item.questions, item.answer]) > MOST_ALIKE)
        for item in all_items
    ]


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write items as a table."""
    with Writer(path, SCHEMA) as writer:
        for item in items:
            writer.add(asdict(item))


def read_items(manifest: Path) -> tuple[list[Item], dict[str, object]]:
    """(the items, the settings of the search) that decontaminate.index left. Raises ManifestError for a damaged file."""
    index_manifest = Manifest.read(manifest)
    return list(_read_table(index_manifest.file(FILE))), dict(index_manifest.summary["search"])


def _read_table(path: Path) -> Iterator[Item]:
    yield from (Item(**row) for row in rows(path))
