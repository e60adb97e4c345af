"""Tokens a second of a run's model with and without speculative decoding, and whether the texts are the same.

    python -m benchmarks.speculative --results results/main --model sft --draft base     # writes benchmarks/results/speculative.json

Greedy decoding by what `crawl2llm serve` runs, one text at a time: as it is; with another model of the run that says tokens ahead; with
the tokens that followed the same ones before (prompt lookup, by number of tokens). Texts: the run's held-out questions, and beginnings
of its validation documents, which the model goes on with. Ways take turns, `--repeats` times over; a rate is tokens by the
clock's seconds over all texts, the median of the repeats. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import processor, versions
from crawl2llm.commands.serve.generate import GenerationRequest, Model, model_manifests
from crawl2llm.commands.serve.speculative import Speculation
from crawl2llm.core.manifest import write_atomically
from crawl2llm.stages.evaluate.documents import choose_by_hash, document_tokens

LOOKED_UP = (3, 10)


def prompts(model: Model, results: Path, number: int, room: int) -> dict[str, list[list[int]]]:
    """Token ids to go on with, by kind."""
    lines = (results / "finetune/pairs/heldout.jsonl").read_text(encoding="utf-8").splitlines()[:number]
    questions = [json.loads(line)["question"] for line in lines]
    asked = [model.chat_ids([{"role": "user", "content": question}]) for question in questions] if model.chats else []
    chosen = choose_by_hash(
        sorted((results / "tokenize/encode").glob("*.manifest.json")), "validation", number, 0, "bench", lambda _: 1
    )[0]
    texts = [ids.tolist() for _, ids in document_tokens(chosen[:number], room)]
    return {"questions": asked, "documents": texts} if asked else {"documents": texts}


def timed(model: Model, texts: list[list[int]], most: int) -> tuple[list[str], int, float]:
    """(texts, tokens, seconds) of greedy answers."""
    out, number, begun = [], 0, time.monotonic()
    for ids in texts:
        said: list[str] = []
        number += model.generate_answer(
            GenerationRequest(ids, most, temperature=0), said.append, threading.Event()
        ).tokens
        out.append("".join(said))
    return out, number, time.monotonic() - begun


def compare(ways: dict[str, Model], texts: list[list[int]], most: int, repeats: int) -> dict[str, Any]:
    """For each way: tokens a second, how many texts are those of the first way, tokens of an answer."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    held: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for _ in range(repeats):
        for name, model in ways.items():
            held[name], counts[name], seconds = timed(model, texts, most)
            rates[name].append(counts[name] / seconds)
    plain = next(iter(ways))
    return {
        name: {
            "tokens_per_second": round(statistics.median(found), 1),
            "times_plain": round(statistics.median(found) / statistics.median(rates[plain]), 3),
            "same_texts": sum(one == other for one, other in zip(held[plain], held[name], strict=True)),
            "texts": len(texts),
            "tokens_per_text": round(counts[name] / len(texts), 1),
        }
        for name, found in rates.items()
    }


def options(about: str | None, output: str) -> argparse.ArgumentParser:
    """The options that benchmarks of generation share. output: the file that is written."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/main"))
    parser.add_argument("--model", default="sft")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(output))
    return parser


def written(
    args: argparse.Namespace,
    plain: Model,
    ways: dict[str, Any],
    kinds: dict[str, list[list[int]]],
    software: dict[str, str],
    **more: Any,
) -> None:
    """Measure, write and print. plain: the model as it is. kinds: as `prompts` has them. more: keys of the file before `found`."""
    body = {
        "machine": processor(),
        # Of processes that wanted a core: more than there are, and rates are too low.
        "load_average": round(os.getloadavg()[0], 1),
        "versions": software,
        "model": {
            "name": args.model,
            "parameters": sum(parameter.numel() for parameter in plain.model.parameters()),
            "context": plain.context,
        },
        "settings": {"threads": args.threads, "tokens": args.tokens, "repeats": args.repeats},
        **more,
        "found": {kind: compare(ways, texts, args.tokens, args.repeats) for kind, texts in kinds.items()},
    }
    write_atomically(args.output, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(body["found"], indent=1))


def main() -> int:
    parser = options(__doc__, "benchmarks/results/speculative.json")
    parser.add_argument("--draft", help="another model of the run")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = model_manifests(args.results)
    ways = {"plain": Model(found[args.model])}
    if args.draft:
        ways[f"draft {args.draft}"] = Model(found[args.model], Speculation(draft=found[args.draft]))
    ways |= {f"lookup {number}": Model(found[args.model], Speculation(lookup=number)) for number in LOOKED_UP}
    plain = ways["plain"]
    kinds = prompts(plain, args.results, args.texts, max(plain.context - args.tokens, 8))
    written(args, plain, ways, kinds, versions("torch", "transformers"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
