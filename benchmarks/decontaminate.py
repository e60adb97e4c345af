"""Decontamination: items of public tasks planted into real pages, what of them is found, what is found that was not planted, and the cost.

    python -m benchmarks.decontaminate                 # writes benchmarks/results/decontaminate.json

Data: $CRAWL2LLM_DATA (else ../shared/data): the public tasks of eval/, pages of corpora/ (C4 and HPLT samples, Wikipedia) and the gold text
of crawl/. With datatrove 0.10 (see benchmarks/heuristics.py for its environment) also its NGramsDecontFilter, with the same items, n-grams
of 13 words of question and answer, over the same pages in the same run. Seconds are CPU seconds of the process; the floor is the splitting
of each text into words. datatrove drops a document for one n-gram that it shares with an item, which is `documents_with_any` here.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xxhash

from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.filters.decontaminate import cuts, items, sets
from crawl2llm.filters.decontaminate.search import Index
from crawl2llm.filters.decontaminate.words import split_words

TASKS = ["hellaswag", "arc_easy", "arc_challenge", "piqa", "winogrande", "lambada", "boolq", "openbookqa", "copa", "commonsense_qa", "sciq",
         "siqa", "mmlu", "gsm8k"]  # fmt: skip
PAGES = ("corpora/c4_demo.jsonl.zst", "corpora/hplt-en_100.jsonl.zst", "corpora/hplt-en_101.jsonl.zst", "corpora/wiki_demo.txt.zst",
         "crawl/mlcrawl-dev.gold_text.jsonl.zst")  # fmt: skip
WORDS = {"ngram": 13, "idf": 5}
BATCH = 64
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def replaced(step: int) -> Callable[[str, str], str]:
    """Every `step`-th word of the question is another."""

    def change(question: str, answer: str) -> str:
        found = [word if at % step != step - 1 else "instead" for at, word in enumerate(question.split())]
        return f"{' '.join(found)} {answer}"

    return change


PLANTS: dict[str, Callable[[str, str], str]] = {
    "verbatim": lambda question, answer: f"{question} {answer}",
    "question alone": lambda question, answer: question,
    "with labels": lambda question, answer: f"Question: {question}\nAnswer: {answer}",
    "wrapped": lambda question, answer: re.sub(r"((?:\S+\s+){7})", r"\1\n  ", f"{question} {answer}"),
    "upper case": lambda question, answer: f"{question} {answer}".upper(),
    "other punctuation": lambda question, answer: re.sub(r"[.,;:?!]", " —", f"{question} {answer}").replace("'", "’"),
    "Markdown": lambda question, answer: re.sub(r"(\w+)$", r"**\1**", f"> *{question}* {answer}"),
    "other digits": lambda question, answer: f"{question} {answer}".translate(ARABIC),
    "first three quarters": lambda question, answer: " ".join(question.split()[: -(-len(question.split()) * 3 // 4)]),
    "first half": lambda question, answer: " ".join(question.split()[: -(-len(question.split()) // 2)]),
    "every 20th word another": replaced(20),
    "every 10th word another": replaced(10),
}


def texts(path: Path) -> list[str]:
    """The documents of a file: rows of JSON Lines, or paragraphs of 200 characters or more of a text."""
    import pyarrow as pa

    with pa.input_stream(path, compression="detect") as stream:
        raw = io.TextIOWrapper(stream, encoding="utf-8").read()
    if ".jsonl" in path.name:
        rows = [json.loads(line) for line in raw.split("\n") if line]
        return [row.get("text") or re.sub("<[^>]+>", " ", row.get("gold_text") or "") for row in rows]
    return [part for part in re.split(r"\n\s*\n", raw) if len(part) >= 200]


def planted(pages: list[str], rows: list[Any], kind: str) -> list[str]:
    """Pages with an item each, between the words in their middle."""
    out = []
    for _, name, (questions, answer) in rows:
        page = pages[xxhash.xxh3_64_intdigest(name.encode()) % len(pages)]
        middle = page.find(" ", len(page) // 2)
        middle = len(page) if middle < 0 else middle
        out.append(f"{page[:middle]}\n{PLANTS[kind](questions[0], answer)}\n{page[middle:]}")
    return out


def found(index: Index, pages: list[str], most: float) -> list[list[Any]]:
    """The matches of each page with an overlap above `most`."""
    out: list[list[Any]] = []
    for at in range(0, len(pages), BATCH):
        out += [[one for one in of if one.overlap > most] for of in index.find_matches(pages[at : at + BATCH])]
    return out


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds, result)."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def datatrove(rows: list[Any], pages: list[str]) -> dict[str, Any]:
    """The seconds and drops of datatrove's filter; its index is made in memory by its own functions."""
    from datatrove.data import Document
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.text import ngrams, simplify_text

    peer = NGramsDecontFilter("/nowhere", NGramsDecontConfig(n_grams=13))
    hashes: dict[int, str] = {}

    def build() -> None:
        for of, _, (questions, answer) in rows:
            simple = simplify_text(f"{questions[0]} {answer}", peer.config.norm_config)
            for one in ngrams(peer.tokenizer.word_tokenize(simple), 13):
                hashes[peer.hash_func(" ".join(one))] = of

    built, _ = timed(build)
    peer._index_hashes = hashes
    seconds, verdicts = timed(lambda: [peer.filter(Document(text=text, id="")) is True for text in pages])
    return {"index_seconds": round(built, 2), "seconds": round(seconds, 3), "dropped": verdicts.count(False)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared/data"))
    )
    parser.add_argument("--per-task", type=int, default=40, help="items of a task that are planted (default: 40)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/decontaminate.json")
    parser.add_argument(
        "--show", type=int, default=0, help="print so many pages without a plant that share anything with an item"
    )
    args = parser.parse_args(argv)
    archives = [str(args.data / "eval" / name) for name in sorted(path.name for path in (args.data / "eval").iterdir())]
    rows = list(sets.task_items(TASKS, archives, False))
    pages = {name: texts(args.data / name) for name in PAGES}
    clean = [text for of in pages.values() for text in of]
    result: dict[str, Any] = {
        "items": len(rows),
        "pages": {name: len(of) for name, of in pages.items()},
        "bytes": sum(len(text.encode()) for text in clean),
        "floor_seconds": round(timed(lambda: [split_words(text) for text in clean])[0], 3),
        "methods": {},
    }
    for method, n in WORDS.items():
        made = items.build_items(rows, n, 8)
        seconds, index = timed(lambda made=made, method=method, n=n: Index(made, method, n, 8))
        searched = {(item.set, item.id) for item in made if not item.short}
        some: list[Any] = []
        for task in TASKS:
            of = [row for row in rows if row[0] == task and (row[0], row[1]) in searched]
            some += sorted(of, key=lambda row: xxhash.xxh3_64_intdigest(row[1].encode()))[: args.per_task]
        scan, matches = timed(lambda index=index: found(index, clean, 0))
        limit = cuts.DEFAULT_LIMITS[method]
        own = [[one for one in of if one.overlap > limit] for of in matches]
        alarms = [(text, of) for text, of in zip(clean, own, strict=True) if of]
        shown = [(text, of) for text, of in zip(clean, matches, strict=True) if of]
        recall = {}
        for kind in PLANTS:
            hits = found(index, planted(clean, some, kind), limit)
            recall[kind] = sum(
                any(one.item == row[1] and one.set == row[0] for one in of) for row, of in zip(some, hits, strict=True)
            )
        told = result["methods"][method] = {
            "words": n,
            "overlap_max": limit,
            "too_short": len(made) - len(searched),
            "index_seconds": round(seconds, 2),
            "seconds": round(scan, 3),
            "milliseconds_per_document": round(scan * 1000 / len(clean), 4),
            "planted": len(some),
            "recall": {kind: round(hits / len(some), 4) for kind, hits in recall.items()},
            "documents_found": len(alarms),
            "documents_with_any": sum(map(bool, matches)),
            "found_by_set": dict(Counter(of[0].set for _, of in alarms)),
        }
        print(json.dumps(told, indent=1))
        for text, of in shown[: args.show]:
            print(f"--- {of[0].set} {of[0].item} {of[0].overlap}: {text[of[0].start : of[0].end]!r}")
    if find_spec("datatrove"):
        result["datatrove"] = datatrove(rows, clean)
        print(json.dumps(result["datatrove"]))
    result["machine"] = {
        "processor": processor(),
        **versions("numpy", "datatrove" if find_spec("datatrove") else "numpy"),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
