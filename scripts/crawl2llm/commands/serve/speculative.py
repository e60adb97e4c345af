"""Speculative decoding: something cheap drafts several tokens, and the model reads them all at once and keeps those that are its own.

By a smaller model of the run (Leviathan et al., arXiv:2211.17192), or by what followed the same words earlier in the text (prompt
lookup, https://github.com/apoorvumang/prompt-lookup-decoding); both as transformers does it. With temperature 0 the text is the same as
without, but where two tokens are equally likely to the last digits; with another, its distribution is.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training import model_loading

LOOKUP_TOKENS = 10  # that are looked up, where --lookup names no number


@dataclass(frozen=True)
class Speculation:
    """How tokens are said ahead: by the model of a manifest, or by looking up `lookup` of them in the text; by neither, not at all."""

    draft: Path | None = None
    lookup: int = 0

    def generate_options(self, manifest: Path, model: Any, tokenizer: Any) -> dict[str, Any]:
        """What `generate` of `model`, which is that of `manifest`, is told; nothing of the draft model itself.

        Raises InputError for a draft model with another vocabulary, ManifestError for one whose files are damaged.
        """
        if self.lookup:
            return {"prompt_lookup_num_tokens": self.lookup}
        if self.draft is None or self.draft == manifest:
            return {}
        from transformers.utils import logging

        folder = model_loading.verify_weights(self.draft)[1]
        draft, draft_tokenizer = model_loading.load_model(folder, "bf16" if model.dtype.itemsize == 2 else "fp32")
        if draft_tokenizer.get_vocab() != tokenizer.get_vocab():
            raise InputError(
                f"the draft model {model_loading.model_name(self.draft)} has another vocabulary than {model_loading.model_name(manifest)}"
            )
        logging.set_verbosity_error()  # it warns of how it calls itself
        return {"assistant_model": draft.to(model.device).eval()}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --draft and --lookup."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--draft", metavar="MODEL", help="speculative decoding: a smaller model of the run that drafts tokens"
    )
    either.add_argument(
        "--lookup",
        type=int,
        nargs="?",
        const=LOOKUP_TOKENS,
        default=0,
        metavar="N",
        help=f"speculative decoding: tokens to take from an earlier place with the same words (default: {LOOKUP_TOKENS})",
    )


def parse_speculation(args: argparse.Namespace, manifests: dict[str, Path]) -> Speculation:
    """What the options ask for. Raises InputError that names a model that is not there, or a number below 0."""
    if args.lookup < 0:
        raise InputError(f"--lookup is {args.lookup}; it must be at least 1")
    if args.draft is not None and args.draft not in manifests:
        raise InputError(f"--draft: there is no model {args.draft!r}; there are {', '.join(manifests)}")
    return Speculation(manifests.get(args.draft), args.lookup)
