"""What compress.export made, as the report's table: files, sizes and, of GGUF files, what llama.cpp measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import NOTHING, format_bytes, format_percent


def table(run: Run, page: Path) -> dict[str, Any]:
    """`rows` of files, one of safetensors or of each GGUF type, none if nothing was exported; `about`. page: where links lead from."""
    rows = [
        row
        for manifest in run.manifests_of(EXPORT_STEP)
        if manifest.path
        for row in _table_rows(manifest, manifest.path, page)
    ]
    measured = [
        gguf for manifest in run.manifests_of(EXPORT_STEP) for gguf in nested_value(manifest.summary, "gguf") or []
    ]
    about = "Each folder has its model card, README.md."
    if measured:
        first = measured[0]
        about += (
            f" GGUF files were run by llama.cpp, on {first['documents']:,} held-out documents ({first['tokens']:,} tokens), on which "
            f"transformers reaches {first['transformers_bits_per_byte']:.4f} bits per byte. Logits: their mean difference from those of "
            f"transformers at {first['compared']:,} positions, and the share where the likeliest token is the same."
        )
    return {"rows": rows, "about": about}


def export_rows(run: Run) -> list[dict[str, Any]]:
    """Each export's `name`, `of`, `folder` and `files`."""
    return [
        {
            "name": task_of(manifest.path),
            "of": manifest.summary.get("of"),
            "folder": str(manifest.path.parent / task_of(manifest.path)),
            "files": _file_rows(manifest),
        }
        for manifest in run.manifests_of(EXPORT_STEP)
        if manifest.path
    ]


def _file_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """`type` and `bytes` of the files that an export consists of: safetensors with what belongs to them, and each GGUF file with what
    llama.cpp measured.
    """
    ggufs = nested_value(manifest.summary, "gguf") or []
    listed = {gguf["file"] for gguf in ggufs}
    whole = sum(facts["bytes"] for file, facts in manifest.files.items() if Path(file).name not in listed)
    has_weights = any(
        file.endswith(".safetensors") for file in manifest.files
    )  # beside GGUF files there may be a parent's card
    return [*([{"type": "safetensors", "bytes": whole}] if has_weights else []), *ggufs]


def _table_rows(manifest: Manifest, path: Path, page: Path) -> list[dict[str, str]]:
    """The rows of an export's files."""
    name = task_of(path)
    common = {
        "export": name,
        "of": model_title(str(manifest.summary.get("of"))),
        "link": Path(os.path.relpath(path.parent / name, page.parent)).as_posix() + "/",
    }
    rows = []
    for file in _file_rows(manifest):
        bits, difference = finite_number(file.get("bits_per_byte")), finite_number(file.get("mean_difference"))
        rows.append(
            {
                **common,
                "type": file["type"],
                "size": format_bytes(file["bytes"]),
                "bits": NOTHING if bits is None else f"{bits:.4f}",
                "apart": NOTHING if difference is None else f"{difference:.2g}",
                "same": format_percent(file.get("same_argmax")),
            }
        )
    return rows
