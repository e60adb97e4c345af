"""What report.whatif costs on a large corpus: seconds and peak memory of the step, on signals that are drawn.

    python -m benchmarks.whatif --documents 1000000                           # writes benchmarks/results/whatif.json

Documents are the texts of JSON Lines (else the C4 sample of $CRAWL2LLM_DATA), repeated with other ids, in `--shards` files as
ingest.extract writes them, in a folder that is removed. Beside them are signals and verdicts of four filters (language, lines, quality, and
heuristics with all families, each of whose rules drops 1 to 3 % of the documents), and lists of encoded documents. The step runs as a
process of its own; the floor is reading the texts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import documents
from benchmarks.machine import processor, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain import fingerprint
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.rules import Rule
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.rules import active_rules
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.filters.language import score as language
from crawl2llm.filters.lines import score as lines
from crawl2llm.filters.quality import settings as quality
from crawl2llm.formats.documents import Writer, batches, verdict_table
from crawl2llm.stages.report.declared_rules import rules_of
from crawl2llm.stages.report.other_thresholds import thresholds
from crawl2llm.stages.report.other_thresholds.rows import Rows

FILTERS = ["language", "heuristics", "lines", "quality"]
LABELS = np.array(["en", "de", "fr", "zh", "th"])
SCORE = pa.schema([("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_()), ("score", pa.float64())])
MEASURED = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_())]
    + [(name, pa.int64() if kind == "count" else pa.float64()) for name, kind in MEASURES.items()]
)
SCHEMAS = {"language": language.SIGNAL, "heuristics": MEASURED, "lines": lines.SIGNAL, "quality": SCORE}


def written(path: Path, table: pa.Table) -> Path:
    with Writer(path, table.schema) as writer:
        writer.add_table(table)
    return path


def limits(settings: SelectSettings) -> dict[str, tuple[float, float]]:
    """Measure of heuristics → its least and its most, as the rules have them."""
    found: dict[str, tuple[float, float]] = {}
    for rule in sorted(active_rules(settings), key=lambda rule: rule.low, reverse=True):
        low, _ = found.get(rule.measure, (0.0, 0.0))
        found[rule.measure] = (rule.threshold, 20 * rule.threshold) if rule.low else (low, rule.threshold)
    return found


def drawn(
    schema: pa.Schema, facts: dict[str, pa.Array], draw: np.random.Generator, ends: dict[str, tuple[float, float]]
) -> pa.Table:
    """Signals: between their ends where a rule has some, else counts up to some thousands and shares that are mostly small."""
    number = len(facts["id"])
    columns = {}
    for field in schema:
        if field.name in facts:
            columns[field.name] = facts[field.name]
        elif field.name in ends:
            low, high = ends[field.name]
            values = np.maximum(0, low + (high - low) * (1.03 * draw.random(number) - 0.015))
            if not high:  # nearly all have none
                values = np.where(draw.random(number) < 0.985, 0, draw.integers(1, 10, number))
            columns[field.name] = pa.array(values.astype(np.int64) if pa.types.is_integer(field.type) else values)
        elif pa.types.is_integer(field.type):
            columns[field.name] = pa.array(draw.lognormal(5, 1.5, number).astype(np.int64))
        else:
            columns[field.name] = pa.array(draw.beta(1, 6, number) if field.name != "score" else draw.random(number))
    return pa.table(columns).cast(schema)


def judged(step: str, signals: pa.Table, labels: np.ndarray, settings: Settings) -> pa.Table:
    """Verdicts under the rules of the step, as arrays: its own program takes minutes for a million documents."""
    batch = signals.combine_chunks().to_batches()[0]
    nothing = pa.RecordBatch.from_pylist([], pa.schema([("kept", pa.bool_()), ("rules", pa.list_(pa.string()))]))
    rows = Rows([batch], labels, list(LABELS), nothing, np.zeros(len(batch), bool))
    failed: dict[str, np.ndarray] = {}
    rules = [
        rule
        for rule in rules_of(step.partition(".")[0], settings, [])
        if isinstance(rule, Rule) and rule.step == "score"
    ]
    for ask in thresholds.thresholds_of_step(step, settings, rules):
        if ask.now is not None:
            values, _ = ask.measure(rows)
            failed[ask.rules[0]] = values < ask.now if ask.keeps == thresholds.LEAST else values > ask.now
    if isinstance(settings, quality.SelectSettings):
        failed["fraction"] = rows.values("score") < np.quantile(rows.values("score"), 1 - settings.keep_fraction)
    matrix = np.stack(list(failed.values()), axis=1)
    starts = pa.array(np.concatenate(([0], np.cumsum(matrix.sum(axis=1)))), pa.int32())
    found = pa.ListArray.from_arrays(starts, pa.array(list(failed)).take(pa.array(np.nonzero(matrix)[1])))
    return verdict_table({"id": signals["id"], "kept": pa.array(~matrix.any(axis=1)), "rules": found})


def build(root: Path, texts: list[str], number: int, shards: int, config: dict[str, Any]) -> list[Path]:
    """The manifests of a run with these documents."""
    draw, made = np.random.default_rng(0), []

    def manifest(step: str, shard: str, *files: Path) -> None:
        made.append(root / step.replace(".", "/") / f"{shard}.manifest.json")
        Manifest(step=step, fingerprint="").write(made[-1], files)

    ends = limits(SelectSettings())
    for first in range(shards):
        shard, own = f"{first:05d}", range(first, number, shards)
        labels = draw.integers(0, len(LABELS), len(own))
        sources = pa.array(["web", "more"]).take(pa.array(draw.integers(0, 2, len(own))))
        path = root / f"ingest/extract/{shard}.parquet"
        table = documents.written(path, own, (texts[one % len(texts)] for one in own), source=sources)
        manifest("ingest.extract", shard, path)
        facts = {name: table[name] for name in ("id", "source", "curated")} | {"language": pa.array(LABELS[labels])}
        for name in FILTERS:
            signals = drawn(SCHEMAS[name], facts, draw, ends)
            manifest(f"{name}.score", shard, written(root / f"{name}/score/{shard}.parquet", signals))
            verdicts = judged(
                f"{name}.select",
                signals,
                labels,
                settings_class(f"{name}.select").model_validate(config[name]["select"]),
            )
            manifest(f"{name}.select", shard, written(root / f"{name}/select/{shard}.parquet", verdicts))
        sizes = pc.divide(pc.utf8_length(table["text"]), 4).cast(pa.int64())
        docs = pa.table({"id": facts["id"], "offset": sizes, "tokens": sizes, "bytes": sizes})
        manifest("tokenize.encode", shard, written(root / f"tokenize/encode/train/web/{shard}.docs.parquet", docs))
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    documents.options(parser)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/whatif.json")
    args = parser.parse_args(argv)
    texts = documents.texts(args.texts)
    config = configuration.validate({"filters": FILTERS, "language": {"select": {"languages": []}}})
    mark = json.dumps({"step": "report.whatif", "config": fingerprint.tracked_settings("report.whatif", config)})
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "results/main"
        manifests = build(root, texts, args.documents, args.shards, config)
        out = root / "report/whatif/manifest.json"
        words = [
            "-m",
            "crawl2llm.stages.report.whatif",
            "--config",
            mark,
            "--manifests",
            *map(str, manifests),
            "--manifest",
            str(out),
        ]
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
        seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads((out.parent / "whatif.json").read_text(encoding="utf-8"))
        start = time.perf_counter()
        size = 0
        for path in root.glob("ingest/extract/*.parquet"):
            size += sum(pc.sum(pc.binary_length(batch.column("text"))).as_py() for batch in batches(path, ["text"]))
        floor = time.perf_counter() - start
    result = {
        "documents": args.documents,
        "shards": args.shards,
        "text_bytes": size,
        "thresholds": sum(len(step["rules"]) for step in found["steps"]),
        "points": config["report"]["whatif"]["points"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_memory_bytes": used.ru_maxrss * 1024,
        "floor_seconds": {"read the texts": round(floor, 1)},
        "whatif_json_bytes": len(json.dumps(found)),
        "load_average": os.getloadavg()[0],
        "versions": versions("numpy", "pyarrow"),
        "hardware": {"processor": processor()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
