"""datatrove's side of `benchmarks.data_half`: WARC files to tokens with its own blocks. Runs in an environment of its own.

    peer/bin/python benchmarks/datatrove_chain.py --input crawl --output out --model lid.176.ftz --tokenizer tokenizer.json

The chain is that of datatrove's examples/fineweb.py without its block list of URLs: WarcReader, Trafilatura, LanguageFilter, Gopher
repetition and quality, C4, FineWeb; the four steps of MinHash deduplication; DocumentTokenizer. With `--every FOLDER` also URLFilter
(`domains` of that folder), PIIFormatter, the three steps of SentenceDedup by lines, FastTextClassifierFilter (the language model, as any
other) and NGramsDecontFilter (`items.jsonl` of that folder). With `--extract` the texts of the extractor alone are written, for F1. Prints
one JSON object: seconds by block, documents, tokens.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
from datatrove.pipeline.dedup import (
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
    SentenceDedupFilter,
    SentenceDedupSignature,
    SentenceFindDedups,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.dedup.sentence_dedup import SentDedupConfig
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FastTextClassifierFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
    URLFilter,
)
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.pipeline.readers import JsonlReader, WarcReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.text import ngrams, simplify_text

BUCKETS = 14
NGRAM = 13


def language(languages: list[str], model: Path) -> LanguageFilter:
    """The language filter with a model of this machine instead of a download."""
    block = LanguageFilter(languages, language_threshold=0.65)
    block.model.MODEL_URL = f"file://{model.resolve()}"
    return block


def executor(pipeline: list[Any], tasks: int, args: argparse.Namespace, name: str) -> LocalPipelineExecutor:
    return LocalPipelineExecutor(
        pipeline, tasks=tasks, workers=min(args.cores, tasks), logging_dir=str(args.output / "logs" / name)
    )


def reader(args: argparse.Namespace) -> WarcReader:
    return WarcReader(str(args.input), glob_pattern=args.glob, default_metadata={"dump": "benchmark"})


def chain(args: argparse.Namespace, tasks: int) -> dict[str, LocalPipelineExecutor]:
    """The executors by name, in the order in which they run."""
    out, config = args.output, MinhashConfig(num_buckets=BUCKETS, hashes_per_bucket=8, n_grams=5)
    filtered = lambda: JsonlReader(str(out / "filtered"))  # noqa: E731
    kept = JsonlWriter(str(out / "filtered"))
    steps: dict[str, tuple[list[Any], int]] = {
        "filter": (
            [
                reader(args),
                Trafilatura(favour_precision=True),
                language(args.languages, args.model),
                GopherRepetitionFilter(),
                GopherQualityFilter(),
                C4QualityFilter(filter_no_terminal_punct=False),
                FineWebQualityFilter(),
                kept,
            ],
            tasks,
        ),
        "signature": ([filtered(), MinhashDedupSignature(str(out / "signatures"), config=config)], tasks),
        "buckets": ([MinhashDedupBuckets(str(out / "signatures"), str(out / "buckets"), config=config)], BUCKETS),
        "cluster": ([MinhashDedupCluster(str(out / "buckets"), str(out / "remove"), config=config)], 1),
        "tokens": (
            [
                filtered(),
                MinhashDedupFilter(str(out / "remove")),
                DocumentTokenizer(
                    str(out / "tokens"), str(args.tokenizer), eos_token=args.eos, shuffle_documents=False
                ),
            ],
            tasks,
        ),
    }
    if args.every:
        steps = every(args, steps, filtered, tasks)
    return {name: executor(pipeline, count, args, name) for name, (pipeline, count) in steps.items()}


def every(
    args: argparse.Namespace,
    steps: dict[str, tuple[list[Any], int]],
    filtered: Callable[[], JsonlReader],
    tasks: int,
) -> dict[str, tuple[list[Any], int]]:
    """The same chain with all blocks that this workflow has filters of: addresses first, and after MinHash what reads what is left."""
    out, config = args.output, SentDedupConfig(n_sentences=1, split_sentences=False)
    signatures, repeated = str(out / "line_signatures"), str(out / "repeated_lines")
    domains = (args.every / "domains").read_text().split()
    steps["filter"][0].insert(1, URLFilter(extra_domains=domains, use_integrated_lists=False))
    tokenizer = steps.pop("tokens")[0][-1]
    left = lambda: JsonlReader(str(out / "left"))  # noqa: E731
    write = JsonlWriter(str(out / "left"))
    steps["left"] = ([filtered(), MinhashDedupFilter(str(out / "remove")), PIIFormatter(), write], tasks)
    steps["lines"] = ([left(), SentenceDedupSignature(signatures, config=config)], tasks)
    steps["repeated"] = ([SentenceFindDedups(signatures, repeated, config=config)], 1)
    index(args.every / "items.jsonl", out / "index")
    last = [
        SentenceDedupFilter(repeated, config=config),
        FastTextClassifierFilter(str(args.model), keep_labels=("en", 0.1)),
        NGramsDecontFilter(str(out / "index"), NGramsDecontConfig(n_grams=NGRAM)),
        tokenizer,
    ]
    steps["tokens"] = ([left(), *last], tasks)
    return steps


def index(items: Path, folder: Path) -> None:
    """What NGramsDecontFilter reads, by its own functions: its indexer takes lighteval's tasks alone."""
    folder.mkdir()
    peer = NGramsDecontFilter(str(folder), NGramsDecontConfig(n_grams=NGRAM))
    found = set()
    for line in items.read_text().splitlines():
        row = json.loads(line)
        words = peer.tokenizer.word_tokenize(
            simplify_text(f"{row['question']} {row['answer']}", peer.config.norm_config)
        )
        found |= {peer.hash_func(" ".join(one)) for one in ngrams(words, NGRAM)}
    np.array(sorted(found), dtype=peer.config.hash_config.np_descr).tofile(folder / "items.index.hashes")


def blocks(folder: Path) -> dict[str, float]:
    """Seconds by block of one executor, over all its tasks."""
    found: Counter[str] = Counter()
    for row in json.loads((folder / "stats.json").read_text()):
        found[row["name"].strip()] += row["time_stats"]["total"]
    return {name: round(seconds, 2) for name, seconds in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="a folder of WARC files")
    parser.add_argument("--glob", default="*.warc.gz")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="fastText's lid.176.ftz or .bin")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument("--eos", default="<|endoftext|>")
    parser.add_argument("--languages", nargs="+", default=["en"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--every", type=Path, help="a folder with the files domains and items.jsonl: all blocks")
    parser.add_argument("--extract", action="store_true", help="only extract, and write the texts")
    args = parser.parse_args()
    tasks = len(list(args.input.glob(args.glob)))
    if args.extract:
        only = [reader(args), Trafilatura(favour_precision=True), JsonlWriter(str(args.output / "texts"))]
        executors = {"extract": executor(only, tasks, args, "extract")}
    else:
        executors = chain(args, tasks)
    for one in executors.values():
        one.run()
    said = {
        "version": version("datatrove"),
        "trafilatura": version("trafilatura"),
        "blocks": {name: blocks(args.output / "logs" / name) for name in executors},
        "tokens": sum(
            int(path.read_text().splitlines()[1])
            for path in (args.output / "tokens").glob("*.metadata")
            if path.exists()
        ),
    }
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
