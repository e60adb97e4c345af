"""What each filter does to the good pages of a labelled crawl, by language: JSON, and a table in each filter's page of docs/.

    python -m benchmarks.gold_filters --data data --docs                      # writes benchmarks/results/gold_filters.json

`--data` (else $CRAWL2LLM_DATA) has crawl/ with `.warc.gz` files and a `.gold.tsv`, whose originals are the pages, corpora/ with
wikitext-2, which the classifier learns from, and eval/ with GSM8K's test, which decontamination searches for. Pages are as the run
extracts them, with all that a main text should not have.

Each filter is a variant of one run: language, which keeps all, and the filter at its defaults. `quality` keeps the top half.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from benchmarks import gold
from benchmarks.machine import processor, run, versions
from benchmarks.presets import CRAWL, kept
from crawl2llm.chain import config as configuration
from crawl2llm.chain import filter_order
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import rows

LEAST = 20  # pages of a language that has a column
FILTERS: dict[str, dict[str, Any]] = {
    "language": {"language": {"select": {"threshold": 0.65}}},
    "multilingual": {},
    "heuristics": {},
    "lines": {},
    "boilerplate": {},
    "licence": {"ingest": {"extract": {"licence": True}}},
    "sourcecode": {},
    "pii": {},
    "dedup": {},
    "paragraphs": {},
    "substrings": {},
    "quality": {"quality": {"select": {"keep_fraction": 0.5}}},
    "decontaminate": {},
}


def configured(data: Path, shards: int) -> dict[str, Any]:
    """A run over the crawl with a variant for each filter."""
    curated = [str(data / "corpora" / f"wikitext-2-{split}.txt.zst") for split in ("valid", "test")]
    text = {"kind": "text", "curated": True, "chunk_words": 1000, "paths": curated}
    tree: dict[str, Any] = {
        "ingest": {
            "extract": {
                "shards": shards,
                "sources": [
                    {"name": CRAWL, "kind": "warc", "paths": [str(data / "crawl" / "*.warc.gz")]},
                    {"name": "curated", **text},
                ],
            }
        },
        "filters": ["language"],
        "language": {"select": {"languages": [], "threshold": 0}},
        "decontaminate": {"index": {"tasks": []}},
    }
    items = {"path": str(data / "eval/gsm8k_test.jsonl.zst"), "question": ["question"], "answer": "answer"}
    own = {**FILTERS, "decontaminate": {"decontaminate": {"index": {"files": [items]}}}}
    tree["variants"] = {
        name: {"filters": list(dict.fromkeys(["language", name])), **more} for name, more in own.items()
    }
    return tree


def originals(project: Project, variant: str, crawl: Path) -> dict[str, tuple[str, int]]:
    """id → (language, characters) of the labelled originals."""
    labels = gold.labels(next(crawl.glob("*.gold.tsv")))
    found = {}
    for path in gold.shards(Path(project.step_folder(variant, DOCUMENTS)).parents[1], "ingest/extract"):
        for row in rows(path, ["id", "text", "metadata"]):
            label = labels.get(json.loads(row["metadata"]).get("record_id", ""), {})
            if label.get("variant") == "original":
                found[row["id"]] = label["lang"], len(row["text"])
    return found


def edited(project: Project, variant: str, pages: dict[str, tuple[str, int]]) -> tuple[Counter[str], Counter[str]]:
    """(documents by language that a filter edits, characters that it takes out of them)."""
    documents, characters, seen = Counter[str](), Counter[str](), set[str]()
    for step in filter_order.edit_steps(filter_order.used_filters(project.variants[variant])):
        for path in sorted((Path(project.step_folder(variant, step)) / "spans").glob("*.parquet")):
            for row in rows(path):
                if row["id"] in pages:
                    language = pages[row["id"]][0]
                    documents[language] += row["id"] not in seen
                    seen.add(row["id"])
                    characters[language] += row["end"] - row["start"] - len(row["replacement"])
    return documents, characters


def percent(some: float, whole: float) -> str:
    if not some:
        return "0"
    return f"{100 * some / whole + 0.0:.1f}".replace("-0.0", "0.0") if whole else "–"


def table(found: dict[str, Any], columns: list[str]) -> str:
    """Markdown: percent of the pages of each language that a filter drops and edits."""
    whole = Counter(found["pages"])
    lines = [f"| | all | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    lines.append(f"| pages | {whole.total():,} | {' | '.join(f'{whole[name]:,}' for name in columns)} |")
    shown = {"dropped, %": ("dropped", whole)}
    if found["edited"]:
        shown |= {"edited, %": ("edited", whole), "characters taken out, %": ("taken", Counter(found["characters"]))}
    for title, (key, of) in shown.items():
        by = Counter(found[key])
        cells = " | ".join(percent(by[name], of[name]) for name in columns)
        lines.append(f"| {title} | {percent(by.total(), of.total())} | {cells} |")
    return "\n".join(lines)


def write(name: str, made: str) -> None:
    """Put a table into docs/<name>.md, in the place of the one before."""
    path = ROOT / "docs" / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    begin, end = "<!-- gold_filters: what it does to good pages -->", "<!-- /gold_filters -->"
    part = f"{begin}\n{made}\n{end}"
    if begin in text:
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: part, text, flags=re.DOTALL)
    else:
        text = (
            f"{text.rstrip()}\n\n## What it does to good pages\n\nMain texts of crawled pages as `ingest.extract` reads them, this filter "
            f"alone at its defaults (`python -m benchmarks.gold_filters`):\n\n{part}\n"
        )
    path.write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("CRAWL2LLM_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None, help="see above")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument(
        "--directory", type=Path, help="where to run, and what to keep (default: a folder that is removed)"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/gold_filters.json")
    args = parser.parse_args(argv)
    if args.data is None:
        parser.error("--data: a folder with crawl/, corpora/ and eval/, or set CRAWL2LLM_DATA")
    data = args.data.absolute()
    with contextlib.ExitStack() as stack:
        folder = args.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        tree = configured(data, args.shards)
        (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile"]
        command += [str(folder / "config.yaml"), "--profile", str(ROOT / "profiles/local"), "--cores", str(args.cores)]
        run([*command, "--until", "corpus_split"], folder, PYTHONPATH=str(ROOT))
        found: dict[str, dict[str, Any]] = {}
        with contextlib.chdir(folder):
            project = Project(configuration.validate(tree))
            for name in FILTERS:
                pages = originals(project, name, data / "crawl")
                _, dropped = kept(project, name, {key: language for key, (language, _) in pages.items()})
                documents, taken = edited(project, name, pages)
                characters = Counter[str]()
                for language, number in pages.values():
                    characters[language] += number
                found[name] = {
                    "pages": Counter(language for language, _ in pages.values()),
                    "characters": characters,
                    "dropped": dropped.get(name, Counter()),
                    "edited": documents,
                    "taken": taken,
                }
    columns = [name for name, number in found["language"]["pages"].most_common() if name and number >= LEAST]
    for name, one in found.items():
        made = table(one, columns)
        print(f"{name}\n{made}\n")
        if args.docs:
            write(name, made)
    result = {
        "versions": versions("snakemake", "pyarrow", "fasttext"),
        "hardware": {"processor": processor(), "cores": args.cores},
        "filters": {name: {key: dict(sorted(by.items())) for key, by in one.items()} for name, one in found.items()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
