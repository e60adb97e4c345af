"""Compare a run's results with a labelled crawl: extraction, charsets, language identification and duplicates.

    python -m benchmarks.gold --results results/main --gold crawl.gold.tsv --texts crawl.gold_text.jsonl.zst

`--gold` has a row for each WARC record: record_id, variant, dup_of, jaccard5_p_blocks, lang, body_charset. `--texts` has record_id
and gold_text (HTML paragraphs). F1 is that of words as multisets, averaged over pages. A duplicate found is a gold duplicate that is
dropped, or whose original is, with the other of the pair as a duplicate; precision counts drops that stay in their gold family.
"""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.formats.documents import rows

WORD = re.compile(r"\w+")
TAG = re.compile(r"<[^>]+>")


def shards(results: Path, step: str, suffix: str = ".parquet") -> Iterator[Path]:
    """The data files of a sharded step."""
    return (path for path in sorted((results / step).glob(f"*{suffix}")) if re.fullmatch(r"\d{5}\.parquet", path.name))


def f1(found: str, gold: str) -> float:
    """F1 of the words of two texts as multisets."""
    one, other = Counter(WORD.findall(found.lower())), Counter(WORD.findall(gold.lower()))
    common = sum((one & other).values())
    return 2 * common / (sum(one.values()) + sum(other.values())) if common else 0.0


def labels(path: Path) -> dict[str, dict[str, str]]:
    """The rows of `--gold` by WARC record."""
    with path.open(encoding="utf-8", newline="") as handle:
        return {row["record_id"]: row for row in csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)}


def plain(markup: str) -> str:
    """HTML without its tags."""
    return TAG.sub(" ", markup)


def texts(path: Path, as_text: Callable[[str], str] = plain) -> dict[str, str]:
    """The texts of `--texts` by WARC record, without tags."""
    stream = io.TextIOWrapper(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"), encoding="utf-8")
    found = map(json.loads, stream)
    return {row["record_id"]: html.unescape(as_text(row["gold_text"])) for row in found}


def extracted(results: Path) -> dict[str, str]:
    """The texts of a run's documents by WARC record."""
    found = (row for path in shards(results, "ingest/extract") for row in rows(path, ["text", "metadata"]))
    return {json.loads(row["metadata"]).get("record_id", ""): row["text"] for row in found}


def measured(results: Path, gold: dict[str, dict[str, str]], texts: dict[str, str]) -> dict[str, Any]:
    """All figures of a run."""
    record_of, scores, text_of = {}, [], {}
    for path in shards(results, "ingest/extract"):
        for row in rows(path, ["id", "text", "metadata"]):
            record = json.loads(row["metadata"]).get("record_id", "")
            if record not in gold:
                continue
            record_of[row["id"]], text_of[record] = record, len(row["text"])
            if record in texts and gold[record]["variant"] == "original":
                scores.append(f1(row["text"], texts[record]))
    right = total = 0
    confusion: Counter[str] = Counter()
    for path in shards(results, "language/score"):
        for row in rows(path):
            label = gold.get(record_of.get(row["id"], ""), {}).get("lang", "")
            if label and row["characters"] >= 200:
                total += 1
                right += row["language"] == label
                if row["language"] != label:
                    confusion[f"{label} as {row['language']}"] += 1
    return {
        "extraction": {"pages": len(scores), "mean_f1": round(sum(scores) / max(len(scores), 1), 4)},
        "language": {
            "pages of 200 characters or more": total,
            "accuracy": round(right / max(total, 1), 4),
            "errors": dict(confusion.most_common(8)),
        },
        "duplicates": duplicates(results, gold, record_of),
    }


def duplicates(results: Path, gold: dict[str, dict[str, str]], record_of: dict[str, str]) -> dict[str, Any]:
    """Recall by gold variant among pairs of which both pages reached deduplication, and precision of the drops."""
    by_url = {row["url"].strip(): record for record, row in gold.items()}  # dup_of is the original's URL
    original_of = {record: by_url.get(row["dup_of"].strip(), "") for record, row in gold.items()}
    family = {record: original_of[record] or record for record in gold}
    judged, dropped = set(), {}
    for path in shards(results, "dedup/select"):
        for row in rows(path, ["id", "kept", "duplicate_of", "similarity", "rule"]):
            if row["id"] in record_of:
                judged.add(record_of[row["id"]])
                if not row["kept"]:
                    dropped[record_of[row["id"]]] = record_of.get(row["duplicate_of"], "")
    recall: dict[str, Counter[str]] = {}
    for record, row in gold.items():
        original = original_of[record]
        if not original or record not in judged or original not in judged:
            continue
        similar = float(row["jaccard5_p_blocks"] or 0)
        name = row["variant"]
        if name != "exact-dup":
            name += " ≥ 0.8" if similar >= 0.8 else " < 0.8"
        pair = recall.setdefault(name, Counter())
        pair["pairs"] += 1
        pair["found"] += record in dropped or original in dropped
    inside = sum(family[one] == family.get(other, "") for one, other in dropped.items())
    return {
        "judged": len(judged),
        "dropped": len(dropped),
        "dropped within a gold family": inside,
        "recall": {name: dict(pair) for name, pair in sorted(recall.items())},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/main"))
    parser.add_argument("--gold", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    args = parser.parse_args(argv)
    print(json.dumps(measured(args.results, labels(args.gold), texts(args.texts)), indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
