"""Pages with gold main text from three sets, and the measures of an extraction that the sets' authors use.

None of the sets is part of the project. `--articles`: a clone of github.com/scrapinghub/article-extraction-benchmark (181 articles).
`--types`: one of github.com/Murrough-Foley/web-content-extraction-benchmark (WCXB: 2,008 pages of seven types). `--crawl`: a folder with
WARC files, their `*.gold.tsv` and `*.gold_text.jsonl.zst` (see benchmarks/gold.py). With `bad_byte` each page of the crawl has one byte
more, in its middle, that its charset does not have; see `spoil`.

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
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from fastwarc.warc import WarcRecord

from benchmarks.gold import TAG
from crawl2llm.stages.ingest.charsets import decode_text
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.warc import RejectedRecord, WarcReader, drop_unseen

WORD = re.compile(r"\w+")
PARAGRAPH = re.compile(rb"<p\b[^<>]*>", re.IGNORECASE)
ANY_TAG = re.compile(rb"</?[a-z][^<>]*>", re.IGNORECASE)


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


def undefined_byte(charset: str) -> bytes:
    """The highest byte that Python's codec of this charset cannot read in front of a tag; b"" if it reads all of them."""
    for number in range(255, 127, -1):
        try:
            (bytes([number]) + b"<").decode(charset)
        except UnicodeDecodeError:
            return bytes([number])
    return b""


def spoil(body: bytes, charset: str) -> bytes:
    """The body with one byte that its charset does not have, behind the `<p>` (else any tag) nearest to its middle.

    charset: what the text is written in, whatever the page declares. UTF-16 gets half of a surrogate pair. A body whose charset has a
    character for each byte (KOI8-R, ISO-8859-2) stays as it is.
    """
    if charset == "utf-16":
        half = len(body) // 4 * 2
        at = body.find(b">\0", half)
        at = len(body) if at < 0 else at + at % 2 + 2
        return body[:at] + b"\x00\xd8" + body[at:]
    ends = [tag.end() for tag in PARAGRAPH.finditer(body)] or [tag.end() for tag in ANY_TAG.finditer(body)] or [0]
    at = min(ends, key=lambda end: abs(end - len(body) // 2))
    return body[:at] + undefined_byte(charset) + body[at:]


class Bodies(WarcReader):
    """Decodes the pages of a WARC file, and does not extract their text. charsets: of the records that get a bad byte."""

    def __init__(self, charsets: dict[str, str]) -> None:
        super().__init__(ExtractSource(name="gold", kind="warc"), ExtractSettings())
        self.charsets, self.decoded = charsets, dict[str, str]()

    def page_of_html(self, record: WarcRecord, body: bytes, declared: str, facts: dict[str, Any]) -> RejectedRecord:
        name = record.record_id or ""
        charset = re.search(r"charset\s*=\s*([^;\s]+)", declared, re.IGNORECASE)
        if name in self.charsets:
            body = spoil(body, self.charsets[name])
        self.decoded[name] = decode_text(body, charset.group(1) if charset else None)[0]
        return RejectedRecord("gold", name, "")


def crawl(folder: Path, variant: str = "original", bad_byte: bool = False) -> Iterator[GoldPage]:
    """The pages of a labelled crawl that are of this variant and have gold text. `re-encoded` ones are in legacy charsets and UTF-16."""
    labels, texts = {}, {}
    for path in sorted(folder.glob("*.gold.tsv")):
        with path.open(encoding="utf-8", newline="") as handle:
            labels |= {row["record_id"]: row for row in csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)}
    for path in sorted(folder.glob("*.gold_text.jsonl.zst")):
        for line in io.TextIOWrapper(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"), encoding="utf-8"):
            row = json.loads(line)
            texts[row["record_id"]] = drop_unseen(html.unescape(TAG.sub(" ", row["gold_text"])))
    charsets = {record: row["body_charset"].removeprefix("non-utf8:") for record, row in labels.items() if bad_byte}
    source = "crawl" if variant == "original" else f"crawl, {variant}"
    for path in sorted(folder.glob("*.warc.gz")):
        reader = Bodies({record: charset for record, charset in charsets.items() if record in texts})
        for _ in reader(path):
            pass
        for record, page in reader.decoded.items():
            if record in texts and labels[record]["variant"] == variant:
                where = host(labels[record]["url"])
                yield GoldPage(source, labels[record]["lang"], where, second_half(where), page, texts[record])


def options(parser: argparse.ArgumentParser) -> None:
    """Where the sets lie; one that is not given is left out."""
    parser.add_argument("--articles", type=Path, help="a clone of article-extraction-benchmark")
    parser.add_argument("--types", type=Path, help="a clone of web-content-extraction-benchmark (WCXB)")
    parser.add_argument("--crawl", type=Path, help="a folder with WARC files and gold text")


def pages(args: argparse.Namespace, bad_byte: bool = False) -> list[GoldPage]:
    """All pages of the sets that are given, those of the crawl with a bad byte if asked for. Raises SystemExit if there is none."""
    out: list[GoldPage] = []
    for name, read in (("articles", articles), ("types", types), ("crawl", partial(crawl, bad_byte=bad_byte))):
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
