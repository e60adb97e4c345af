"""Cost per document of boilerplate, paragraphs and substrings, beside datatrove's line and sentence deduplication and a suffix array.

    python -m benchmarks.repeated --peer peer/bin/python       # writes benchmarks/results/repeated.json

Input: JSON Lines with `text`, also zstd-compressed; the C4 and HPLT samples of $CRAWL2LLM_DATA (else ../shared/data) unless --input
names others. `--peer` is the Python of an environment with datatrove (benchmarks/heuristics.py says how to make one). Both sides get the
same texts in the same run, on one core, in one shard; seconds are CPU seconds of the process, without imports. A document's URL is one of
50 hosts, for boilerplate.

The floor of each filter is to read the texts as often as it does, from Parquet: all of its steps but `select`, and that of a part, read
them once. datatrove: the three steps of its sentence deduplication, by single lines (paragraphs' peer) and by three sentences (its
default). Its exact substrings need tokens (--tokenizer: a tokenizer.json; measured is its first step) and then a program in Rust that
builds the suffix array, which is not measured; in its place stands pydivsufsort, where it is installed: a suffix array over the UTF-8 of
all texts in memory, and the longest common prefixes of its neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.heuristics import SAMPLES, texts
from benchmarks.machine import processor, versions
from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.steps import program_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer, document_id

HOSTS = 50
WARM = 20  # texts that each side goes through before it is timed
# Filter → steps, and the options that each reads beside the texts ("": it reads them).
STEPS: dict[str, dict[str, list[str]]] = {
    "boilerplate": {
        "count": [""],
        "frequent": ["--counts", "count"],
        "score": ["", "--frequent", "frequent"],
        "select": ["--signals", "score"],
    },
    "paragraphs": {
        "hash": [""],
        "repeated": ["--hashes", "hash"],
        "score": ["", "--hashes", "hash", "--repeated", "repeated"],
        "select": ["--signals", "score"],
    },
    "substrings": {
        "sample": [""],
        "shared": ["--samples", "sample"],
        "windows": ["", "--sample", "sample", "--shared", "shared"],
        "repeated": ["--windows", "windows"],
        "score": ["", "--sample", "sample", "--repeated", "repeated"],
        "select": ["--signals", "score"],
    },
}


def documents(folder: Path, given: list[str]) -> list[str]:
    """Write the texts as a shard that ingest.check let through; returns the options that name it."""
    with Writer(folder / "d/00000.parquet", DOCUMENT) as out, Writer(folder / "v/00000.parquet", VERDICT) as passed:
        for number, text in enumerate(given):
            name = document_id("benchmark", str(number))
            url = f"https://host{number % HOSTS}.org/{number}"
            out.add({"id": name, "text": text, "source": "web", "curated": False, "url": url, "metadata": "{}"})
            passed.add({"id": name, "kept": True, "rules": []})
    Manifest("ingest.extract", "benchmark").write(folder / "d/00000.manifest.json", [folder / "d/00000.parquet"])
    Manifest("ingest.check", "benchmark").write(folder / "v/manifest.json", [folder / "v/00000.parquet"])
    return ["--documents", str(folder / "d/00000.manifest.json"), "--verdicts", str(folder / "v/manifest.json")]


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def ours(folder: Path, read: list[str], name: str, keys: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """(CPU seconds by step, what score took out) of a filter. keys: its section of the config."""
    complete = config.validate({name: keys})
    found: dict[str, float] = {}
    for step, needs in STEPS[name].items():
        argv = [*read] if needs[0] == "" else []
        for option, of in zip(needs[needs[0] == "" :: 2], needs[1 + (needs[0] == "") :: 2], strict=True):
            argv += [option, str(folder / name / of / f"{task(of)}.manifest.json")]
        out = folder / name / step / f"{task(step)}.manifest.json"
        program = import_module(program_of(f"{name}.{step}"))
        argv = ["--config", fingerprint(f"{name}.{step}", complete), *argv, "--manifest", str(out)]
        found[step] = seconds(lambda program=program, argv=argv: _done(program.main(argv)))  # type: ignore[misc]
    return found, Manifest.read(folder / name / "score/00000.manifest.json").summary


def task(step: str) -> str:
    """The only task of a step."""
    return "000" if step in ("frequent", "repeated", "shared") else "00000"


def _done(status: int) -> None:
    if status:
        raise RuntimeError("a step failed; its error is above")


def suffix_array(given: list[str]) -> dict[str, Any] | None:
    """CPU seconds of a suffix array over all texts and its longest common prefixes; None where pydivsufsort is not installed."""
    if not find_spec("pydivsufsort"):
        return None
    library: Any = import_module("pydivsufsort")
    data = b"\xff".join(text.encode() for text in given)
    held: list[Any] = []
    sort = seconds(lambda: held.append(library.divsufsort(data)))
    return {"bytes": len(data), "sort": sort, "common_prefixes": seconds(lambda: library.kasai(data, held[0]))}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared/data"))
    given = [data / f"corpora/{name}.jsonl.zst" for name in SAMPLES]
    parser.add_argument("--input", type=Path, nargs="+", default=given, help="JSON Lines with `text`")
    parser.add_argument("--peer", type=Path, help="Python of an environment with datatrove")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json, for datatrove's exact substrings")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/repeated.json")
    args = parser.parse_args(argv)
    all_texts = [text for path in args.input for text in texts(path)]
    number = len(all_texts)
    result: dict[str, Any] = {
        "what": "microseconds of CPU for each document, one core, imports left out",
        "machine": processor(),
        "versions": versions("numpy", "pyarrow", "xxhash", "rbloom", "pydivsufsort"),
        "documents": number,
        "characters": sum(map(len, all_texts)),
    }

    def each(found: dict[str, float], **more: float) -> dict[str, float]:
        return {key: round(1e6 * value / number, 2) for key, value in {**found, **more}.items()}

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        warm = documents(folder / "warm", all_texts[:WARM])
        for name in STEPS:  # what is loaded at the first call
            ours(folder / "warm" / name, warm, name, {})
        read = documents(folder, all_texts)
        shard, verdicts, columns = Path(read[1]), Path(read[3]), ["source", "curated"]
        once = min(seconds(lambda: deque(surviving_texts.texts(shard, verdicts, [], columns), 0)) for _ in range(3))
        settings: dict[str, tuple[str, dict[str, Any]]] = {
            "boilerplate": ("boilerplate", {}),
            "paragraphs": ("paragraphs", {}),
            "paragraphs, every line": ("paragraphs", {"hash": {"bytes_min": 1}}),
            "paragraphs, every line, bloom": (
                "paragraphs",
                {"hash": {"bytes_min": 1}, "repeated": {"method": "bloom"}},
            ),
            "substrings": ("substrings", {}),
        }
        result["ours"] = {}
        for label, (name, keys) in settings.items():
            found, took = ours(folder / label, read, name, keys)
            readings = sum(needs[0] == "" for needs in STEPS[name].values())
            result["ours"][label] = {**each(found, all=sum(found.values()), floor=readings * once), "taken": took}
        if (array := suffix_array(all_texts)) is not None:
            result["suffix array in memory (pydivsufsort)"] = {"bytes": array.pop("bytes"), **each(array)}
        if args.peer:
            lines = folder / "texts.jsonl"
            lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in all_texts), encoding="utf-8")
            more = ["--tokenizer", str(args.tokenizer)] if args.tokenizer else []
            command = [
                str(args.peer),
                "-P",
                str(ROOT / "benchmarks/datatrove_repeated.py"),
                "--input",
                str(lines),
                *more,
            ]
            alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            peer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout)
            result["datatrove"] = {
                "version": peer.pop("version"),
                **{name: each(found, all=sum(found.values())) for name, found in peer.items()},
            }
    args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
