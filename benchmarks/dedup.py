"""Signatures of 500-word documents: ours against datasketch and rensa, on the same texts, in the same run, on one core.

    python -m benchmarks.dedup                    # writes benchmarks/results/dedup.json

Input: windows of 500 words over the text of Python's own language reference (pydoc_data, part of every CPython), so that
everybody can repeat it. rensa is not one of the project's packages: put it on the path for this run only,

    pip install --no-deps --target peer rensa==0.5.0
    PYTHONPATH=peer python -m benchmarks.dedup

`text` times the way from a text to its signature; each peer is given our normalisation and our shingles, as lists. `ours`
includes all that dedup.signature computes: band hashes, text hash, counts. `shingles` times lists of shingles to
signatures alone, for the peers. The floor is one xxHash32 call a shingle and the permutations by NumPy, both of which
any implementation from Python with the library's hash has to do. Seconds are CPU seconds of the process, so that other
work on the machine disturbs them less. That our signatures equal datasketch's is checked before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import xxhash
from datasketch import MinHash

from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.filters.dedup.signature import BATCH_CHARACTERS
from crawl2llm.formats.document_numbers import batch_by_size
from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.shingles import normalise, shingle_hashes, shingles
from crawl2llm.text.signatures import compute_signals

K, PERMUTATIONS, BANDS, ROWS, SEED = 5, 112, 14, 8, 1
PER_ITEM = 100  # documents for datasketch's update(), which is two orders of magnitude slower
KEYWORDS = {"num_perm": PERMUTATIONS, "seed": SEED, "scheme": "affine32"}

Runs = list[list[bytes]]


def windows(count: int, words: int = 500) -> list[str]:
    """`count` documents of `words` words, 37 words apart."""
    source = " ".join(topics.values()).split()
    return [" ".join((source + source)[at : at + words]) for at in (n * 37 % len(source) for n in range(count))]


def ours(texts: list[str]) -> None:
    hasher = MinHasher(PERMUTATIONS, BANDS, ROWS, SEED)
    for batch in batch_by_size(({"text": text} for text in texts), lambda row: len(row["text"]), BATCH_CHARACTERS):
        compute_signals([row["text"] for row in batch], K, hasher)


def cut(texts: list[str]) -> Runs:
    return [shingles(normalise(text), K) for text in texts]


def per_item(runs: Runs) -> None:
    for run in runs:
        made = MinHash(hashfunc=xxhash.xxh32_intdigest, **KEYWORDS)
        for shingle in run:
            made.update(shingle)


def bulk_sha1(runs: Runs) -> None:
    MinHash.bulk(runs, **KEYWORDS)


def bulk_xxhash(runs: Runs) -> None:
    MinHash.bulk(runs, hashfunc=xxhash.xxh32_intdigest, **KEYWORDS)


def rensa(runs: Runs) -> None:
    from rensa import RMinHash

    RMinHash.digest_matrix_from_token_byte_sets(runs, PERMUTATIONS, SEED)


def floor(runs: Runs) -> None:
    hasher = MinHasher(PERMUTATIONS, BANDS, ROWS, SEED)
    for at in range(0, len(runs), 160):
        part = runs[at : at + 160]
        hashes = [xxhash.xxh32_intdigest(shingle) for run in part for shingle in run]
        hasher.signatures(np.array(hashes, np.uint32), np.array([len(run) for run in part]))


def check(texts: list[str]) -> None:
    """Raises AssertionError where our signatures are not datasketch's."""
    hasher = MinHasher(PERMUTATIONS, BANDS, ROWS, SEED)
    theirs = MinHash.bulk(cut(texts), hashfunc=xxhash.xxh32_intdigest, **KEYWORDS)
    mine = hasher.signatures(*shingle_hashes([normalise(text) for text in texts], K))
    np.testing.assert_array_equal(mine, [their.hashvalues for their in theirs])


def seconds(run: Callable[[Any], None], given: Any) -> float:
    start = time.process_time()
    run(given)
    return time.process_time() - start


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "dedup.json")
    args = parser.parse_args(argv)
    texts = windows(args.documents)
    check(texts[:PER_ITEM])

    peers: dict[str, Callable[[Runs], None]] = {
        "datasketch_per_item": per_item,
        "datasketch_bulk_sha1": bulk_sha1,
        "datasketch_bulk_xxhash32": bulk_xxhash,
    }
    if find_spec("rensa"):
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        peers["rensa"] = rensa
    else:
        print("rensa is not installed here. How to put it on the path: --help")
    sides: dict[str, tuple[Callable[[Any], None], Any]] = {"text.ours": (ours, texts)}
    runs = cut(texts)
    for name, peer in peers.items():
        most = PER_ITEM if peer is per_item else len(texts)
        sides[f"text.{name}"] = (lambda given, peer=peer: peer(cut(given)), texts[:most])
        sides[f"shingles.{name}"] = (peer, runs[:most])
    sides["shingles.floor"] = (floor, runs)

    for run, given in sides.values():
        run(given[:PER_ITEM])
    took: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(args.rounds):
        for name, (run, given) in sides.items():
            took[name].append(seconds(run, given))
        print(f"round {number + 1}/{args.rounds}: ours {len(texts) / took['text.ours'][-1]:,.0f} documents/s")
    rates: dict[str, dict[str, Any]] = {"text": {}, "shingles": {}}
    for name, all_seconds in took.items():
        kind, side = name.split(".")
        count, median = len(sides[name][1]), statistics.median(all_seconds)
        rates[kind][side] = {
            "documents": count,
            "documents_per_second": round(count / median, 1),
            "seconds": {"median": round(median, 4), "all": [round(value, 4) for value in all_seconds]},
        }
    mine = rates["text"]["ours"]["documents_per_second"]
    result = {
        "what": "text of 500 words to a MinHash signature (112 permutations, 5-word shingles), one core, CPU seconds",
        "input": {
            "source": "pydoc_data.topics of this Python, windows of 500 words",
            "documents": len(texts),
            "characters": sum(map(len, texts)),
            "ascii": sum(text.isascii() for text in texts),
            "shingles": sum(map(len, runs)),
            "batch_characters": BATCH_CHARACTERS,
        },
        "from_text": rates["text"],
        "from_shingles": rates["shingles"],
        "times_as_fast_from_text": {
            name: round(mine / rate["documents_per_second"], 2)
            for name, rate in rates["text"].items()
            if name != "ours"
        },
        "versions": versions("numpy", "xxhash", "datasketch", "rensa"),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("from_text", "from_shingles", "times_as_fast_from_text")}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
