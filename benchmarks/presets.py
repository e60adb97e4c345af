"""What each preset of configs/presets keeps of a crawl, by language: a table, and JSON.

    python -m benchmarks.presets --input crawl --curated wikitext.txt.zst     # writes benchmarks/results/presets.json

`--input` is a folder of `.warc.gz` files (else the crawl of $CRAWL2LLM_DATA). `--curated` is plain text that the classifier of `dclm` and
the language models of `ccnet` learn from; without it these two keep what their other filters leave. ccnet needs `make kenlm-tools`.

Each preset is a variant of one run, so that pages are read and their languages found once. All of them keep every language, whatever
the published ones do: the columns say what their rules do to it. A column is of the documents whose label (lid.176) it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machine import processor, run, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain import filter_order, steps, yaml_errors
from crawl2llm.chain.project import Project
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import rows

PRESETS = ROOT / "configs" / "presets"
LABELS = "language.score"
CRAWL = "crawl"  # the source whose documents are counted


def configured(args: argparse.Namespace) -> dict[str, Any]:
    """A run over the pages with a variant for each preset."""
    sources: list[dict[str, Any]] = [{"name": CRAWL, "kind": "warc", "paths": [str(args.input.absolute() / args.glob)]}]
    if args.curated:
        paths = [str(path.absolute()) for path in args.curated]
        sources.append({"name": "curated", "kind": "text", "curated": True, "chunk_words": 1000, "paths": paths})
    tree: dict[str, Any] = {
        "ingest": {"extract": {"shards": args.shards, "sources": sources}},
        "filters": ["language"],
        "language": {"select": {"languages": [], "threshold": 0}},
    }
    every = {"language": {"select": {"languages": []}}}
    tree["variants"] = {name: configuration.merge_dicts(held, every) for name, held in presets(args.presets).items()}
    return tree


def presets(names: list[str]) -> dict[str, dict[str, Any]]:
    """The presets by name: those that are named, or all."""
    found = {path.stem: yaml_errors.read_config(path) for path in sorted(PRESETS.glob("*.yaml"))}
    return {name: found[name] for name in names or found}


def languages(project: Project) -> dict[str, str]:
    """The label of every document of the crawl, by id."""
    labels: dict[str, str] = {}
    for shard in steps.shards(project.variants["main"]):
        made = Manifest.read(Path(project.step_folder("main", LABELS)) / f"{shard}.manifest.json")
        found = rows(made.file(f"{shard}.parquet"), ["id", "source", "language"])
        labels |= {row["id"]: row["language"] for row in found if row["source"] == CRAWL}
    return labels


def kept(project: Project, variant: str, labels: dict[str, str]) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """(documents by language that all filters of a variant keep, those that each filter drops). labels: language by id."""
    config = project.variants[variant]
    alive: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {}
    judging = filter_order.verdict_steps(filter_order.used_filters(config))[1:]
    for step in judging:
        for path in (Path(project.step_folder(variant, step)) / f"{shard}.parquet" for shard in steps.shards(config)):
            for row in rows(path, ["id", "kept"]):
                if (language := labels.get(row["id"])) is None:
                    continue
                if not row["kept"]:
                    dropped.setdefault(steps.stage_of(step), Counter())[language] += 1
                elif step == judging[-1]:
                    alive[language] += 1
    return alive, dropped


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("CRAWL2LLM_DATA")
    parser.add_argument(
        "--input", type=Path, default=Path(data) / "crawl" if data else None, help="folder of WARC files"
    )
    parser.add_argument("--glob", default="*.warc.gz")
    parser.add_argument("--curated", nargs="+", type=Path, default=[], help="plain text files of a curated source")
    parser.add_argument("--presets", nargs="+", default=[], help="names of presets (default: all)")
    parser.add_argument("--languages", nargs="+", default=[], help="columns (default: the ten most frequent languages)")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument(
        "--directory", type=Path, help="where to run, and what to keep (default: a folder that is removed)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/presets.json")
    args = parser.parse_args(argv)
    if args.input is None:
        parser.error("--input: a folder of WARC files, or set CRAWL2LLM_DATA")
    with contextlib.ExitStack() as stack:
        folder = args.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        tree = configured(args)
        (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile"]
        command += [str(folder / "config.yaml"), "--profile", str(ROOT / "profiles/local"), "--cores", str(args.cores)]
        begun = time.monotonic()
        run([*command, "--until", "corpus_split"], folder, PYTHONPATH=str(ROOT))
        print(f"{len(tree['variants'])} presets in {time.monotonic() - begun:.0f} s", file=sys.stderr)
        with contextlib.chdir(folder):
            project = Project(configuration.validate(tree))
            labels = languages(project)
            found = {name: kept(project, name, labels) for name in tree["variants"]}
            before, _ = kept(project, "main", labels)
    columns = args.languages or [name for name, _ in before.most_common(10)]
    print("\n".join(table(found, before, columns)))
    result = {
        "versions": versions("snakemake", "pyarrow", "fasttext"),
        "hardware": {"processor": processor(), "cores": args.cores},
        "documents": dict(before),
        "presets": {
            name: {"kept": dict(alive), "dropped": {stage: dict(by) for stage, by in dropped.items()}}
            for name, (alive, dropped) in found.items()
        },
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")
    return 0


def table(found: dict[str, Any], before: Counter[str], columns: list[str]) -> list[str]:
    """Rows of Markdown: percent of the documents that each preset keeps, of all and by language."""
    lines = [f"| preset | all | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    share = lambda some, whole: f"{100 * some / whole:.0f} %" if whole else "–"  # noqa: E731
    lines.append(f"| documents | {before.total():,} | {' | '.join(f'{before[name]:,}' for name in columns)} |")
    for name, (alive, _) in found.items():
        shares = " | ".join(share(alive[column], before[column]) for column in columns)
        lines.append(f"| {name} | {share(alive.total(), before.total())} | {shares} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
