"""What the thresholds of boilerplate.frequent take out of a labelled crawl: of its pages' main texts, and of what is around them.

    python -m benchmarks.boilerplate --results results/main --texts crawl.gold_text.jsonl.zst

`--results` is of a run over the crawl, to boilerplate.count, best with `ingest.extract.main_content: false`: else the extraction has taken
out most of what this filter is for. `--texts` as in benchmarks/gold.py. A line is of the main text where that has it, compared as
the filter compares lines. Pages with equal texts are counted once. Prints JSON: for each pair of thresholds the share of
characters taken out of the main texts (which should be 0), and of what is around them (which should be 1), on all pages with
a labelled text, and on those of hosts with `documents_min` pages or more.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.gold import shards, texts
from crawl2llm.formats.documents import rows
from crawl2llm.text.blocks import compared_lines
from crawl2llm.text.group_split import url_host

DOCUMENTS = (3, 5, 7, 10)
SHARES = (0.0, 0.05, 0.1, 0.2, 0.5)


def pages(results: Path) -> list[dict[str, Any]]:
    """Documents with a host, each text of a host once: host, record_id, and lines as they are compared."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in shards(results, "ingest/extract"):
        for row in rows(path, ["text", "url", "metadata"]):
            if name := url_host(row["url"] or ""):
                record = json.loads(row["metadata"]).get("record_id", "")
                page = {"host": name, "record": record, "lines": compared_lines(row["text"])}
                found.setdefault((name, row["text"]), page)
    return list(found.values())


def measure(found: list[dict[str, Any]], gold: dict[str, str]) -> dict[str, Any]:
    """The shares for each pair of thresholds."""
    hosts = Counter(page["host"] for page in found)
    counts = Counter((page["host"], line) for page in found for line in set(page["lines"]) if line)
    main = {record: b" ".join(filter(None, compared_lines(text))) for record, text in gold.items()}
    out = {}
    for least in DOCUMENTS:
        for share in SHARES:
            sums: Counter[tuple[str, str, bool]] = Counter()
            for page in found:
                if page["record"] not in main:
                    continue
                large = "large" if hosts[page["host"]] >= least else "small"
                for line in filter(None, page["lines"]):
                    kind = "main" if line in main[page["record"]] else "around"
                    number = counts[page["host"], line]
                    sums[large, kind, number >= least and number >= share * hosts[page["host"]]] += len(line)
            shown = {}
            for kind in ("main", "around"):
                gone = sums["large", kind, True]
                for name, of in (("of_all", ("large", "small")), ("of_large_hosts", ("large",))):
                    total = sum(sums[one, kind, flag] for one in of for flag in (True, False))
                    shown[f"{kind}_{name}"] = round(gone / max(1, total), 4)
            out[f"documents_min {least}, share_min {share}"] = shown
    return {
        "pages": len(found),
        "labelled": sum(page["record"] in main for page in found),
        "hosts": len(hosts),
        "removed": out,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="results/main of a run over the labelled crawl")
    parser.add_argument("--texts", type=Path, required=True, help="the labelled main texts")
    args = parser.parse_args(argv)
    print(json.dumps(measure(pages(args.results), texts(args.texts)), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
