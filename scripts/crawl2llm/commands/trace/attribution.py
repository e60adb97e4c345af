"""Where the training text has a text word for word, and so whether the model learned it by heart.

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
from crawl2llm.commands.trace.index import SURE_WORDS, Index
from crawl2llm.commands.trace.results import Results, add_options, open_results
from crawl2llm.commands.trace.words import stale_lines
from crawl2llm.core.console import Progress, format_quantity, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.filters.decontaminate.ngrams import HashSet, hash_numbers, hash_stretches
from crawl2llm.filters.decontaminate.words import split_words, word_spans
from crawl2llm.formats.documents import count_rows, rows

LEAST_WORDS = 8  # of a run that is told
MOST_RUNS = 50  # runs that are told, the longest
COLUMNS = ["id", "url", "source", "text"]
INDEX_FOLDER = ".cache/who-wrote"  # of indexes, below a run's working directory
Row = dict[str, Any]


@dataclass(frozen=True, order=True)
class SharedRun:
    """Words that a text and a document share: [first, first + number) of the text's, characters [start, end) of the document."""

    number: int
    first: int
    id: str
    start: int
    end: int
    url: str = ""
    source: str = ""


class TextQuery:
    """A text whose words are looked for, in runs of `n` at least."""

    def __init__(self, text: str, n: int) -> None:
        self.text, self.n, self.words = text, n, split_words(text)
        self.word_numbers: dict[bytes, int] = {}  # word → number, from 1; 0 is any other word
        numbers = [self.word_numbers.setdefault(word, len(self.word_numbers) + 1) for word in self.words]
        self.numbers = np.array(numbers, np.int64)
        self.hashes = hash_numbers(np.arange(len(self.word_numbers) + 1))
        hashes = hash_stretches(self.hashes[self.numbers], n)
        self.hash_set = HashSet(hashes)
        self.places_by_hash: dict[int, list[int]] = {}  # hash → words that a run with it begins at
        for place, hash_value in enumerate(hashes.tolist()):
            self.places_by_hash.setdefault(hash_value, []).append(place)

    def shared_runs(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(word of the wanted text, word of `text`, number of words) of each run that both have and that is no part of a longer one."""
        numbers = np.array([self.word_numbers.get(word, 0) for word in split_words(text)], np.int64)
        hashes = hash_stretches(self.hashes[numbers], self.n)
        matches, _ = self.hash_set.find_places(hashes)
        ended: dict[int, int] = {}  # difference of the places → word of `text` after the last run with it
        for document_word in matches.tolist():
            for text_word in self.places_by_hash[int(hashes[document_word])]:
                if document_word < ended.get(document_word - text_word, 0):
                    continue  # inside a run that was told
                length = 0
                while (
                    text_word + length < len(self.numbers)
                    and document_word + length < len(numbers)
                    and self.numbers[text_word + length] == numbers[document_word + length]
                ):
                    length += 1
                if length >= self.n:  # a hash may be that of other words
                    ended[document_word - text_word] = document_word + length
                    yield text_word, document_word, length


def search_documents(
    query: TextQuery, documents: Iterable[Row], most: int = MOST_RUNS
) -> tuple[list[SharedRun], np.ndarray]:
    """(the longest shared runs, for each word of the text the longest run that has it: [words]) over documents, rows of COLUMNS."""
    longest, cover = list[SharedRun](), np.zeros(len(query.words), np.int64)
    for row in documents:
        word_places = None
        for text_word, document_word, number in query.shared_runs(row["text"]):
            np.maximum(cover[text_word : text_word + number], number, out=cover[text_word : text_word + number])
            if len(longest) == most and number < longest[0].number:
                continue
            word_places = word_spans(row["text"]) if word_places is None else word_places
            start, end = int(word_places[document_word, 0]), int(word_places[document_word + number - 1, 1])
            run = SharedRun(number, text_word, row["id"], start, end, row["url"] or "", row["source"])
            heapq.heappush(longest, run) if len(longest) < most else heapq.heappushpop(longest, run)
    return sorted(longest, key=lambda run: (-run.number, run.first, run.id, run.start)), cover


def documents_of_files(files: list[Path]) -> Iterator[Row]:
    """All documents of files, with progress."""
    progress = Progress(sum(map(count_rows, files)), "documents")
    for path in files:
        for row in rows(path, COLUMNS):
            yield row
            progress.add()


def likely_documents(index: Index, text: str) -> tuple[list[int], int]:
    """(the numbers of the documents that share most with a text, MOST of them at most; how many share something)."""
    shared = index.count_shared(indexes.text_fingerprints(text))
    return [number for number, _ in shared.most_common(indexes.MOST_DOCUMENTS)], len(shared)


def corpus_files(results: Results) -> list[Path]:
    """The files of the training text. Raises InputError if there are none."""
    files = [results.training_table(shard) for shard in results.shards]
    if missing := next((path for path in files if not path.exists()), None):
        raise InputError(f"{missing} is not there: the corpus was not written yet")
    return files


def corpus_index(results: Results, files: list[Path], new: bool) -> Index | None:
    """The index of the corpus; None if there is none. new: it is built where it is lacking or of another corpus."""
    digests = {}
    for path, shard in zip(files, results.shards, strict=True):
        name = f"train/{shard}.parquet"
        digests[str(path)] = Manifest.read(results.manifest_path("corpus.write", shard), only=name).files[name]
    mark = hashlib.sha256(canonical_json(digests).encode()).hexdigest()
    folder = Path(INDEX_FOLDER, Path(results.project.step_folder(results.variant, "corpus.write")).parts[1])
    index = indexes.open_index(folder, files, mark)
    if new and not index:
        indexes.build_index(folder, files, mark)
        index = indexes.open_index(folder, files, mark)
    return index


def attribution_report(results: Results, text: str, least_words: int, new: bool = False) -> Row:
    """What `main` tells. new: an index is built if there is none. Raises InputError for a text of fewer words."""
    query = TextQuery(text, least_words)
    if len(query.words) < least_words:
        if not query.words:
            raise InputError("the text has no word in it")
        words = format_quantity(len(query.words), "word")
        raise InputError(f"the text has {words} and --words is {least_words}: give a longer text, or a smaller number")
    files = corpus_files(results)
    # Shorter runs may lack a fingerprint.
    index = corpus_index(results, files, new) if least_words >= SURE_WORDS else None
    if index:
        likely_numbers, sharing = likely_documents(index, text)
        runs, cover = search_documents(query, index.document_rows(likely_numbers, COLUMNS))
    else:
        likely_numbers, sharing = [], 0
        runs, cover = search_documents(query, documents_of_files(files))
    word_places = word_spans(text)
    return {
        "by": "index" if index else "scan",
        "not_read": sharing - len(likely_numbers),
        "words": len(query.words),
        "covered": int((cover > 0).sum()),
        "longest": int(cover.max()),
        "matches": [
            {
                **asdict(run),
                "text": text[int(word_places[run.first, 0]) : int(word_places[run.first + run.number - 1, 1])],
            }
            for run in runs
        ],
    }


def attribution_lines(report: dict[str, Any], least_words: int) -> Iterator[str]:
    """The answer as text."""
    where = f"the training text in runs of {format_quantity(least_words, 'word')} or more"
    if report["covered"]:
        share = report["covered"] / report["words"]
        yield f"{report['covered']:,} of {format_quantity(report['words'], 'word')} ({share:.0%}) are in {where}"
        yield f"the longest run has {format_quantity(report['longest'], 'word')}"
    else:
        yield f"none of the {format_quantity(report['words'], 'word')} is in {where}: --words with a smaller number finds shorter runs"
    if report["not_read"]:
        unread_documents = format_quantity(report["not_read"], "more document shares", "more documents share")
        yield f"{unread_documents} a passage, not read: the {indexes.MOST_DOCUMENTS:,} that share most were"
    for match in report["matches"]:
        yield f"  {match['number']:>4} words  {match['id']}  {match['url']}  characters {match['start']:,} to {match['end']:,}"
        yield f"             {document.shorten_line(match['text'], 100)}"


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm who-wrote",
        __doc__,
        '"Print objects to the text stream file, separated by sep"\n  crawl2llm who-wrote --file answer.txt --words 12',
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("text", nargs="?", help="what a model wrote")
    choice.add_argument("--file", type=Path, help="a file with it, in UTF-8")
    parser.add_argument(
        "--index",
        action="store_true",
        help=f"build an index of the corpus first, if it has none (in {INDEX_FOLDER}/, some 5 bytes a word)",
    )
    parser.add_argument("--words", type=int, default=LEAST_WORDS, help=f"the shortest run to report ({LEAST_WORDS})")
    add_options(parser)
    args = parser.parse_args(argv)
    set_up_logging("who-wrote")
    if args.words < 2:
        raise InputError(f"--words is {args.words}; it must be 2 or more")
    if args.index and args.words < SURE_WORDS:
        raise InputError(f"--words is {args.words}; an index finds runs of {SURE_WORDS} words or more")
    try:
        text = args.file.read_text(encoding="utf-8") if args.file else args.text
    except UnicodeDecodeError as error:
        raise InputError(f"--file {args.file}: not text in UTF-8: {error}") from error
    with contextlib.ExitStack() as stack:
        results = open_results(args, stack)
        report = attribution_report(results, text, args.words, args.index)
        report["stale"] = results.stale_lines(until="corpus.write")
    return command_line.print_findings(
        args, report, lambda: [*attribution_lines(report, args.words), *stale_lines(report["stale"])]
    )


if __name__ == "__main__":
    raise SystemExit(main())
