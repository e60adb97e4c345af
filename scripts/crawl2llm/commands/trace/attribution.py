"""Where a text stands word for word in the training text, and so whether it was learnt by heart.

Every run of at least --words words that the text shares with a document is found, the longest first, whatever their case and punctuation
(as decontamination reads words: filters/decontaminate/words.py). The corpus is read once, a document at a time: memory does not grow with
it. With --index an index is built first (commands/trace/index.py), and questions of the same corpus are answered by it from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import command_line
from crawl2llm.commands.trace import document
from crawl2llm.commands.trace import index as indexes
from crawl2llm.commands.trace.index import SURE, Index
from crawl2llm.commands.trace.results import Results, opened_results, options
from crawl2llm.commands.trace.words import lines_of_stale
from crawl2llm.core.console import Progress, quantity, setup
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical
from crawl2llm.filters.decontaminate.ngrams import HashSet, mixed, stretches
from crawl2llm.filters.decontaminate.words import places, words
from crawl2llm.formats.documents import count, rows

WORDS = 8  # of a run that is told
MOST = 50  # runs that are told, the longest
COLUMNS = ["id", "url", "source", "text"]
FOLDER = ".cache/who-wrote"  # of indexes, below a run's working directory
Row = dict[str, Any]


@dataclass(frozen=True, order=True)
class Shared:
    """Words that a text and a document share: [first, first + number) of the text's, characters [start, end) of the document."""

    number: int
    first: int
    id: str
    start: int
    end: int
    url: str = ""
    source: str = ""


class Wanted:
    """A text whose words are looked for, in runs of `n` at least."""

    def __init__(self, text: str, n: int) -> None:
        self.text, self.n, self.words = text, n, words(text)
        self.known: dict[bytes, int] = {}  # word → number, from 1; 0 is any other word
        numbers = [self.known.setdefault(word, len(self.known) + 1) for word in self.words]
        self.numbers = np.array(numbers, np.int64)
        self.hashes = mixed(np.arange(len(self.known) + 1))
        found = stretches(self.hashes[self.numbers], n)
        self.set = HashSet(found)
        self.at: dict[int, list[int]] = {}  # hash → words that a run with it begins at
        for place, one in enumerate(found.tolist()):
            self.at.setdefault(one, []).append(place)

    def runs(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(word of the wanted text, word of `text`, number of words) of each run that both have and that is no part of a longer one."""
        numbers = np.array([self.known.get(word, 0) for word in words(text)], np.int64)
        hashes = stretches(self.hashes[numbers], self.n)
        where, _ = self.set.find(hashes)
        ended: dict[int, int] = {}  # difference of the places → word of `text` after the last run with it
        for there in where.tolist():
            for here in self.at[int(hashes[there])]:
                if there < ended.get(there - here, 0):
                    continue  # inside a run that was told
                length = 0
                while (
                    here + length < len(self.numbers)
                    and there + length < len(numbers)
                    and self.numbers[here + length] == numbers[there + length]
                ):
                    length += 1
                if length >= self.n:  # a hash may be that of other words
                    ended[there - here] = there + length
                    yield here, there, length


def search(wanted: Wanted, documents: Iterable[Row], most: int = MOST) -> tuple[list[Shared], np.ndarray]:
    """(the longest shared runs, for each word of the text the longest run that has it: [words]) over documents, rows of COLUMNS."""
    longest, cover = list[Shared](), np.zeros(len(wanted.words), np.int64)
    for row in documents:
        where = None
        for here, at, number in wanted.runs(row["text"]):
            np.maximum(cover[here : here + number], number, out=cover[here : here + number])
            if len(longest) == most and number < longest[0].number:
                continue
            where = places(row["text"]) if where is None else where
            start, end = int(where[at, 0]), int(where[at + number - 1, 1])
            one = Shared(number, here, row["id"], start, end, row["url"] or "", row["source"])
            heapq.heappush(longest, one) if len(longest) < most else heapq.heappushpop(longest, one)
    return sorted(longest, key=lambda one: (-one.number, one.first, one.id, one.start)), cover


def every(files: list[Path]) -> Iterator[Row]:
    """All documents of files, with progress."""
    progress = Progress(sum(map(count, files)), "documents")
    for path in files:
        for row in rows(path, COLUMNS):
            yield row
            progress.add()


def likely(index: Index, text: str) -> tuple[list[int], int]:
    """(the numbers of the documents that share most with a text, MOST of them at most; how many share something)."""
    shared = index.documents(indexes.fingerprints(text))
    return [number for number, _ in shared.most_common(indexes.MOST)], len(shared)


def corpus(results: Results) -> list[Path]:
    """The files of the training text. Raises InputError where there are none."""
    found = [results.train(shard) for shard in results.shards]
    if lacking := next((path for path in found if not path.exists()), None):
        raise InputError(f"{lacking} is not there: the corpus was not written yet")
    return found


def indexed(results: Results, files: list[Path], new: bool) -> Index | None:
    """The index of the corpus; None where there is none. new: it is built where it is lacking or of another corpus."""
    sums = {}
    for path, shard in zip(files, results.shards, strict=True):
        name = f"train/{shard}.parquet"
        sums[str(path)] = Manifest.read(results.path("corpus.write", shard), only=name).files[name]
    mark = hashlib.sha256(canonical(sums).encode()).hexdigest()
    folder = Path(FOLDER, Path(results.project.folder(results.variant, "corpus.write")).parts[1])
    held = indexes.there(folder, files, mark)
    if new and not held:
        indexes.build(folder, files, mark)
        held = indexes.there(folder, files, mark)
    return held


def answer(results: Results, text: str, n: int, new: bool = False) -> Row:
    """What `main` tells. new: an index is built where there is none. Raises InputError for a text of fewer words."""
    wanted = Wanted(text, n)
    if len(wanted.words) < n:
        raise InputError(
            f"the text has {quantity(len(wanted.words), 'word')} and --words is {n}: give a longer text, or a smaller number"
            if wanted.words
            else "the text has no word in it"
        )
    files = corpus(results)
    index = indexed(results, files, new) if n >= SURE else None  # shorter runs may lack a fingerprint
    if index:
        some, sharing = likely(index, text)
        found, cover = search(wanted, index.rows(some, COLUMNS))
    else:
        some, sharing = [], 0
        found, cover = search(wanted, every(files))
    where = places(text)
    return {
        "by": "index" if index else "scan",
        "not_read": sharing - len(some),
        "words": len(wanted.words),
        "covered": int((cover > 0).sum()),
        "longest": int(cover.max()),
        "matches": [
            {**asdict(one), "text": text[int(where[one.first, 0]) : int(where[one.first + one.number - 1, 1])]}
            for one in found
        ],
    }


def lines(found: dict[str, Any], n: int) -> Iterator[str]:
    """The answer as text."""
    where = f"the training text in runs of {quantity(n, 'word')} or more"
    if found["covered"]:
        share = found["covered"] / found["words"]
        yield f"{found['covered']:,} of {quantity(found['words'], 'word')} ({share:.0%}) stand in {where}"
        yield f"the longest run has {quantity(found['longest'], 'word')}"
    else:
        yield f"none of the {quantity(found['words'], 'word')} stands in {where}: --words with a smaller number finds shorter ones"
    if found["not_read"]:
        yield (
            f"{quantity(found['not_read'], 'more document shares', 'more documents share')} a passage, not read: the {indexes.MOST:,} that "
            "share most were"
        )
    for one in found["matches"]:
        yield f"  {one['number']:>4} words  {one['id']}  {one['url']}  characters {one['start']:,} to {one['end']:,}"
        yield f"             {document.cut(one['text'], 100)}"


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described(
        "crawl2llm who-wrote",
        __doc__,
        '"Print objects to the text stream file, separated by sep"\n  crawl2llm who-wrote --file answer.txt --words 12',
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("text", nargs="?", help="what a model wrote")
    what.add_argument("--file", type=Path, help="a file with it, in UTF-8")
    parser.add_argument(
        "--index",
        action="store_true",
        help=f"build an index of the corpus first, where there is none of it (in {FOLDER}/, some 5 bytes a word)",
    )
    parser.add_argument("--words", type=int, default=WORDS, help=f"the shortest run that is told ({WORDS})")
    options(parser)
    args = parser.parse_args(argv)
    setup("who-wrote")
    if args.words < 2:
        raise InputError(f"--words is {args.words}; it must be 2 or more")
    if args.index and args.words < SURE:
        raise InputError(f"--words is {args.words}; an index finds runs of {SURE} words or more")
    try:
        text = args.file.read_text(encoding="utf-8") if args.file else args.text
    except UnicodeDecodeError as error:
        raise InputError(f"--file {args.file}: not text in UTF-8: {error}") from error
    with contextlib.ExitStack() as stack:
        results = opened_results(args, stack)
        found = answer(results, text, args.words, args.index)
        found["stale"] = results.stale(until="corpus.write")
    return command_line.show(args, found, lambda: [*lines(found, args.words), *lines_of_stale(found["stale"])])


if __name__ == "__main__":
    raise SystemExit(main())
