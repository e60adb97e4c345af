"""How long `snakemake --dry-run` takes over 1,000 shards, and what it imports.

    python -m benchmarks.dry_run            # writes benchmarks/results/dry_run.json

The floor is Snakemake's own planning: about 1 ms a job. No heavy library may be imported while the Snakefile is parsed.
Planned twice: with no result at all, and with the manifests of a complete run, each of which is read and compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import yaml

from scripts.common import config as configuration
from scripts.common import steps
from scripts.common.fingerprint import fingerprint
from scripts.common.manifest import ALL, Manifest, combined, digest
from scripts.ingest import sources

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "pyarrow", "numpy", "transformers", "deepspeed", "fasttext", "datasketch", "tokenizers", "lm_eval")


def planned(folder: Path, shards: int, *python: str) -> tuple[float, str]:
    """(seconds, output) of one dry run of the workflow over `shards` files of one web source."""
    config = folder / "config.yaml"
    if not config.exists():
        (folder / "crawl").mkdir()
        for number in range(shards):
            (folder / "crawl" / f"{number:05d}.warc.gz").write_bytes(b"")
        source = {"name": "web", "kind": "warc", "paths": [str(folder / "crawl" / "*.warc.gz")]}
        config.write_text(yaml.safe_dump({"ingest": {"extract": {"shards": shards, "sources": [source]}}}))
    start = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable, *python, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
            "--profile", str(ROOT / "profiles" / "local"), "--directory", str(folder),
            "--configfile", str(config), "--dry-run", "--quiet", "rules",
        ],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - start, done.stdout + done.stderr


def completed(folder: Path, shards: int) -> None:
    """Write the manifests of a complete run, as its programs would; each lists one file."""
    complete = configuration.validate(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    found = sources.by_shard(complete)
    contents = {shard: sources.content(found.get(shard, [])) for shard in steps.shards(complete)}
    whole = combined([{shard: mark} for shard, mark in contents.items()])
    memo: dict[str, str] = {}
    written: dict[tuple[str, str], str] = {}
    for step, facts in steps.STEPS.items():
        sharded = facts.per == "shard"
        for task in steps.shards(complete) if sharded else steps.tasks(step, complete):
            place = folder / "results/main" / step.replace(".", "/")
            place.mkdir(parents=True, exist_ok=True)
            data = place / f"{task or 'all'}.bin"
            data.write_bytes(b"")
            mark = fingerprint(step, complete, memo, task if facts.per == "model" else "")
            made = Manifest(step, digest(mark))
            early = step.split(".")[0] == "ingest" or step == "language.score"
            made.sources = {task: contents[task]} if sharded and early else {} if step == "crawl.render" else whole
            for need in steps.needs(step, complete, task if facts.per == "model" else ""):
                per = steps.STEPS[need].per
                keys = steps.shards(complete) if per == "shard" else steps.tasks(need, complete)
                for key in [task] if sharded and per == "shard" else keys:
                    made.inputs[f"{need} {key}".rstrip()] = {ALL: written[need, key]}
            made.inputs = made.inputs or {"sources": {"files": contents.get(task, "")}}
            made.write(place / f"{task}.manifest.json".removeprefix("."), [data])
            written[step, task] = str(made.digest_of(ALL))
    for name in ("report.html", "figures/funnel.svg", "figures/loss.svg", "figures/bits-per-byte.svg"):
        path = folder / "results/main/report/render" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def imported(folder: Path, shards: int) -> list[str]:
    """The heavy libraries that a dry run imports, but for those that Snakemake imports for an empty workflow."""

    def loaded(output: str) -> set[str]:
        lines = (line for line in output.splitlines() if "import time:" in line)
        return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in lines} & set(HEAVY)

    empty = folder / "empty.smk"
    empty.write_text("rule all:\n    shell: 'true'\n")
    command = [sys.executable, "-X", "importtime", "-m", "snakemake", "--snakefile", str(empty), "--dry-run"]
    bare = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return sorted(loaded(planned(folder, shards, "-X", "importtime")[1]) - loaded(bare.stdout + bare.stderr))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "dry_run.json")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [planned(folder, args.shards) for _ in range(args.rounds)]
        jobs = int(re.findall(r"^total\s+(\d+)", runs[0][1], re.MULTILINE)[0])
        heavy = imported(folder, args.shards)
        completed(folder, args.shards)
        again = [planned(folder, args.shards) for _ in range(args.rounds)]
        if "Nothing to be done" not in again[0][1]:
            raise RuntimeError(again[0][1][-3000:])
    seconds = [took for took, _ in runs]
    complete = [took for took, _ in again]
    result = {
        "what": f"snakemake --dry-run over {args.shards} shards",
        "jobs": jobs,
        "seconds": {"median": round(statistics.median(seconds), 2), "all": [round(s, 2) for s in seconds]},
        "seconds_of_a_complete_run": {
            "median": round(statistics.median(complete), 2),
            "all": [round(s, 2) for s in complete],
        },
        "milliseconds_per_job": round(1000 * statistics.median(seconds) / jobs, 3),
        "heavy_imports": heavy,
        "versions": {"python": platform.python_version(), "snakemake": version("snakemake")},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
