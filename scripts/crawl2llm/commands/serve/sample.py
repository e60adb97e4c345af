"""Print what a model of a run writes: its answer to a question, or how `base` goes on with a text."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.commands.serve.catalog import add_options, choose_offers, open_offer
from crawl2llm.commands.serve.generate import GenerationRequest
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("crawl2llm sample", __doc__, '"What does heapq.heappop do?" --model sft --temperature 0')
    parser.add_argument("prompt", help="a question, or a text to go on with")
    parser.add_argument("--model", help="a model, or an export as GGUF (default: the last model made)")
    parser.add_argument(
        "--results", type=Path, default=Path("results/main"), help="results of a variant (default: results/main)"
    )
    parser.add_argument("--max-tokens", type=int, default=256, help="default: 256")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest token (default: 0.8)")
    parser.add_argument("--top-p", type=float, default=0.95, help="default: 0.95")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text on the same machine")
    add_options(parser)
    args = parser.parse_args(argv)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed's import, also by transformers, warns without it
    try:
        offers, name, speculation = choose_offers(args)
        model = open_offer(offers[name], speculation)
        turns = [{"role": "user", "content": args.prompt}]
        prompt = model.chat_ids(turns) if model.chats else model.text_ids(args.prompt)
        if (room := model.context - len(prompt)) < 1:
            raise InputError(
                f"the prompt has {len(prompt):,} tokens; the context of {name} is {model.context:,} with the answer"
            )
        if args.max_tokens < 1 or args.temperature < 0 or not 0 < args.top_p <= 1:
            raise InputError("--max-tokens is at least 1, --temperature at least 0, --top-p above 0 and at most 1")
        generation = GenerationRequest(
            prompt, min(args.max_tokens, room), args.temperature, args.top_p, args.seed, strip_start=model.chats
        )
        if not args.model:
            print_line(f"{name}:", file=sys.stderr, flush=True)
        if not model.chats:
            print_line(args.prompt, end="", flush=True)
        model.generate_answer(generation, lambda text: print_line(text, end="", flush=True), threading.Event())
        print_line()
    except (InputError, ManifestError, OSError) as error:
        return print_error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
