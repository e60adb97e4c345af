"""What the page says of a published model, of its tokenizer, and of what was tuned from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.model_registry import PUBLISHED_STEP, REENCODE_STEP
from crawl2llm.core.console import format_quantity, singular_or_plural
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.page import NOTHING, format_integer

Fact = tuple[str, str, str]  # name, value with its unit, what it was measured on


def published_facts(facts: dict[str, Any]) -> list[Fact]:
    """The summary of pretrain.published as rows."""
    rows = [
        ("Name", str(facts.get("name") or NOTHING), "as its files say"),
        ("Licence", str(facts.get("licence") or NOTHING), "of the published model"),
        ("Type", str(facts.get("type") or NOTHING), "of transformers"),
        ("Parameters", format_integer(facts.get("parameters")), "weights of the model"),
        ("Weights", str(facts.get("quantization") or NOTHING), "as published; read in full precision"),
        ("Context", format_integer(facts.get("context")), "tokens"),
        ("Vocabulary", format_integer(facts.get("vocabulary")), "entries"),
        ("End token", str(facts.get("end_token") or NOTHING), "ends an answer"),
    ]
    return [row for row in rows if row[1] != NOTHING]


def tokenizer_rows(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """Of each published model that was read: its name, its vocabulary's entries, and bytes of validation text per token of it, where the
    corpus was encoded for it; the end tokens of documents are not counted.
    """
    rows = []
    for name in models:
        manifest, encoded = run.task(PUBLISHED_STEP, name), run.task(REENCODE_STEP, name)
        text = (encoded.summary.get("validation") if encoded else None) or {}
        tokens = text["tokens"] - text["documents"] if text else 0
        rate = text["bytes"] / tokens if tokens else None
        if manifest:
            vocabulary = manifest.summary.get("vocabulary")
            rows.append(
                {"name": name, "vocabulary": vocabulary, "bytes_per_token": rate, "measured_bytes": text.get("bytes")}
            )
    return rows


def tuning_tiles(tuned: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    """The tile of what a published model was tuned on; none without such a model."""
    pairs, steps = (nested_value(tuned, "training", key) for key in ("pairs", "steps"))
    if tuned is None or not pairs or not steps:
        return []
    note = f"{format_quantity(steps, 'optimizer step')} from {tuned['from']}"
    return [(f"Tuned on, {tuned['name']}", format_integer(pairs), singular_or_plural(pairs, "pair"), note)]
