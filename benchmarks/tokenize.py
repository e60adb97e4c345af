"""Ours against `encode_batch_fast` of tokenizers: the same texts, vocabulary and cores, in alternating rounds of one run.

    python -m benchmarks.tokenize                      # writes benchmarks/results/tokenize.json

Input: JSON Lines with `text`, also zstd-compressed; C4 and HPLT samples of $CRAWL2LLM_DATA (else ../shared/data) unless
--input names others. A byte-level BPE of --vocabulary entries is trained on them, as tokenize.train does it.

What is timed: `encode`, texts in memory to ids, by the engine that tokenize.encode takes and by encode_batch_fast, whose
ids stay in its result; and `step`, a Parquet file of documents to datasets on the disk, with either engine. Seconds are
of the clock and of the CPU; the ratios are of CPU seconds, which other work on the machine disturbs less. The ids of
every document are compared.

    python -m benchmarks.tokenize --megatron https://github.com/NVIDIA/Megatron-LM

also clones Megatron-LM (its newest commit, the folder megatron/core) and opens what the step wrote with its own
IndexedDataset. Where datatrove is installed, its DatatroveFileDataset, which nanotron trains with, reads the same files.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.heuristics import texts
from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT

SAMPLES = ("c4_demo", "hplt-en_100", "hplt-en_101", "hplt-ru_10", "hplt-ru_11")
SHARD = "00000"


def trained(documents: list[str], vocabulary: int, digits: int) -> Any:
    """A tokenizer as tokenize.train makes it, of these documents."""
    from crawl2llm.stages.tokenize.train import train_bpe, untrained_tokenizer

    tokenizer = train_bpe(iter(documents), untrained_tokenizer(digits), vocabulary)
    tokenizer.encode_special_tokens = True
    return tokenizer


def timed(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the clock and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def alternating(sides: dict[str, Callable[[], Any]], rounds: int, size: int) -> dict[str, Any]:
    """Every side once a round, after a warm-up: medians of seconds, and megabytes a CPU second. size: bytes of text."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            seconds = timed(run)
            if number:
                found[name].append(seconds)
                print(f"round {number}/{rounds} {name}: {seconds['cpu']:.2f} s of CPU, {seconds['wall']:.2f} s")
    out: dict[str, Any] = {}
    for name, rows in found.items():
        medians = {kind: statistics.median(row[kind] for row in rows) for kind in ("wall", "cpu")}
        out[name] = {
            **{
                f"{kind}_seconds": {"median": round(medians[kind], 4), "all": [round(row[kind], 4) for row in rows]}
                for kind in medians
            },
            "megabytes_per_cpu_second": round(size / 1e6 / medians["cpu"], 2),
        }
    first, second = (statistics.median(row["cpu"] for row in rows) for rows in found.values())
    return {**out, "times_as_fast": round(second / first, 2)}


def written(documents: list[str], folder: Path) -> Path:
    """The documents as corpus.write leaves them, of one source; the file."""
    from crawl2llm.formats.documents import DOCUMENT, Writer

    with Writer(folder / f"{SHARD}.parquet", DOCUMENT) as writer:
        for number, text in enumerate(documents):
            writer.add({"id": f"{number:032d}", "text": text, "source": "web", "curated": False})
    return writer.path


def megatron(place: str, folder: Path) -> ModuleType:
    """The module of Megatron's reader, from a repository that is cloned into `folder`.

    Its package imports Triton and all of its models; the reader itself needs one function of `megatron.core.utils`, which is that of
    `megatron.core._rank_utils`.
    """
    clone = ["git", "clone", "--quiet", "--depth", "1", "--filter=blob:none", "--sparse", place, str(folder)]
    subprocess.run(clone, check=True)
    subprocess.run(["git", "-C", str(folder), "sparse-checkout", "set", "megatron/core"], check=True)
    for name in ("megatron", "megatron.core"):
        package = ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    utils: Any = ModuleType("megatron.core.utils")
    utils.log_single_rank = importlib.import_module("megatron.core._rank_utils").log_single_rank
    sys.modules["megatron.core.utils"] = utils
    return importlib.import_module("megatron.core.datasets.indexed_dataset")


def opened_by_megatron(module: Any, stem: Path, wanted: list[list[int]]) -> bool:
    """Whether Megatron's IndexedDataset reads these ids, document by document, mapped and not."""
    for mapped in (True, False):
        dataset = module.IndexedDataset(str(stem), mmap=mapped)
        found = [dataset[number].tolist() for number in range(len(dataset))]
        if found != wanted or dataset.document_indices.tolist() != list(range(len(wanted) + 1)):
            return False
    return True


def opened_by_datatrove(stem: Path, wanted: list[list[int]], context: int = 128) -> bool:
    """Whether datatrove's dataset, on which nanotron's is built, reads these ids from the `.bin`, in windows of context + 1."""
    from datatrove.utils.dataset import DatatroveFileDataset

    dataset = DatatroveFileDataset(str(stem.with_suffix(".bin")), seq_len=context, token_size=2)
    flat = [number for document in wanted for number in document]
    return len(dataset) == len(flat) // (context + 1) and all(
        dataset[n]["input_ids"].tolist() == flat[n * (context + 1) : (n + 1) * (context + 1)]
        for n in range(len(dataset))
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    samples = [data / "corpora" / f"{name}.jsonl.zst" for name in SAMPLES]
    parser.add_argument("--input", type=Path, nargs="+", default=samples, help="JSON Lines files of documents")
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--digits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of both sides")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megatron", help="repository of Megatron-LM, to clone: its reader opens the files")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "tokenize.json")
    args = parser.parse_args(argv)
    missing = [str(path) for path in args.input if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}; give --input, or the data's folder in CRAWL2LLM_DATA")
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # before tokenizers makes its pool

    from crawl2llm.core.console import Progress
    from crawl2llm.stages.tokenize.encode import encode_split
    from crawl2llm.stages.tokenize.engine import choose_engine, reference_engine

    documents = [text for path in args.input for text in texts(path) if text]
    size = sum(len(text.encode()) for text in documents)
    print(f"{len(documents):,} documents, {size / 1e6:.1f} MB")
    tokenizer = trained(documents, args.vocabulary, args.digits)
    start = time.process_time()
    engine, exact = choose_engine("auto", tokenizer), reference_engine(tokenizer)
    ready = time.process_time() - start
    sides = {
        "ours": lambda: engine.encode(documents),
        "encode_batch_fast": lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False),
    }
    wanted = [ids.tolist() for ids in exact.encode(documents)]
    same = sum(ids.tolist() == other for ids, other in zip(engine.encode(documents), wanted, strict=True))
    result: dict[str, Any] = {
        "what": "texts to ids with one vocabulary, ours against encode_batch_fast of tokenizers, alternating in one run",
        "input": {"files": [path.name for path in args.input], "documents": len(documents), "bytes": size},
        "vocabulary": tokenizer.get_vocab_size(),
        "digits": args.digits,
        "threads": args.threads,
        "engine": engine.name,
        "seconds_to_load_and_prove": round(ready, 3),
        "documents_with_the_same_ids": same,
        "encode": alternating(sides, args.rounds, size),
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = written(documents, folder)
        steps = {
            side.name: lambda side=side: encode_split(
                corpus, folder / side.name, SHARD, tokenizer, side, Progress(None, "bytes")
            )
            for side in (engine, exact)
        }
        result["step"] = alternating(steps, args.rounds, size)
        stem = folder / engine.name / "web" / SHARD
        eos = tokenizer.token_to_id("<|endoftext|>")
        ended = [[*ids, eos] for ids in wanted]
        readers = {}
        if args.megatron:
            module = megatron(args.megatron, folder / "megatron")
            head = ["git", "-C", str(folder / "megatron"), "rev-parse", "HEAD"]
            commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
            readers["Megatron-LM's IndexedDataset"] = {
                "commit": commit,
                "same_ids": opened_by_megatron(module, stem, ended),
            }
        if find_spec("datatrove"):
            readers["datatrove's DatatroveFileDataset"] = {"same_ids": opened_by_datatrove(stem, ended)}
        result["readers"] = readers
    result["versions"] = versions("tokenizers", "tiktoken", "numpy", "pyarrow", "datatrove")
    result["hardware"] = {"processor": processor(), "cores": os.cpu_count()}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if same == len(documents) and all(found["same_ids"] for found in result["readers"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
