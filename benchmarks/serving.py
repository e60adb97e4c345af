"""Tokens a second of a model by transformers, compiled and not, and of its GGUF files by llama.cpp; and whether texts are the same.

    python -m benchmarks.serving --results results/main --model sft --export gguf     # writes benchmarks/results/serving.json

Greedy decoding by what `crawl2llm serve` runs, one text at a time, on the same prompts as benchmarks/speculative.py. Ways take turns,
`--repeats` times over; a rate is tokens by the clock's seconds over all texts, the median of the repeats. `static`: transformers with
keys and values in a cache of fixed size, as compiled decoding needs it; `compiled`: with its decoding step compiled by torch.compile, once
for all texts; seconds of the first answers, in which it is compiled, are said apart. Nothing else should run on the machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import versions
from benchmarks.speculative import options, prompts, timed, written
from crawl2llm.commands.serve import gguf
from crawl2llm.commands.serve.catalog import gguf_exports
from crawl2llm.commands.serve.generate import Model, model_manifests
from crawl2llm.stages.compress import gguf_support


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
    parser = options(__doc__, "benchmarks/results/serving.json")
    parser.add_argument("--export", help="an export as GGUF of that model")
    parser.add_argument("--compiled", action="store_true", help="also a static cache, and compiled decoding")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])  # llama.cpp takes as many threads as cores
    manifest = model_manifests(args.results)[args.model]
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
        ways |= {f"llama.cpp {one.type}": gguf.Model(one) for one in gguf_exports(args.results)[args.export]}
    software = {**versions("torch", "transformers"), "llama_cpp_python": gguf_support.VERSION}
    written(args, plain, ways, kinds, software, seconds_of_first_answers=first)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
