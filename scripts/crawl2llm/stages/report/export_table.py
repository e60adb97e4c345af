"""What compress.export made, as the report's table: files, sizes and, of GGUF files, what llama.cpp measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.run_records import Run, dig, number
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import NOTHING, percent, size


def table(run: Run, page: Path) -> dict[str, Any]:
    """`rows` of files, one of safetensors or of each GGUF type, none where nothing was exported; `about`. page: where links lead from."""
    rows = [row for made in run.of(EXPORT_STEP) if made.path for row in _rows(made, made.path, page)]
    measured = [one for made in run.of(EXPORT_STEP) for one in dig(made.summary, "gguf") or []]
    about = "Each folder has its model card, README.md."
    if measured:
        first = measured[0]
        about += (
            f" GGUF files were run by llama.cpp, on {first['documents']:,} held-out documents ({first['tokens']:,} tokens), on which "
            f"transformers reaches {first['transformers_bits_per_byte']:.4f} bits per byte. Logits: their mean difference from those of "
            f"transformers at {first['compared']:,} positions, and the share where the likeliest token is the same."
        )
    return {"rows": rows, "about": about}


def counted(run: Run) -> list[dict[str, Any]]:
    """Each export's `name`, `of`, `folder` and `files`."""
    return [
        {
            "name": task_of(made.path),
            "of": made.summary.get("of"),
            "folder": str(made.path.parent / task_of(made.path)),
            "files": _files(made),
        }
        for made in run.of(EXPORT_STEP)
        if made.path
    ]


def _files(made: Manifest) -> list[dict[str, Any]]:
    """`type` and `bytes` of the files that an export consists of: safetensors with what belongs to them, and each GGUF file with what
    llama.cpp measured.
    """
    ggufs = dig(made.summary, "gguf") or []
    listed = {one["file"] for one in ggufs}
    whole = sum(facts["bytes"] for file, facts in made.files.items() if Path(file).name not in listed)
    return [*([{"type": "safetensors", "bytes": whole}] if whole else []), *ggufs]


def _rows(made: Manifest, path: Path, page: Path) -> list[dict[str, str]]:
    """The rows of an export's files."""
    name = task_of(path)
    of = {
        "export": name,
        "of": title(str(made.summary.get("of"))),
        "link": Path(os.path.relpath(path.parent / name, page.parent)).as_posix() + "/",
    }
    rows = []
    for one in _files(made):
        bits, apart = number(one.get("bits_per_byte")), number(one.get("mean_difference"))
        rows.append(
            {
                **of,
                "type": one["type"],
                "size": size(one["bytes"]),
                "bits": NOTHING if bits is None else f"{bits:.4f}",
                "apart": NOTHING if apart is None else f"{apart:.2g}",
                "same": percent(one.get("same_argmax")),
            }
        )
    return rows
