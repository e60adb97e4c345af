"""Deduplication by size: seconds and memory of every step, and recall and precision by similarity, on planted near-duplicates.

    python -m benchmarks.scale --pages results/main/ingest/extract/*.parquet --documents 62000 250000
    python -m benchmarks.scale --signatures 10000000 100000000

`--documents` makes that many documents from the pages (benchmarks/planted.py) and runs all steps of dedup over them, one task after the
other, each a process as in the workflow. Seconds are CPU seconds, and wall seconds beside them; memory is the largest task's peak.
`--signatures` writes that many signatures of one band without any text (benchmarks/synthetic.py), and runs band, verify and select.
Results go to benchmarks/results/scale.json, a size replacing its older result. Everything written while it works is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import planted
from benchmarks.machine import processor, run, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain import fingerprint, steps
from crawl2llm.chain.steps import program_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT

PER_SHARD = 8000  # documents of a shard, about
BINS = 10  # of similarity from 0.5 to 1


def shards_of(documents: int) -> int:
    """How many shards so many documents are written in."""
    return max(2, documents // PER_SHARD)


def apart(function: Callable[..., Any], *given: Any) -> Any:
    """`function(*given)` in a process of its own: the peak that Linux tells of a task is never less than its parent's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *given).result()


class Run:
    """The steps of dedup over one folder, each task a process of its own; `took` has what each step took."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config
        self.took: dict[str, dict[str, Any]] = {}

    def manifests(self, name: str) -> list[Path]:
        """The manifests of a step, all ids."""
        found = steps.result_ids(f"dedup.{name}", self.config)
        return [self.folder / name / (f"{id_}.manifest.json" if id_ else "manifest.json") for id_ in found]

    def step(self, name: str, inputs: Callable[[str], dict[str, list[Path]]]) -> None:
        """Run all tasks of a step, one after the other. inputs: options by the id of a task's first result."""
        step = f"dedup.{name}"
        mark = json.dumps({"step": step, "config": fingerprint.tracked_settings(step, self.config)})
        facts = {"tasks": 0, "cpu_seconds": 0.0, "wall_seconds": 0.0, "peak_mb": 0.0}
        for task in steps.task_ids(step, self.config):
            options = [word for key, paths in inputs(task).items() for word in (f"--{key}", *map(str, paths))]
            also = steps.result_ids_of_task(step, task, self.config)[1:]
            manifest = self.folder / name / (f"{task}.manifest.json" if task else "manifest.json")
            words = ["--config", mark, *options, *(["--also", *also] if also else []), "--manifest", str(manifest)]
            took, _ = run([sys.executable, "-m", program_of(step), *words], Path.cwd())
            facts["tasks"] += 1
            facts["wall_seconds"] += took["clock"]
            facts["cpu_seconds"] += took["cpu"]
            facts["peak_mb"] = max(facts["peak_mb"], took["peak_mb"])
        files = [path for path in (self.folder / name).rglob("*") if path.is_file()]
        facts |= {"files": len(files), "disk_mb": sum(path.stat().st_size for path in files) / 1e6}
        self.took[name] = {key: round(value, 1) for key, value in facts.items()}
        print(f"{step}: {self.took[name]}", flush=True)


def complete(shards: int, **signature: int) -> dict[str, Any]:
    """The default config with so many shards, and other settings of dedup.signature."""
    return configuration.validate({"ingest": {"extract": {"shards": shards}}, "dedup": {"signature": signature}})


def over_documents(pages: list[Path], count: int, folder: Path) -> dict[str, Any]:
    """Make the documents and run all steps."""
    shards = shards_of(count)
    apart(planted.make, pages, count, shards, folder)
    run = Run(folder, complete(shards))

    def page(task: str) -> list[Path]:
        return [folder / "documents" / f"{task}.manifest.json"]

    judged = [folder / "verdicts" / "manifest.json"]
    run.step("signature", lambda task: {"documents": page(task), "verdicts": judged})
    signals = run.manifests("signature")
    run.step("exact", lambda task: {"signals": signals})
    run.step("band", lambda task: {"signals": signals, "exact": run.manifests("exact")})
    bands = run.manifests("band")
    exact = run.manifests("exact")

    def of_sets(task: str) -> dict[str, list[Path]]:
        signal = folder / "signature" / f"{task}.manifest.json"
        return {"pairs": bands, "exact": exact, "documents": page(task), "signals": [signal]}

    run.step("sets", of_sets)
    run.step("verify", lambda task: {"pairs": bands, "sets": run.manifests("sets")})
    run.step("select", lambda task: {"signals": signals, "exact": exact, "pairs": run.manifests("verify")})
    documents = sum(path.stat().st_size for path in (folder / "documents").glob("*.parquet")) / 1e6
    return {
        "shards": shards,
        "documents_mb": round(documents, 1),
        "steps": run.took,
        "pairs": Manifest.read(folder / "select" / "manifest.json").summary["pairs"],
        "quality": apart(quality, folder),
    }


def quality(folder: Path) -> dict[str, Any]:
    """Recall of the planted pairs by similarity, beside what the S-curve of the bands promises, and precision of the drops."""
    planted = pq.read_table(folder / "planted.parquet")
    files = sorted((folder / "select").glob("*.parquet"))
    verdicts = pa.concat_tables(
        pq.read_table(path, columns=["id", "kept", "rule", "duplicate_of", "similarity"]) for path in files
    )
    gone = verdicts.filter(pc.invert(verdicts["kept"]))
    # A family is an original with its copies; named by the original.
    family = pc.coalesce(planted["original"].take(pc.index_in(gone["id"], value_set=planted["document"])), gone["id"])
    keeper = gone["duplicate_of"]
    other = pc.coalesce(planted["original"].take(pc.index_in(keeper, value_set=planted["document"])), keeper)
    right = pc.sum(pc.equal(family, other)).as_py() or 0
    either = pc.or_(*(pc.is_in(planted[name], value_set=gone["id"]) for name in ("document", "original"))).to_numpy()
    similarity = planted["similarity"].to_numpy()
    bins = np.minimum(((similarity - 0.5) * 2 * BINS).astype(int), BINS - 1)
    by_similarity = []
    for number in range(BINS):
        inside = (bins == number) & (similarity >= 0.5) & (similarity < 1)
        if inside.any():
            found = 1 - (1 - similarity[inside] ** 8) ** 14
            by_similarity.append(
                {
                    "from": round(0.5 + number / 2 / BINS, 3),
                    "pairs": int(inside.sum()),
                    "mean_similarity": round(float(similarity[inside].mean()), 4),
                    "candidates_expected": round(float(found.mean()), 4),
                    "one_of_the_two_dropped": round(float(either[inside].mean()), 4),
                }
            )
    same = similarity == 1
    return {
        "dropped": len(gone),
        "for_a_document_of_its_family": right,
        "least_similarity_of_a_drop": round(pc.min(gone["similarity"]).as_py(), 4) if len(gone) else None,
        "copies": int(same.sum()),
        "copies_dropped": round(float(either[same].mean()), 4) if same.any() else None,
        "near_by_similarity": by_similarity,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, nargs="+", help="Parquet files of real pages, with a column `text`")
    parser.add_argument("--documents", type=int, nargs="*", default=[], help="sizes to make and run")
    parser.add_argument(
        "--signatures", type=int, nargs="*", default=[], help="sizes without texts: band, verify and select alone"
    )
    parser.add_argument("--folder", type=Path, help="where it works (default: a temporary folder)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "scale.json")
    args = parser.parse_args(argv)
    if args.documents and not args.pages:
        parser.error("--documents needs --pages")
    from benchmarks import synthetic  # it imports this module

    result = json.loads(args.output.read_text()) if args.output.exists() else {}
    jobs = [("documents", count, lambda at, n: over_documents(args.pages, n, at)) for count in args.documents]
    jobs += [("signatures", count, lambda at, n: synthetic.run(n, at)) for count in args.signatures]
    for kind, count, work in jobs:
        folder = Path(tempfile.mkdtemp(prefix="scale-", dir=args.folder))
        try:
            print(f"{kind}: {count:,}", flush=True)
            found = work(folder, count)
        finally:
            shutil.rmtree(folder)
        found |= {"versions": versions("numpy", "pyarrow", "scipy"), "processor": processor(), "cores": os.cpu_count()}
        result.setdefault(kind, {})[str(count)] = found
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps({key: found[key] for key in found if key not in ("steps",)}, indent=1), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
