"""The memory that trainings take on a CPU beside the estimate, under each engine and ZeRO stage: the table of docs/memory.md.

    python -m benchmarks.memory                       # writes benchmarks/results/memory.json, prints the rows

Peak resident memory of process 0 over three steps of two micro-batches, the last checkpoint and the gathered weights, less that of a model
of next to nothing. Mapped: with glibc's tunables set so that every large block is mapped and given back; as launched: as the launcher
starts trainings. tests/unit/training/test_peaks.py requires both to be near.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.training.estimate.shape import PROGRAM
from crawl2llm.training.processes import TUNABLES
from tests.unit.training.peaks import VOCABULARY, estimated, grown, prepared, settings
from tests.unit.training.test_peaks import BROAD, DEEP, WIDE

RESULT = ROOT / "benchmarks/results/memory.json"
MAPPED = "glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=65536"


def cases() -> list[tuple[str, dict[str, Any]]]:
    """(what is trained in words, config)."""
    found = []
    for shape, micro, stages in ((BROAD, 8, (0, 1, 2, 3)), (WIDE, 4, (0, 3)), (DEEP, 8, (3,))):
        name = f"{shape['hidden_size']} × {shape['layers']}, {VOCABULARY:,}, {micro} × {shape['context']}"
        for stage in stages:
            for precision in ("fp32", "bf16") if shape is BROAD and stage in (0, 3) else ("fp32",):
                for processes in (1, 2) if stage in (0, 3) else (2,):
                    tree = settings(shape, micro, processes, engine="torch", zero_stage=stage, precision=precision)
                    found.append((f"| {name} | torch: {stage}, {precision}, {processes} |", tree))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    args = parser.parse_args()
    trees = dict(cases())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = prepared(folder)
        mapped = grown(folder / "mapped", given, trees, MAPPED)
        launched = grown(folder / "launched", given, trees, TUNABLES)
    rows = []
    for name, tree in trees.items():
        parts = estimated(tree)
        whole = sum(parts.values()) - PROGRAM
        own = {"estimate": whole, "measured": launched[name]}
        without = {"estimate": whole - parts.get("heap", 0), "measured": mapped[name]}
        rows.append({"case": name, "parts": parts, "mapped": without, "launched": own})
        sizes = [one[key] / 1e6 for one in (without, own) for key in ("estimate", "measured")]
        print(name, " | ".join(f"{size:,.0f}" for size in sizes), "|", flush=True)
    machine = {"processor": processor(), "cores": os.cpu_count(), "versions": versions("torch", "transformers")}
    args.out.write_text(json.dumps({"machine": machine, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
