"""Fetches a published model from the Hugging Face hub, at one commit, for `models: {NAME: {hub: …, revision: …}}` of a config; with
--tokenizer its tokenizer alone, for `tokenize.train.from: {hub: …, revision: …}`.

Run it where there is a network, as on a login node, before the run: no job fetches anything. It takes safetensors, configuration,
tokenizer and licence, and refuses pickles and code. A fetch that was cut off goes on where it was. The token of a gated model is
that in HF_TOKEN.
"""

from __future__ import annotations

from pathlib import Path

from crawl2llm.chain import command_line
from crawl2llm.core.console import print_line
from crawl2llm.stages.tokenize.ready_checks import check_folder
from crawl2llm.training.published.hub import MODEL, Selection, fetch_model
from crawl2llm.training.published.hub_folders import MODELS, TOKENIZERS
from crawl2llm.training.published.model_files import PAPERS

FILES = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "pattern.txt", "special_tokens.json")
TOKENIZER = Selection("tokenizer.json, .model or .tiktoken", TOKENIZERS, (*FILES, *PAPERS), FILES[:3], check_folder)


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm fetch-model",
        __doc__,
        f"HuggingFaceTB/SmolLM2-135M-Instruct --revision {'0123456789' * 4}",
    )
    parser.add_argument("name", metavar="NAME", help="as the hub calls it: OWNER/NAME")
    parser.add_argument("--revision", required=True, metavar="SHA", help="the commit, 40 hex digits")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help=f"default: a folder of its own in {MODELS}, or {TOKENIZERS}"
    )
    parser.add_argument("--tokenizer", action="store_true", help="its tokenizer alone")
    args = parser.parse_args(argv)
    folder = fetch_model(args.name, args.revision, args.to, TOKENIZER if args.tokenizer else MODEL)
    print_line(f"{args.name} at {args.revision} is in {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
