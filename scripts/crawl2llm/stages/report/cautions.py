"""What makes the numbers of a run worth little: few documents held out, a base model that is worse than counts of pairs of tokens."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.model_registry import BASE
from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats.run_records import finite_number, nested_value
from crawl2llm.stages.report.page import format_integer, format_significant

# Held-out documents from which on a mean over them has an interval that the normal distribution gives: with 30 the t distribution's is 4 %
# wider, with 10 already 15 %, with 2 six times as wide.
LEAST_HELD_OUT = 30
FRACTION = "corpus.split.validation_fraction"


def few_held_out_notes(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """A note if documents are held out, and fewer than LEAST_HELD_OUT."""
    held_out = finite_number(nested_value(counts, "corpus", "validation", "documents"))
    train = finite_number(nested_value(counts, "corpus", "train", "documents"))
    if not held_out or held_out >= LEAST_HELD_OUT:
        return []
    text = (
        f"Only {format_integer(held_out)} {singular_or_plural(held_out, 'document is', 'documents are')} held out, beside "
        f"{format_integer(train)} to train on: all that is measured on held-out text rests on "
        f"{singular_or_plural(held_out, 'it', 'them')}, and may be far off. Raise {FRACTION}, or add documents."
    )
    return [{"step": "corpus.split", "text": text, "tasks": 1}]


def worse_than_bigram_notes(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """A note if the base model needs as many bits per held-out byte as the bigram model that evaluate.items counts, or more."""
    base = next((model for model in counts.get("models") or [] if model["name"] == BASE), None)
    bits = finite_number(nested_value(base, "evaluation", "heldout_text", "bits_per_byte"))
    bigram = finite_number(nested_value(counts, "beside", "heldout_text", "bits_per_byte", "bigram"))
    if bits is None or bigram is None or bits < bigram:
        return []
    text = (
        f"The base model is no better than a bigram model, which only counts pairs of tokens: {format_significant(bits)} against "
        f"{format_significant(bigram)} bits per held-out byte. It has hardly learnt the language: give it more text, or more tokens to "
        "train on (pretrain.train.tokens)."
    )
    return [{"step": "evaluate.model", "text": text, "tasks": 1}]


def notes(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """The notes that the numbers of `funnel.run_counts` ask for, as steps write theirs: `step`, `text`, `tasks`."""
    return [*few_held_out_notes(counts), *worse_than_bigram_notes(counts)]
