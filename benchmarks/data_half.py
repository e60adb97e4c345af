"""WARC files to tokens: this workflow against datatrove, on the same files and cores, in the same run, whole and by step.

    python -m benchmarks.data_half --input crawl --peer peer/bin/python       # writes benchmarks/results/data_half.json
    python -m benchmarks.data_half --copies 16 --output large.json …          # the same on 16 times as many pages
    python -m benchmarks.data_half --every --copies 6 --output benchmarks/results/data_half_every.json …    # every filter

`--input` is a folder of `.warc.gz` files (else the crawl of $CRAWL2LLM_DATA). datatrove is not one of the project's packages; into an
environment of its own:

    python -m venv peer
    peer/bin/pip install "datatrove[io,processing]==0.10.0" spacy lxml_html_clean

Ours: the workflow with the filters language, heuristics and dedup, to tokenize.encode. It also trains the tokenizer, which datatrove
is then given, and computes the exact similarity of every pair. Theirs: benchmarks/datatrove_chain.py. Both keep `--languages` with
the thresholds that the field uses. Seconds are those of the clock, so nothing else
may run on the machine: datatrove's workers are not its children, and their CPU time cannot be asked for. By work, seconds of the clock too:
ours of the tasks, each of which uses all cores; theirs of the blocks of all workers, divided by the cores. The floor is what a step
cannot do without: reading the files and bare calls of the library that does its work, one after the other in one process, over the
same documents.

With `--every`, every filter that datatrove has too: also url (100,000 domains of its own list), pii (e-mail and IP addresses), paragraphs
(lines; its sentence deduplication by lines), quality (a ready fastText model, the language model) and decontaminate (GSM8K's test). Once
more our chain then runs with the filters besides that datatrove has none of.

With `--gold` and `--texts` (see benchmarks/gold.py), F1 of the extracted words of both sides; their extraction runs again for it, untimed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from benchmarks import enlarged, gold
from benchmarks.machine import processor, run, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain import steps
from crawl2llm.core.root import ROOT

CHAIN = ROOT / "benchmarks" / "datatrove_chain.py"
# The results of our steps beside the blocks of theirs that do the same work.
SAME: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "extract": (("ingest.",), ("Warc", "Trafilatura")),
    "language": (("language.",), ("Language ID",)),
    "heuristics": (("heuristics.",), ("Gopher Repetition", "Gopher Quality", "C4 Quality", "FineWeb Quality")),
    "dedup": (("dedup.",), ("MinHash",)),
    "tokens": (("corpus.", "tokenize."), ("Writer",)),
}
ALSO: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "url": (("url.",), ("Url-filter",)),
    "pii": (("pii.",), ("PII",)),
    "paragraphs": (("paragraphs.",), ("sentence-deduplication", "sentence-dedup", "SENTENCE", "Sentence")),
    "quality": (("quality.",), ("fastText",)),
    "decontaminate": (("decontaminate.",), ("decontaminate",)),
}
DOMAINS = 100_000
FILTERS = ["language", "heuristics", "dedup"]
EVERY = ["url", "language", "heuristics", "pii", "dedup", "paragraphs", "quality", "decontaminate"]
OURS = [
    "url", "language", "multilingual", "heuristics", "lines", "boilerplate", "licence", "sourcecode", "toxicity", "pii", "dedup",
    "paragraphs", "substrings", "quality", "decontaminate",
]  # fmt: skip


def model() -> Path:
    """The language model that both sides use."""
    from crawl2llm.formats.language_identifier import model_path

    return model_path("bundled:lid.176.ftz")


def lists(folder: Path, args: argparse.Namespace) -> Path:
    """What both sides' filters look for, in `folder`: `domains`, of datatrove's own list, and `items.jsonl`, GSM8K's test."""
    folder.mkdir()
    (assets,) = args.peer.absolute().parent.parent.glob("lib/python*/site-packages/datatrove/assets")
    (archive,) = assets.glob("url_filterblacklists*.tar.gz")
    with tarfile.open(archive) as tar, tar.extractfile("domains") as stream:  # type: ignore[union-attr]
        every = stream.read().decode().split()
    (folder / "domains").write_text("\n".join(every[:: max(1, len(every) // DOMAINS)][:DOMAINS]) + "\n")
    with pa.input_stream(args.data / "eval/gsm8k_test.jsonl.zst", compression="detect") as stream:
        (folder / "items.jsonl").write_bytes(stream.read())
    return folder


def configured(folder: Path, args: argparse.Namespace, filters: list[str]) -> Path:
    """A config over the input files, in `folder`."""
    source = {"name": "crawl", "kind": "warc", "paths": [str(args.input / args.glob)]}
    settings = {
        "ingest": {"extract": {"shards": args.shards, "sources": [source]}},
        "filters": filters,
        "language": {"select": {"languages": args.languages}},
        "tokenize": {"train": {"vocabulary": args.vocabulary}},
    }
    if args.every:
        items = {"path": str(args.lists / "items.jsonl"), "question": ["question"], "answer": "answer"}
        settings |= {
            "url": {"score": {"domains": [str(args.lists / "domains")]}},
            "pii": {"score": {"kinds": ["email_address", "ip_address"]}},
            "licence": {"select": {"unknown": "keep"}},  # used in our run with all filters alone
            "quality": {
                "fasttext": {"models": [{"name": "english", "path": str(model()), "label": "en"}]},
                "calibrate": {"trained": False},
            },
            "decontaminate": {"index": {"tasks": [], "files": [items]}},
        }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def ours(folder: Path, args: argparse.Namespace, filters: list[str]) -> dict[str, Any]:
    """One run of the workflow from nothing in `folder`: measures of the whole, seconds by step, documents and tokens."""
    config = configured(folder, args, filters)
    targets = [f"results/main/tokenize/encode/{number:05d}.manifest.json" for number in range(args.shards)]
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", str(config)]
    command += ["--profile", str(ROOT / "profiles" / "local"), "--cores", str(args.cores)]
    command += ["--until", "tokenize_encode"]
    whole, _ = run(command, folder, PYTHONPATH=str(ROOT))
    used = steps.used_steps(configuration.validate(yaml.safe_load(config.read_text())))
    took = {
        step: spent(folder / "results/main/benchmarks" / steps.folder_of(step))
        for step in used[: used.index("tokenize.encode") + 1]
    }
    encoded = [json.loads((folder / target).read_text())["summary"] for target in targets]
    tokens = sum(summary[split]["tokens"] for summary in encoded for split in ("train", "validation"))
    return {"whole": whole, "steps": took, "tokens": tokens}


def spent(folder: Path) -> dict[str, float]:
    """{"seconds", "peak_mb", "tasks"} of a step, all its tasks together, from Snakemake's benchmark files.

    Raises RuntimeError where it has none.
    """
    files = [folder.with_suffix(".tsv")] if folder.with_suffix(".tsv").exists() else sorted(folder.glob("*.tsv"))
    rows = [dict(zip(*map(str.split, path.read_text().splitlines()[:2]), strict=False)) for path in files]
    if not rows:
        raise RuntimeError(f"{folder} has no benchmark file")
    number = lambda row, key: float(row[key]) if row.get(key, "NA") not in ("NA", "-") else 0.0  # noqa: E731
    return {
        "seconds": round(sum(number(row, "s") for row in rows), 2),
        "peak_mb": round(max((number(row, "max_rss") for row in rows), default=0.0) * 1.048576, 1),
        "tasks": len(rows),
    }


def theirs(folder: Path, args: argparse.Namespace, tokenizer: Path, *more: str) -> dict[str, Any]:
    """One run of datatrove's chain from nothing in `folder`; what `ours` gives, with seconds by block."""
    command = [
        str(args.peer.absolute()),
        str(CHAIN),
        "--input",
        str(args.input),
        "--glob",
        args.glob,
        "--output",
        str(folder),
    ]
    command += ["--model", str(model()), "--tokenizer", str(tokenizer), "--cores", str(args.cores)]
    if args.every:
        command += ["--every", str(args.lists)]
    whole, said = run(
        [*command, "--languages", *args.languages, *more], folder, PYTHONPATH="", PYTHONSAFEPATH="1", HF_HUB_OFFLINE="1"
    )
    return {"whole": whole, **json.loads(said.splitlines()[-1])}


def floors(results: Path, args: argparse.Namespace) -> dict[str, float]:
    """CPU seconds of the library calls that the steps cannot do without, in one process, over the documents of our run."""
    import fasttext
    import pyarrow.parquet as pq
    from fastwarc.warc import ArchiveIterator, WarcRecordType
    from resiliparse.parse.html import HTMLTree
    from tokenizers import Tokenizer

    def bodies() -> Iterator[bytes]:
        for path in sorted(args.input.glob(args.glob)):
            with path.open("rb") as stream:
                yield from (record.reader.read() for record in ArchiveIterator(stream, WarcRecordType.response))

    def texts(step: str) -> list[str]:
        return [text for path in gold.shards(results, step) for text in pq.read_table(path)["text"].to_pylist()]

    found = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        made = call()
        found[name] = round(time.process_time() - start, 2)
        return made

    pages = timed("read the files", lambda: list(bodies()))
    html = [page for page in pages if b"<html" in page[:2000].lower()]
    timed("parse HTML", lambda: [HTMLTree.parse_from_bytes(page, "utf-8") for page in html])
    extracted = texts("ingest/extract")
    identify = fasttext.load_model(str(model()))
    timed("fastText", lambda: [identify.predict([text.replace("\n", " ")]) for text in extracted])
    kept = texts("corpus/write/train") + texts("corpus/write/validation")
    tokenizer = Tokenizer.from_file(str(results / "tokenize/train/tokenizer.json"))
    timed("encode", lambda: tokenizer.encode_batch_fast(kept, add_special_tokens=False))
    return found


def word_f1(args: argparse.Namespace, results: Path, folder: Path, tokenizer: Path) -> dict[str, float]:
    """Mean F1 of the words of labelled pages, of our documents and of datatrove's extraction; 0 for a page that is not there."""
    labels, wanted = gold.labels(args.gold), gold.texts(args.texts)
    wanted = {record: text for record, text in wanted.items() if labels[record]["variant"] == "original"}
    mine = gold.extracted(results)
    theirs(folder, args, tokenizer, "--extract")
    peer = {}
    for path in sorted((folder / "texts").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            peer |= {row["id"]: row["text"] for row in map(json.loads, lines)}
    means = {}
    for name, found in (("ours", mine), ("datatrove", peer)):
        means[name] = round(
            statistics.fmean(gold.f1(found.get(record, ""), text) for record, text in wanted.items()), 4
        )
    return {"pages": len(wanted), **means}


def median(rounds: list[dict[str, Any]]) -> float:
    return round(statistics.median(one["whole"]["clock"] for one in rounds), 2)


def beside(mine: dict[str, Any], peer: dict[str, Any], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Seconds of the clock of the work of each kind: of our steps, and of datatrove's blocks as if its workers shared them evenly."""
    blocks = [(name, seconds / args.cores) for step in peer["blocks"].values() for name, seconds in step.items()]
    out = {}
    for work, (parts, names) in (SAME | ALSO if args.every else SAME).items():
        spend = sum(found["seconds"] for step, found in mine["steps"].items() if step.startswith(parts))
        took = sum(seconds for block, seconds in blocks if any(name in block for name in names))
        out[work] = {"ours": round(spend, 2), "datatrove": round(took, 2)}
    return out


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="the folder with eval/, for --every")
    parser.add_argument("--every", action="store_true", help="every filter that datatrove has too")
    parser.add_argument("--input", type=Path, default=data / "crawl", help="a folder of WARC files")
    parser.add_argument("--glob", default="*.warc.gz")
    parser.add_argument("--peer", type=Path, required=True, help="the Python of datatrove's environment")
    parser.add_argument(
        "--copies", type=int, default=1, help="pages for each page of the input, see benchmarks/enlarged.py"
    )
    parser.add_argument("--languages", nargs="+", default=["en"])
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "data_half.json")
    args = parser.parse_args(argv)
    args.input = args.input.absolute()
    if args.copies > 1 and args.gold:
        parser.error("--gold is for the pages themselves: not with --copies")
    if not (files := sorted(args.input.glob(args.glob))):
        parser.error(f"--input {args.input}: no file matches {args.glob}")

    mine, peer, alone = [], [], []
    filters = EVERY if args.every else FILTERS
    with tempfile.TemporaryDirectory() as name:
        if args.copies > 1:
            args.input = Path(name) / "input"
            args.input.mkdir()
            enlarged.enlarge(files, args.copies, args.input)
            files = sorted(args.input.glob(args.glob))
        if args.every:
            args.lists = lists(Path(name) / "lists", args)
        for number in range(args.rounds):
            here, there = Path(name) / f"ours{number}", Path(name) / f"theirs{number}"
            here.mkdir()
            there.mkdir()
            mine.append(ours(here, args, filters))
            tokenizer = here / "results/main/tokenize/train/tokenizer.json"
            peer.append(theirs(there, args, tokenizer))
            if args.every:
                (all_of_them := Path(name) / f"all{number}").mkdir()
                alone.append(ours(all_of_them, args, OURS))
            print(
                f"round {number + 1} of {args.rounds}: {mine[-1]['whole']['clock']:.1f} s, datatrove {peer[-1]['whole']['clock']:.1f} s"
            )
        results = Path(name) / "ours0/results/main"
        size = sum(path.stat().st_size for path in files)
        floor = floors(results, args)
        quality = {}
        if args.gold and args.texts:
            (extra := Path(name) / "extract").mkdir()
            quality = word_f1(args, results, extra, tokenizer)
    wholes = {"ours": median(mine), "datatrove": median(peer)}
    result = {
        "what": "WARC files to tokens: extraction, filters, tokens",
        "filters": filters,
        "input": {"files": len(files), "bytes": size, "copies": args.copies, "languages": args.languages},
        "whole_seconds": wholes,
        "times_as_fast": round(wholes["datatrove"] / wholes["ours"], 2),
        "by_work_seconds": beside(mine[0], peer[0], args),
        **(
            {"all_our_filters": {"filters": OURS, "seconds": median(alone), "steps": alone[0]["steps"]}}
            if alone
            else {}
        ),
        "our_steps": mine[0]["steps"],
        "their_blocks": peer[0]["blocks"],
        "floor_cpu_seconds": floor,
        "tokens": {"ours": mine[0]["tokens"], "datatrove": peer[0]["tokens"]},
        "extraction_word_f1": quality,
        "versions": versions("snakemake", "resiliparse", "fastwarc", "tokenizers", "pyarrow")
        | {key: peer[0][key] for key in ("version", "trafilatura")},
        "hardware": {"processor": processor(), "cores": args.cores},
        "rounds": args.rounds,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(
        json.dumps(
            {key: result[key] for key in ("whole_seconds", "times_as_fast", "by_work_seconds", "extraction_word_f1")},
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
