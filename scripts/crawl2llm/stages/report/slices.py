"""The held-out text by source and by language, as the report's table: bits per byte and perplexity of each model."""

from __future__ import annotations

from typing import Any

from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import NOTHING, format_bytes, format_integer, format_significant

HEADS = {"source": "Source", "language": "Language"}


def slice_cell(part: dict[str, Any] | None) -> tuple[str, str]:
    """`1.691 ± 0.034`: bits per byte with its standard error over documents; below it the perplexity per token."""
    if not part:
        return NOTHING, ""
    error = f" ± {format_significant(part['stderr'])}" if "stderr" in part else ""
    return format_significant(part["bits_per_byte"]) + error, format_significant(part["perplexity"])


def table(run: Run) -> dict[str, Any]:
    """`heads` of the models and `rows` (kind, name, cells, note); no row of a run with one source and one language."""
    slices_by_model = {
        model: {(part["by"], part["name"]): part for part in parts}
        for model, parts in (run.fact("evaluate.compare", "slices") or {}).items()
    }
    rows = []
    for key in dict.fromkeys(key for parts in slices_by_model.values() for key in parts):
        first = next(parts[key] for parts in slices_by_model.values() if key in parts)
        documents = first["documents"]
        rows.append(
            {
                "kind": HEADS[key[0]],
                "name": key[1],
                "cells": [slice_cell(parts.get(key)) for parts in slices_by_model.values()],
                "note": f"{format_integer(documents)} {singular_or_plural(documents, 'document')}, {format_bytes(first['bytes'])}",
            }
        )
    return {"heads": [model_title(model) for model in slices_by_model], "rows": rows}
