"""The held-out text by source and by language, as the report's table: bits per byte and perplexity of each model."""

from __future__ import annotations

from typing import Any

from crawl2llm.core.console import form
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import NOTHING, integer, significant, size

HEADS = {"source": "Source", "language": "Language"}


def cell(of: dict[str, Any] | None) -> tuple[str, str]:
    """`1.691 ± 0.034`: bits per byte with its standard error over documents; below it the perplexity per token."""
    if not of:
        return NOTHING, ""
    wide = f" ± {significant(of['stderr'])}" if "stderr" in of else ""
    return significant(of["bits_per_byte"]) + wide, significant(of["perplexity"])


def table(run: Run) -> dict[str, Any]:
    """`heads` of the models and `rows` (kind, name, cells, note); no row of a run with one source and one language."""
    found = {
        model: {(of["by"], of["name"]): of for of in parts}
        for model, parts in (run.fact("evaluate.compare", "slices") or {}).items()
    }
    rows = []
    for key in dict.fromkeys(key for parts in found.values() for key in parts):
        first = next(parts[key] for parts in found.values() if key in parts)
        rows.append(
            {
                "kind": HEADS[key[0]],
                "name": key[1],
                "cells": [cell(parts.get(key)) for parts in found.values()],
                "note": f"{integer(first['documents'])} {form(first['documents'], 'document')}, {size(first['bytes'])}",
            }
        )
    return {"heads": [title(model) for model in found], "rows": rows}
