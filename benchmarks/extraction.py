"""Our extractor, Resiliparse and trafilatura on the same pages with gold text, in the same run, on one core.

    git clone https://github.com/scrapinghub/article-extraction-benchmark
    git clone https://github.com/Murrough-Foley/web-content-extraction-benchmark
    python -m benchmarks.extraction --articles article-extraction-benchmark --types web-content-extraction-benchmark \\
        --crawl ../shared/data/crawl

Writes benchmarks/results/extraction.json. A set that is not there is left out, and said to be; so is trafilatura where it
is not installed (`pip install trafilatura==2.3.1 lxml_html_clean==0.4.6`). With `--bad-byte` the pages of the crawl alone are read, each
with one byte that its charset does not have, and nothing is timed: benchmarks/results/extraction_bad_byte.json.

Speed: CPU seconds of the process for all that an extractor does with a page (bounds and parsing included), over `--speed` pages
of each set, extractors in turn, the median of the rounds. The floor: lexbor's parser,
alone and with our blocks; Resiliparse's, alone and with a walk.
Quality is that of every page; `held` is the half of the hosts (WCXB: its test split) that benchmarks/fit_blocks.py does not fit on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

from resiliparse.parse.html import HTMLTree

from benchmarks.gold_pages import GoldPage, crawl, gram_f1, options, pages, word_f1
from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.bounds import scan_page, too_hard
from crawl2llm.stages.ingest.extractors import EXTRACTORS, PageTooComplexError, missing_extractor
from crawl2llm.stages.ingest.markup import encode_page, parse_page, read_markup
from crawl2llm.stages.ingest.warc import tidy


def extractor(name: str) -> Callable[[str], str]:
    """From a page to its main text; "" for a page over the bounds."""

    def run(page: str) -> str:
        encoded = encode_page(page)
        if too_hard(scan_page(encoded), name)[0]:
            return ""
        try:
            return EXTRACTORS[name](page, parse_page(encoded), True)
        except PageTooComplexError:
            return ""

    return run


def walk(page: str) -> int:
    """The number of nodes of a page, each looked at once."""
    return sum(len(node.tag) for node in HTMLTree.parse(page).document or ())


FLOOR: dict[str, Callable[[str], Any]] = {
    "bounds counted": scan_page,
    "parsed by lexbor": parse_page,
    "parsed by lexbor and read": lambda page: read_markup(parse_page(page)),
    "parsed by Resiliparse": HTMLTree.parse,
    "parsed and walked": walk,
}


def quality(found: list[tuple[GoldPage, str]]) -> dict[str, Any]:
    """F1 of 4-grams and of words over the pages, and of words by kind."""
    four = gram_f1([(text, page.gold) for page, text in found])
    kinds: dict[str, list[float]] = {}
    for page, text in found:
        kinds.setdefault(page.kind, []).append(word_f1(text, page.gold))
    return {
        "pages": len(found),
        "4-gram": {name: round(value, 4) for name, value in four.items()},
        "word f1": round(mean(value for values in kinds.values() for value in values), 4),
        "word f1 by kind": {kind: round(mean(values), 4) for kind, values in sorted(kinds.items())},
    }


def timed(sides: dict[str, Callable[[str], Any]], some: list[GoldPage], rounds: int) -> dict[str, float]:
    """Pages a CPU second, the median of the rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run(some[0].page)  # what is loaded at the first page
    for _ in range(rounds):
        for name, run in sides.items():
            begin = time.process_time()
            for page in some:
                run(page.page)
            seconds[name].append(time.process_time() - begin)
    return {name: round(len(some) / median(took), 1) for name, took in seconds.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--speed", type=int, default=120, help="pages of each set that are timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bad-byte", action="store_true", help="spoil the pages of the crawl, and read these alone")
    parser.add_argument(
        "--output", type=Path, help="default: benchmarks/results/extraction.json (or extraction_bad_byte.json)"
    )
    args = parser.parse_args(argv)
    if args.bad_byte:
        args.articles = args.types = None
    every = pages(args, args.bad_byte)
    if args.crawl:
        every += crawl(args.crawl, "re-encoded", args.bad_byte)
    names = [name for name in EXTRACTORS if not missing_extractor(name)]
    for name in sorted(set(EXTRACTORS) - set(names)):
        print(f"{name}: skipped, {missing_extractor(name)}")
    sides: dict[str, Callable[[str], Any]] = {name: extractor(name) for name in names}
    result: dict[str, Any] = {"what": "main text of HTML pages with gold text, one core", "sets": {}}
    for source in dict.fromkeys(page.source for page in every):
        mine = [page for page in every if page.source == source]
        out: dict[str, Any] = {}
        speed: dict[str, float] = {}
        if not args.bad_byte:
            step = max(1, len(mine) // args.speed)
            out["pages a second"] = speed = timed(sides | FLOOR, mine[::step][: args.speed], args.rounds)
        if "trafilatura" in speed:
            out["times as fast as trafilatura"] = {name: round(speed[name] / speed["trafilatura"], 2) for name in names}
        for name in names:
            found = [(page, tidy(sides[name](page.page))) for page in mine]
            out[name] = {"all": quality(found), "held": quality([each for each in found if each[0].held])}
            print(
                source,
                name,
                *(f"{value} pages/s" for value in (speed.get(name),) if value),
                json.dumps(out[name]["held"]),
                flush=True,
            )
        result["sets"][source] = out
    result["versions"] = versions("Resiliparse", "trafilatura", "lxml", "numpy")
    result["hardware"] = {"processor": processor(), "cores": os.cpu_count()}
    output = args.output or ROOT / f"benchmarks/results/extraction{'_bad_byte' if args.bad_byte else ''}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
