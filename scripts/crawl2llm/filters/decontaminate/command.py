"""Search a corpus that is there already for the items of evaluation sets: a report, and with --out the corpus without them.

Corpus: files, or folders of files, of JSON Lines, Parquet, and text (a file is a document), bare or as .gz or .zst. Evaluation sets: public
tasks (--tasks, with their data as evaluate.public.data takes them), local files (--items), or those of a run (--index).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.filters.decontaminate import corpora, cuts, items
from crawl2llm.filters.decontaminate import index as indexing
from crawl2llm.filters.decontaminate.search import Index, Match, build_index
from crawl2llm.filters.decontaminate.settings import IndexFile, IndexSettings, SelectSettings
from crawl2llm.formats.public_tasks.presets import PRESETS
from crawl2llm.formats.public_tasks.rows import CORE
from crawl2llm.formats.spans import EditedText, Span

EXAMPLE = (
    "corpus/*.jsonl.zst --tasks hellaswag mmlu --data olmo_tasks.tar.zst --out clean\n"
    "  crawl2llm decontaminate corpus --items own.jsonl --question prompt --answer reply"
)
MATCHES_FILE = "matches.jsonl"


class Cleaner:
    """Searches each document, counts what is found, and says what is left of it."""

    def __init__(self, index: Index, overlap_max: float, action: str, cut_max: float, matches: Any) -> None:
        self.index, self.most, self.action, self.cut_max, self.matches = index, overlap_max, action, cut_max, matches
        self.fates = Counter[str]()
        self.found_by_set: dict[str, dict[str, set[str]]] = {}

    def __call__(self, name: str, text: str) -> str | None:
        """The text of a document, as it is or cut; None for one that is dropped."""
        matches = [match for match in self.index.find_matches([text])[0] if match.overlap > self.most]
        if not matches:
            self.fates["clean"] += 1
            return text
        places = cuts.merge_spans((match.start, match.end) for match in matches)
        drop = self.action == cuts.DROP or cuts.covered_share(places, len(text)) > self.cut_max
        self._record_matches(name, matches, "dropped" if drop else "cut")
        return None if drop else EditedText(text, [Span(start, end) for start, end in places]).text

    def _record_matches(self, name: str, matches: list[Match], fate: str) -> None:
        self.fates[fate] += 1
        for match in matches:
            set_counts = self.found_by_set.setdefault(match.set, {"items": set(), "documents": set()})
            set_counts["items"].add(match.item)
            set_counts["documents"].add(name)
            if self.matches:
                line = {"document": name, "fate": fate, **asdict(match)}
                self.matches.write(json.dumps(line, ensure_ascii=False) + "\n")

    def make_report(self, searched_items: list[items.Item]) -> dict[str, Any]:
        """The numbers: documents by what became of them, and of each set its items, those too short, and those found."""
        sizes = Counter(item.set for item in searched_items)
        short = Counter(item.set for item in searched_items if item.short)
        return {
            "documents": {name: self.fates[name] for name in ("clean", "dropped", "cut")},
            "sets": {
                name: {
                    "items": size,
                    "short": short[name],
                    "documents": len(self.found_by_set.get(name, {}).get("documents", ())),
                    "found": len(self.found_by_set.get(name, {}).get("items", ())),
                }
                for name, size in sizes.items()
            },
            "method": self.index.method,
            "overlap_max": self.most,
            "action": self.action,
        }


def items_and_settings(args: argparse.Namespace) -> tuple[list[items.Item], dict[str, Any]]:
    """The items to search for, and the settings of the search. Raises InputError if there are none."""
    if args.index:
        return items.read_items(args.index)
    if not (args.tasks or args.items):
        raise InputError("nothing to search for: give --tasks with --data, --items, or --index")
    files = [
        IndexFile.model_construct(path=str(path), question=args.question, answer=args.answer or None)
        for path in args.items
    ]
    collected_items = indexing.collect_items(args.tasks, [str(path) for path in args.data], False, files)
    search_settings = indexing.search_settings(args.method, args.words, args.short_words)
    return items.build_items(collected_items, search_settings["words"], search_settings["short_words"]), search_settings


def search_corpus(args: argparse.Namespace) -> int:
    files = corpora.corpus_files(args.corpus)
    if args.out and any((args.out / place).resolve() == file.resolve() for file, place in files):
        raise InputError(f"--out {args.out} is the corpus folder: name another folder")
    searched_items, search_settings = items_and_settings(args)
    log.info("%s items of %d sets", f"{len(searched_items):,}", len({item.set for item in searched_items}))
    overlap_max = cuts.overlap_limit(args.overlap_max, search_settings["method"])
    progress = Progress(max(1, sum(file.stat().st_size for file, _ in files)) >> 10, "kB of files")
    read = 0
    matches = None
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        matches = (args.out / MATCHES_FILE).open("w", encoding="utf-8")
    cleaner = Cleaner(build_index(searched_items, search_settings), overlap_max, args.action, args.cut_max, matches)

    def report_progress(count: int) -> None:
        nonlocal read
        before, read = read >> 10, read + count
        progress.add((read >> 10) - before, f"{cleaner.fates.total():,} documents")

    try:
        for file, place in files:
            corpora.edit_file(file, args.out / place if args.out else None, args.text_key, cleaner, report_progress)
    finally:
        if matches:
            matches.close()
    report = cleaner.make_report(searched_items)
    if args.out:
        write_atomically(args.out / "report.json", pretty_json(report))
    print_report(report, args.out)
    return 0


def print_report(report: dict[str, Any], out: Path | None) -> None:
    """Print the numbers."""
    documents = report["documents"]
    print_line(f"{'set':32} {'items':>8} {'short':>8} {'found':>8} {'documents':>10}")
    for name, set_counts in report["sets"].items():
        print_line(
            f"{name:32} {set_counts['items']:8,} {set_counts['short']:8,} {set_counts['found']:8,} {set_counts['documents']:10,}"
        )
    dirty = documents["dropped"] + documents["cut"]
    print_line(
        f"{dirty:,} of {sum(documents.values()):,} documents hold items: {documents['dropped']:,} to drop, {documents['cut']:,} to cut"
    )
    if out:
        print_line(f"the cleaned corpus is in {out}, with report.json and {MATCHES_FILE}")


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    search, removal = IndexSettings(), SelectSettings()
    parser = command_line.command_parser("crawl2llm decontaminate", __doc__, EXAMPLE)
    parser.add_argument("corpus", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument("--text-key", default="text", help="column of the text (default: %(default)s)")
    parser.add_argument("--tasks", nargs="+", default=[], choices=[*PRESETS, CORE], metavar="TASK", help="public tasks")
    parser.add_argument("--data", nargs="+", default=[], type=Path, help="the tasks' data: folders, archives or files")
    parser.add_argument(
        "--items", nargs="+", default=[], type=Path, help="local sets: JSON Lines, or .txt with an item a line"
    )
    parser.add_argument(
        "--question", nargs="+", default=["text"], help="columns of a question of --items (default: text)"
    )
    parser.add_argument("--answer", help="column of the answer of --items")
    parser.add_argument("--index", type=Path, help="manifest of a run's decontaminate.index, in place of these")
    parser.add_argument(
        "--method", choices=["ngram", "idf"], default=search.method, help="as decontaminate.index.method"
    )
    parser.add_argument(
        "--words", type=int, choices=range(3, 51), metavar="3..50", help="words of a stretch (default: 13, idf 5)"
    )
    parser.add_argument(
        "--short-words",
        type=int,
        default=search.short_words,
        help="as decontaminate.index.short_words (default: %(default)s)",
    )
    parser.add_argument("--overlap-max", type=float, help="as decontaminate.select.overlap_max (default: 0.5, idf 0.8)")
    parser.add_argument(
        "--cut-max", type=float, default=removal.cut_max, help="as decontaminate.select.cut_max (default: %(default)s)"
    )
    parser.add_argument(
        "--action", choices=[cuts.DROP, cuts.CUT], default=removal.action, help="action of --out (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, help="a folder for the cleaned corpus, report.json and matches.jsonl")
    args = parser.parse_args(argv)
    set_up_logging("decontaminate")
    return search_corpus(args)


if __name__ == "__main__":
    raise SystemExit(main())
