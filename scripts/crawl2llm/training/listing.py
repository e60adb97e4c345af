"""The checkpoints in a folder of trainings, with the model that each is of: their folders are named by a digest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from crawl2llm.chain.model_registry import BASE
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.atomic_folder import CHECKPOINT, wrong_files
from crawl2llm.core.manifest import task_of
from crawl2llm.training.estimate.parts import format_bytes

HEADINGS = ("checkpoint", "model", "step", "written", "size")
UNKNOWN = "?"  # of a training that was moved aside, or of an earlier version


def model_of(manifest: Path) -> str:
    """`base`, `sft`, `sft of hot`: the model, and its variant where that is not main, by the path of its training's manifest."""
    name = task_of(manifest) or BASE
    parts = manifest.parts
    variant = parts[parts.index("results") + 1] if "results" in parts[:-1] else "main"
    return name if variant == "main" else f"{name} of {variant}"


def checkpoint_rows(checkpoints: Path) -> Iterator[tuple[str, ...]]:
    """A row as HEADINGS for each complete checkpoint below `checkpoints`: training by training, the one that wrote last at the end."""
    models: dict[Path, str] = {}
    for folder, manifest, _ in checkpoint_folders.trainings_below(checkpoints):
        models.setdefault(folder, model_of(manifest))  # of several that train the same, the newest
    seals = sorted(checkpoints.glob(f"*/step-*/{CHECKPOINT}"))
    newest = {
        seal.parents[1]: max(sibling.stat().st_mtime for sibling in seals if sibling.parents[1] == seal.parents[1])
        for seal in seals
    }
    for seal in sorted(seals, key=lambda seal: (newest[seal.parents[1]], seal)):
        try:
            facts = json.loads(seal.read_text(encoding="utf-8"))
            step, size = int(facts["step"]), sum(facts["files"].values())
            if wrong_files(seal.parent, facts["files"]):
                continue
            written_at = datetime.fromtimestamp(seal.stat().st_mtime).astimezone()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        model = models.get(seal.parents[1], UNKNOWN)
        yield str(seal.parent), model, f"{step:,}", f"{written_at:%Y-%m-%d %H:%M}", format_bytes(size)


def table_lines(checkpoints: Path) -> list[str]:
    """The rows as text in columns, with their head; one line that says so if there is none."""
    rows = list(checkpoint_rows(checkpoints))
    if not rows:
        return [f"no checkpoint below {checkpoints}"]
    table = [HEADINGS, *rows]
    wide = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    out = [
        f"{row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:<{wide[3]}}  {row[4]:>{wide[4]}}"
        for row in table
    ]
    if any(row[1] == UNKNOWN for row in rows):
        out.append(f"{UNKNOWN}: of a training that another one took the place of, or of an earlier version")
    return out
