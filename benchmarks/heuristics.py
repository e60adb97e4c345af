"""Ours against datatrove's four filters, on the same English documents, in the same run, on one core.

    python -m benchmarks.heuristics                    # writes benchmarks/results/heuristics.json

Input: JSON Lines with `text`, also zstd-compressed; C4 and HPLT samples of $CRAWL2LLM_DATA (else ../shared/data) unless
--input names others. datatrove is not one of the project's packages. Into an environment of its own, and run with that:

    python -m venv peer
    peer/bin/pip install "datatrove[processing]==0.10.1" spacy numpy pyyaml jsonschema xxhash zstandard
    peer/bin/python -m benchmarks.heuristics

What is timed: all measures and verdicts of all four families on every document, against the four filters one after the
other on every document (they stop at their first failing rule; words that one of them split are cached for the next).
Seconds are CPU seconds of the process, so that other work on the machine disturbs them less. The floor is the regular
expression that splits a text into tokens, by itself.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.filters.framework.columns import one_document
from crawl2llm.filters.framework.rules import failed_rules
from crawl2llm.filters.heuristics.measures import Limits, measure_document
from crawl2llm.filters.heuristics.rules import FAMILIES
from crawl2llm.filters.heuristics.select import rules
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.text.characters import tokenize
from crawl2llm.text.stop_words import stop_words_by_language

SAMPLES = ("c4_demo", "hplt-en_100", "hplt-en_101")
Verdicts = list[dict[str, bool]]


def texts(path: Path) -> list[str]:
    """The texts of a JSON Lines file, plain or zstd."""
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".zst":
            import zstandard

            stream = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(raw)
        return [json.loads(line)["text"] for line in io.TextIOWrapper(stream, encoding="utf-8")]


def ours(limits: Limits) -> Callable[[list[str]], Verdicts]:
    """Documents → for each family, whether a document fails one of its rules, at the default thresholds."""
    settings = SelectSettings()
    active = rules(settings)
    stop_words = stop_words_by_language({})["en"]

    def run(documents: list[str]) -> Verdicts:
        found = []
        for text in documents:
            measures = measure_document(text, stop_words, limits)
            verdict = dict.fromkeys(FAMILIES, False)
            (failed,) = failed_rules(active, one_document(measures), settings)
            for failure in failed:
                verdict[failure.rule.split(".")[0]] = True
            found.append(verdict)
        return found

    return run


def datatrove() -> Callable[[list[str]], Verdicts]:
    """The same of datatrove's filters, as its examples/fineweb.py sets them up."""
    from datatrove.data import Document
    from datatrove.pipeline import filters

    peers = {
        "gopher_quality": filters.GopherQualityFilter(),
        "gopher_repetition": filters.GopherRepetitionFilter(),
        "c4": filters.C4QualityFilter(filter_no_terminal_punct=False),
        "fineweb": filters.FineWebQualityFilter(),
    }

    def run(documents: list[str]) -> Verdicts:
        found = []
        for text in documents:
            # A document of its own for each filter: C4's edits the text.
            verdict = {name: peer.filter(Document(text=text, id="")) is not True for name, peer in peers.items()}
            found.append(verdict)
        return found

    return run


def timed(run: Callable[[list[str]], Any], documents: list[str]) -> tuple[float, Any]:
    """(CPU seconds, result)."""
    start = time.process_time()
    result = run(documents)
    return time.process_time() - start, result


def rates(seconds: list[float], documents: list[str]) -> dict[str, Any]:
    """Documents and UTF-8 megabytes a second at the median."""
    median = statistics.median(seconds)
    return {
        "seconds": {"median": round(median, 4), "all": [round(s, 4) for s in seconds]},
        "documents_per_second": round(len(documents) / median, 1),
        "megabytes_per_second": round(sum(len(text.encode()) for text in documents) / 1e6 / median, 2),
    }


def agreement(mine: Verdicts, peers: Verdicts) -> dict[str, Any]:
    """By family: the share of documents with the same verdict, and how many each side alone drops."""
    return {
        name: {
            "same": round(sum(a[name] == b[name] for a, b in zip(mine, peers, strict=True)) / len(mine), 4),
            "dropped_by_both": sum(a[name] and b[name] for a, b in zip(mine, peers, strict=True)),
            "only_ours": sum(a[name] and not b[name] for a, b in zip(mine, peers, strict=True)),
            "only_datatrove": sum(b[name] and not a[name] for a, b in zip(mine, peers, strict=True)),
        }
        for name in FAMILIES
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    samples = [data / "corpora" / f"{name}.jsonl.zst" for name in SAMPLES]
    parser.add_argument("--input", type=Path, nargs="+", default=samples, help="JSON Lines files of English documents")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=30_000, help="leave out documents with more characters")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "heuristics.json")
    args = parser.parse_args(argv)
    missing = [str(path) for path in args.input if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}; give --input, or the data's folder in CRAWL2LLM_DATA")
    documents = [text for path in args.input for text in texts(path) if 0 < len(text) <= args.longest]

    sides: dict[str, Callable[[list[str]], Any]] = {
        "ours": ours(Limits()),
        "floor": lambda documents: [tokenize(text) for text in documents],
    }
    if find_spec("datatrove"):
        sides["datatrove"] = datatrove()
    else:
        print("datatrove is not installed here: ours alone is measured. How to install it: --help")
    for run in sides.values():  # warm up: models and caches
        run(documents[:5])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    verdicts: dict[str, Any] = {}
    for number in range(args.rounds):
        for name, run in sides.items():
            took, verdicts[name] = timed(run, documents)
            seconds[name].append(took)
            print(f"round {number + 1}/{args.rounds} {name}: {took:.2f} s")
    result: dict[str, Any] = {
        "what": "heuristics.score and its verdicts on English documents, one core, against datatrove's four filters",
        "input": {
            "files": [path.name for path in args.input],
            "documents": len(documents),
            "characters": sum(map(len, documents)),
            "bytes": sum(len(text.encode()) for text in documents),
        },
        **{name: rates(took, documents) for name, took in seconds.items()},
        "versions": versions("numpy", "datatrove", "spacy"),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
    }
    if "datatrove" in sides:
        ratio = statistics.median(seconds["datatrove"]) / statistics.median(seconds["ours"])
        result["times_as_fast_as_datatrove"] = round(ratio, 1)
        result["agreement"] = agreement(verdicts["ours"], verdicts["datatrove"])
        result["agreement_punctuation_as_words"] = agreement(
            ours(Limits(punctuation_as_words=True))(documents), verdicts["datatrove"]
        )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
