"""Pages with gold main text from three sets, and the measures of an extraction that the sets' authors use.

None of the sets is part of the project. `--articles`: a clone of github.com/scrapinghub/article-extraction-benchmark (181 articles).
`--types`: one of github.com/Murrough-Foley/web-content-extraction-benchmark (WCXB: 2,008 pages of seven types). `--crawl`: a folder with
WARC files, their `*.gold.tsv` and `*.gold_text.jsonl.zst` (see benchmarks/gold.py).

A fourth is only fitted on, so no page of it is held: github.com/AndyTheFactory/article-extraction-dataset (421 articles of 2023).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import mean
from urllib.parse import urlsplit

import pyarrow as pa

from benchmarks.gold import TAG
from scripts.ingest.charsets import decode_text
from scripts.ingest.warc import Rejected, WarcReader, joined

WORD = re.compile(r"\w+")


@dataclass
class GoldPage:
    """A page and its main text. kind: the type of the page in WCXB, the language in a crawl. held: kept out of fitting."""

    source: str
    kind: str
    host: str
    held: bool
    page: str
    gold: str


def host(url: str) -> str:
    """The last two labels of a URL's host, or three where the last two are short (`co.uk`)."""
    labels = (urlsplit(url).hostname or url).split(".")
    return ".".join(labels[-3:] if len(labels[-1]) == 2 and len(labels[-2:][0]) <= 3 else labels[-2:])


def second_half(name: str) -> bool:
    """Whether a host is in the half that is kept out of fitting."""
    return sha256(name.encode()).digest()[0] % 2 == 1


def articles(folder: Path) -> Iterator[GoldPage]:
    """Articles of the article extraction benchmark."""
    for name, row in sorted(json.loads((folder / "ground-truth.json").read_text(encoding="utf-8")).items()):
        page, _, _ = decode_text(gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()), None)
        where = host(row.get("url") or name)
        yield GoldPage("articles", "en", where, second_half(where), page, row.get("articleBody", ""))


def news(folder: Path) -> Iterator[GoldPage]:
    """Articles of the article extraction dataset; three of the 424 have no page."""
    for name, row in sorted(json.loads((folder / "articles.json").read_text(encoding="utf-8")).items()):
        path = folder / "html" / f"{name}.html"
        if path.exists():
            page, _, _ = decode_text(path.read_bytes(), None)
            yield GoldPage("news", "en", host(row["url"]), False, page, row["articleBody"])


def types(folder: Path) -> Iterator[GoldPage]:
    """Pages of WCXB; those of its test split are held."""
    for split in ("dev", "test"):
        for path in sorted((folder / split / "ground-truth").glob("*.json")):
            row = json.loads(path.read_text(encoding="utf-8"))
            page = gzip.decompress((folder / split / "html" / f"{path.stem}.html.gz").read_bytes()).decode(
                "utf-8", "replace"
            )
            kind = row.get("_internal", {}).get("page_type", {}).get("primary", "")
            gold = row["ground_truth"].get("main_content") or ""
            yield GoldPage("types", kind, host(row.get("url") or path.stem), split == "test", page, gold)


class Bodies(WarcReader):
    """Decodes the pages of a WARC file, and does not extract their text."""

    def html(self, record, body, declared, facts):  # type: ignore[no-untyped-def]
        charset = re.search(r"charset\s*=\s*([^;\s]+)", declared, re.IGNORECASE)
        self.found[record.record_id] = decode_text(body, charset.group(1) if charset else None)[0]
        return Rejected("gold", record.record_id or "", "")


def crawl(folder: Path) -> Iterator[GoldPage]:
    """The original pages of a labelled crawl that have gold text."""
    labels, texts = {}, {}
    for path in sorted(folder.glob("*.gold.tsv")):
        with path.open(encoding="utf-8", newline="") as handle:
            labels |= {row["record_id"]: row for row in csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)}
    for path in sorted(folder.glob("*.gold_text.jsonl.zst")):
        for line in io.TextIOWrapper(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"), encoding="utf-8"):
            row = json.loads(line)
            texts[row["record_id"]] = joined(html.unescape(TAG.sub(" ", row["gold_text"])))
    reader = Bodies({"name": "gold"}, {"max_body_bytes": 20_000_000})
    for path in sorted(folder.glob("*.warc.gz")):
        reader.found = {}  # type: ignore[attr-defined]
        for _ in reader(path):
            pass
        for record, page in reader.found.items():  # type: ignore[attr-defined]
            if record in texts and labels[record]["variant"] == "original":
                where = host(labels[record]["url"])
                yield GoldPage("crawl", labels[record]["lang"], where, second_half(where), page, texts[record])


def options(parser: argparse.ArgumentParser) -> None:
    """Where the sets lie; one that is not given is left out."""
    parser.add_argument("--articles", type=Path, help="a clone of article-extraction-benchmark")
    parser.add_argument("--types", type=Path, help="a clone of web-content-extraction-benchmark (WCXB)")
    parser.add_argument("--crawl", type=Path, help="a folder with WARC files and gold text")


def pages(args: argparse.Namespace) -> list[GoldPage]:
    """All pages of the sets that are given. Raises SystemExit where there is none."""
    out: list[GoldPage] = []
    for name, read in (("articles", articles), ("types", types), ("crawl", crawl)):
        folder = getattr(args, name)
        if folder is None or not folder.is_dir():
            print(f"{name}: skipped, {'no folder given' if folder is None else f'no folder {folder}'}")
            continue
        out += read(folder)
    if not out:
        raise SystemExit("no pages: give at least one of --articles, --types, --crawl")
    return out


def grams(text: str, size: int = 4) -> Counter[tuple[str, ...]]:
    """Runs of so many words, as a multiset; of a shorter text all its words."""
    words = WORD.findall(text)
    return Counter(tuple(words[at : at + size]) for at in range(max(1, len(words) - size + 1)) if words)


def gram_f1(texts: list[tuple[str, str]]) -> dict[str, float]:
    """F1, precision and recall of 4-grams over (found, gold) pairs, as the article extraction benchmark defines them.

    Precision is the mean over pages where something was found, recall over pages with gold text, F1 is that of the two means.
    """
    precision, recall = [], []
    for found, gold in texts:
        one, other = grams(found), grams(gold)
        common = sum((one & other).values())
        if one:
            precision.append(common / sum(one.values()))
        if other:
            recall.append(common / sum(other.values()))
    both = mean(precision), mean(recall)
    return {"f1": 2 * both[0] * both[1] / (sum(both) or 1), "precision": both[0], "recall": both[1]}


def word_f1(found: str, gold: str) -> float:
    """F1 of the words of two texts as multisets."""
    one, other = Counter(WORD.findall(found.lower())), Counter(WORD.findall(gold.lower()))
    common = sum((one & other).values())
    return 2 * common / (sum(one.values()) + sum(other.values())) if common else float(not one and not other)
