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
from crawl2llm.core.console import Progress, log, put, setup
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import pretty, write_atomically
from crawl2llm.filters.decontaminate import corpora, cuts, items
from crawl2llm.filters.decontaminate import index as indexing
from crawl2llm.filters.decontaminate.search import Index, Match, index
from crawl2llm.formats.public_tasks.presets import PRESETS
from crawl2llm.formats.public_tasks.rows import CORE
from crawl2llm.formats.spans import Edited, Span

EXAMPLE = (
    "corpus/*.jsonl.zst --tasks hellaswag mmlu --data olmo_tasks.tar.zst --out clean\n"
    "  crawl2llm decontaminate corpus --items own.jsonl --question prompt --answer reply"
)
MATCHES = "matches.jsonl"


class Cleaner:
    """Searches each document, counts what is found, and says what is left of it."""

    def __init__(self, found: Index, most: float, action: str, cut_max: float, matches: Any) -> None:
        self.index, self.most, self.action, self.cut_max, self.matches = found, most, action, cut_max, matches
        self.fates = Counter[str]()
        self.sets: dict[str, dict[str, set[str]]] = {}

    def __call__(self, name: str, text: str) -> str | None:
        """The text of a document, as it is or cut; None for one that is dropped."""
        found = [match for match in self.index.find([text])[0] if match.overlap > self.most]
        if not found:
            self.fates["clean"] += 1
            return text
        places = cuts.joined((match.start, match.end) for match in found)
        drop = self.action == cuts.DROP or cuts.share(places, len(text)) > self.cut_max
        self._tell(name, found, "dropped" if drop else "cut")
        return None if drop else Edited(text, [Span(start, end) for start, end in places]).text

    def _tell(self, name: str, found: list[Match], fate: str) -> None:
        self.fates[fate] += 1
        for match in found:
            of = self.sets.setdefault(match.set, {"items": set(), "documents": set()})
            of["items"].add(match.item)
            of["documents"].add(name)
            if self.matches:
                line = {"document": name, "fate": fate, **asdict(match)}
                self.matches.write(json.dumps(line, ensure_ascii=False) + "\n")

    def report(self, of: list[items.Item]) -> dict[str, Any]:
        """The numbers: documents by what became of them, and of each set its items, those too short, and those found."""
        sizes = Counter(item.set for item in of)
        short = Counter(item.set for item in of if item.short)
        return {
            "documents": {name: self.fates[name] for name in ("clean", "dropped", "cut")},
            "sets": {
                name: {
                    "items": size,
                    "short": short[name],
                    **{key: len(self.sets.get(name, {}).get(key, ())) for key in ("documents",)},
                    "found": len(self.sets.get(name, {}).get("items", ())),
                }
                for name, size in sizes.items()
            },
            "method": self.index.method,
            "overlap_max": self.most,
            "action": self.action,
        }


def given(args: argparse.Namespace) -> tuple[list[items.Item], dict[str, Any]]:
    """The items to search for, and the settings of the search. Raises InputError where there are none."""
    if args.index:
        return items.read(args.index)
    if not (args.tasks or args.items):
        raise InputError("nothing to search for: give --tasks with --data, --items, or --index")
    columns = {"question": args.question, **({"answer": args.answer} if args.answer else {})}
    settings = {
        "tasks": args.tasks,
        "data": [str(path) for path in args.data],
        "hub": False,
        "files": [{"path": str(path), **columns} for path in args.items],
        "method": args.method,
        "words": args.words,
        "short_words": args.short_words,
    }
    how = indexing.search(settings)
    return items.items(indexing.collected(settings), how["words"], how["short_words"]), how


def run(args: argparse.Namespace) -> int:
    files = corpora.files(args.corpus)
    if args.out and any((args.out / place).resolve() == file.resolve() for file, place in files):
        raise InputError(f"--out {args.out} is where the corpus lies: name another folder")
    found, how = given(args)
    log.info("%s items of %d sets", f"{len(found):,}", len({item.set for item in found}))
    most = cuts.limit({"overlap_max": args.overlap_max}, how["method"])
    progress = Progress(max(1, sum(file.stat().st_size for file, _ in files)) >> 10, "kB of files")
    read = 0
    matches = None
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        matches = (args.out / MATCHES).open("w", encoding="utf-8")
    cleaner = Cleaner(index(found, how), most, args.action, args.cut_max, matches)

    def told(count: int) -> None:
        nonlocal read
        before, read = read >> 10, read + count
        progress.add((read >> 10) - before, f"{cleaner.fates.total():,} documents")

    try:
        for file, place in files:
            corpora.edited(file, args.out / place if args.out else None, args.text_key, cleaner, told)
    finally:
        if matches:
            matches.close()
    report = cleaner.report(found)
    if args.out:
        write_atomically(args.out / "report.json", pretty(report))
    show(report, args.out)
    return 0


def show(report: dict[str, Any], out: Path | None) -> None:
    """Print the numbers."""
    done = report["documents"]
    put(f"{'set':32} {'items':>8} {'short':>8} {'found':>8} {'documents':>10}")
    for name, of in report["sets"].items():
        put(f"{name:32} {of['items']:8,} {of['short']:8,} {of['found']:8,} {of['documents']:10,}")
    dirty = done["dropped"] + done["cut"]
    put(
        f"{dirty:,} of {sum(done.values()):,} documents hold items: {done['dropped']:,} to drop, {done['cut']:,} to cut"
    )
    if out:
        put(f"what is left is in {out}, with report.json and {MATCHES}")


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described("crawl2llm decontaminate", __doc__, EXAMPLE)
    parser.add_argument("corpus", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument("--text-key", default="text", help="column of the text (default: %(default)s)")
    parser.add_argument("--tasks", nargs="+", default=[], choices=[*PRESETS, CORE], metavar="TASK", help="public tasks")
    parser.add_argument(
        "--data", nargs="+", default=[], type=Path, help="where the tasks' data are: folders, archives, files"
    )
    parser.add_argument(
        "--items", nargs="+", default=[], type=Path, help="local sets: JSON Lines, or .txt with an item a line"
    )
    parser.add_argument(
        "--question", nargs="+", default=["text"], help="columns of a question of --items (default: text)"
    )
    parser.add_argument("--answer", help="column of the answer of --items")
    parser.add_argument("--index", type=Path, help="manifest of a run's decontaminate.index, in place of these")
    parser.add_argument("--method", choices=["ngram", "idf"], default="ngram", help="as decontaminate.index.method")
    parser.add_argument(
        "--words", type=int, choices=range(3, 51), metavar="3..50", help="words of a stretch (default: 13, idf 5)"
    )
    parser.add_argument("--short-words", type=int, default=8, help="as decontaminate.index.short_words (default: 8)")
    parser.add_argument("--overlap-max", type=float, help="as decontaminate.select.overlap_max (default: 0.5, idf 0.8)")
    parser.add_argument("--cut-max", type=float, default=0.5, help="as decontaminate.select.cut_max (default: 0.5)")
    parser.add_argument(
        "--action", choices=[cuts.DROP, cuts.CUT], default=cuts.DROP, help="what --out does (default: drop)"
    )
    parser.add_argument("--out", type=Path, help="a folder for the cleaned corpus, report.json and matches.jsonl")
    args = parser.parse_args(argv)
    setup("decontaminate")
    return run(args)


if __name__ == "__main__":
    raise SystemExit(main())
