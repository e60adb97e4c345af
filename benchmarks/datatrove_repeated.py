"""datatrove's side of `benchmarks.repeated`. Runs in an environment of its own, without the project's packages.

    peer/bin/python -P benchmarks/datatrove_repeated.py --input texts.jsonl

Prints CPU seconds as JSON: of the three steps of sentence deduplication (by lines; by three sentences), and, with --tokenizer, of the
step of exact substrings that writes tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import deque
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.dedup import (
    ESDatasetToSequence,
    SentenceDedupFilter,
    SentenceDedupSignature,
    SentenceFindDedups,
)
from datatrove.pipeline.dedup.sentence_dedup import SentDedupConfig


def sentences(given: list[str], config: SentDedupConfig) -> dict[str, float]:
    """CPU seconds of the three steps."""
    with tempfile.TemporaryDirectory() as made:
        signatures, found = f"{made}/signatures", f"{made}/found"
        steps = [
            (SentenceDedupSignature(signatures, config=config), True),
            (SentenceFindDedups(signatures, found, config=config), False),
            (SentenceDedupFilter(found, config=config), True),
        ]
        out = {}
        for number, (step, reads) in enumerate(steps):
            documents = [Document(text=text, id=str(n)) for n, text in enumerate(given)] if reads else None
            start = time.process_time()
            if (work := step.run(documents, 0, 1)) is not None:
                deque(work, 0)
            out[f"step {number + 1}"] = time.process_time() - start
    return out


def sequence(given: list[str], tokenizer: Path) -> dict[str, float]:
    """CPU seconds of the step that writes all texts as tokens."""
    with tempfile.TemporaryDirectory() as made:
        step = ESDatasetToSequence(made, tokenizer_name_or_path=str(tokenizer))
        documents = [Document(text=text, id=str(n)) for n, text in enumerate(given)]
        start = time.process_time()
        step.run(documents, 0, 1)
        return {"step 1": time.process_time() - start}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    args = parser.parse_args()
    with args.input.open(encoding="utf-8") as lines:
        given = [json.loads(line)["text"] for line in lines]
    with contextlib.redirect_stdout(sys.stderr):
        sentences(given[:20], SentDedupConfig())  # what is loaded at the first call
        out: dict[str, Any] = {
            "lines": sentences(given, SentDedupConfig(n_sentences=1, split_sentences=False)),
            "three sentences": sentences(given, SentDedupConfig()),
        }
        if args.tokenizer:
            out["exact substrings, tokens"] = sequence(given, args.tokenizer)
    print(json.dumps({"version": version("datatrove"), **out}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
