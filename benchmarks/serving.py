"""Tokens a second of a model by transformers, compiled and not, and of its GGUF files by llama.cpp; and whether texts are the same.

    python -m benchmarks.serving --results results/main --model sft --export gguf     # writes benchmarks/results/serving.json

Greedy decoding by what `crawl2llm serve` runs, one text at a time, on the same prompts as benchmarks/speculative.py. Ways take turns,
`--repeats` times over; a rate is tokens by the clock's seconds over all texts, the median of the repeats. `static`: transformers with
keys and values in a cache of fixed size, as compiled decoding needs it; `compiled`: with its decoding step compiled by torch.compile, once
for all texts; seconds of the first answers, in which it is compiled, are said apart. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import processor, versions
from benchmarks.speculative import compare, prompts, timed
from scripts.compress import accepts
from scripts.serve import gguf
from scripts.serve.generate import Model, manifests
from scripts.serve.offered import exports
from scripts.workflow.manifest import write_atomically


def static(manifest: Path, compiled: bool) -> Model:
    """The model with a cache of fixed size, and with its decoding step compiled."""
    from transformers import CompileConfig

    model = Model(manifest)
    model.ahead = {"cache_implementation": "static"}
    if compiled:
        told = CompileConfig(fullgraph=False, mode="default")
        told._compile_all_devices = True  # otherwise on GPUs alone
        model.ahead["compile_config"] = told
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/main"))
    parser.add_argument("--model", default="sft")
    parser.add_argument("--export", help="an export as GGUF of that model")
    parser.add_argument("--compiled", action="store_true", help="also a static cache, and compiled decoding")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/serving.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])  # llama.cpp takes as many threads as cores
    manifest = manifests(args.results)[args.model]
    ways: dict[str, Any] = {"transformers": Model(manifest)}
    plain = ways["transformers"]
    kinds = prompts(plain, args.results, args.texts, max(plain.context - args.tokens, 8))
    first: dict[str, float] = {}
    if args.compiled:
        ways |= {name: static(manifest, name == "compiled") for name in ("static", "compiled")}
        for name in ("static", "compiled"):
            begun = time.monotonic()
            timed(ways[name], [texts[0] for texts in kinds.values()], args.tokens)
            first[name] = round(time.monotonic() - begun, 1)
    if args.export:
        ways |= {f"llama.cpp {one.type}": gguf.Model(one) for one in exports(args.results)[args.export]}
    body = {
        "machine": processor(),
        "load_average": round(
            os.getloadavg()[0], 1
        ),  # of processes that wanted a core: more than there are, and rates are too low
        "versions": {**versions("torch", "transformers"), "llama_cpp_python": accepts.VERSION},
        "model": {
            "name": args.model,
            "parameters": sum(one.numel() for one in plain.model.parameters()),
            "context": plain.context,
        },
        "settings": {"threads": args.threads, "tokens": args.tokens, "repeats": args.repeats},
        "seconds_of_first_answers": first,
        "found": {kind: compare(ways, texts, args.tokens, args.repeats) for kind, texts in kinds.items()},
    }
    write_atomically(args.output, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(body["found"], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
