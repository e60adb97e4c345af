"""Measures what tells text from noise, and what is left of damaged bodies.

    python -m benchmarks.text_check --data shared/data --out results/text_check.json

Real: the bodies of HTML pages and the texts below `--data`, as they are and decoded; noise: random bytes of many lengths, and the
compressed bytes of the same pages by gzip, Brotli, zstd, bzip2 and xz, without what a signature would tell (their first bytes), each
in every encoding that a guess may name. Damaged: one bit of a page in each coding is flipped, between a fifth and four fifths of it.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import brotli
import zstandard

from crawl2llm.stages.ingest import http
from crawl2llm.stages.ingest.charsets import decode_text
from crawl2llm.stages.ingest.http import DECODERS
from crawl2llm.stages.ingest.text_check import is_text, kind_of, why_not_text, wrong_characters
from crawl2llm.stages.ingest.warc import RejectedRecord, records, target_uri

ENCODINGS = (
    "utf-8", "utf-16-le", "utf-16-be", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "koi8-r", "koi8-u", "cp866", "mac-roman", "mac-cyrillic", "cp874",
    "gb18030", "big5hkscs", "cp932", "euc-jp", "iso2022-jp", "cp949",
)  # fmt: skip
PACKINGS = {
    "gzip": gzip.compress, "br": brotli.compress, "zstd": zstandard.compress, "bzip2": bz2.compress, "xz": lzma.compress,
}  # fmt: skip


def share(text: str) -> float:
    """Of a text's characters those that are none of a text."""
    return wrong_characters(text) / max(len(text), 1)


def pages(data: Path) -> Iterator[tuple[str, bytes, str]]:
    """(where it is from, body, charset of its header) of HTML responses, and of their like in ARC."""
    for path in sorted([*data.glob("crawl/*.warc.gz"), *data.glob("warc-real/*")]):
        for _, record in records(path, 100_000_000):
            headers = None if isinstance(record, RejectedRecord) else record.http_headers
            if headers is None or headers.status_code != 200 or "html" not in (headers.get("Content-Type") or ""):
                continue
            body = record.reader.read()
            if body and not headers.get("Content-Encoding") and not headers.get("Transfer-Encoding"):
                yield f"{path.name} {target_uri(record)}", body, record.http_charset or ""


def texts(data: Path) -> Iterator[tuple[str, str]]:
    """(where it is from, text) of corpora and of translations of the declaration of human rights."""
    for path in sorted([*data.glob("corpora/*.zst"), *data.glob("crawl/*.jsonl.zst")]):
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(path.open("rb")), "utf-8", "replace")
        if ".jsonl" in path.name:
            for number, line in enumerate(stream):
                row = json.loads(line)
                yield f"{path.name} {number}", str(row.get("text") or row.get("content") or "")
        elif ".tar" not in path.name:
            yield path.name, stream.read(50_000_000)
    with zipfile.ZipFile(data / "langid" / "udhr2.zip") as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield f"udhr2 {name}", archive.read(name).decode("utf-8", "replace")


def real(data: Path) -> dict[str, Any]:
    """The largest shares in real pages and texts, and what is taken for no text."""
    found, refused = [], []
    for where, body, charset in pages(data):
        text = decode_text(body, charset or None)[0]
        found.append((share(text), where))
        if why := kind_of(body) or why_not_text(text) or (None if is_text(body) else "bytes"):
            refused.append((where, why))
    number = len(found)
    for where, text in texts(data):
        if text:
            found.append((share(text), where))
            if why := why_not_text(text):
                refused.append((where, why))
    return {
        "pages": number,
        "texts": len(found) - number,
        "largest": sorted(found, reverse=True)[:12],
        "with any": sum(one[0] > 0 for one in found),
        "refused": refused,
    }


def noise(data: Path, number: int) -> dict[str, Any]:
    """By encoding the smallest share in noise of 200 bytes or more, and how much of it passes, shorter noise apart."""
    chooser = random.Random(0)  # noqa: S311 - a measurement
    bodies = [chooser.randbytes(size) for size in (20, 50, 100, 200, 500, 1000, 5000, 50_000) for _ in range(number)]
    for count, (_, body, _) in enumerate(pages(data)):
        if count < number:
            bodies += [pack(body)[24:] for pack in PACKINGS.values()]
    out: dict[str, Any] = {}
    for encoding in ENCODINGS:
        read = [(len(body), body.decode(encoding, "replace")) for body in bodies]
        long = [text for size, text in read if size >= 200]
        short = [text for size, text in read if size < 200]
        out[encoding] = {
            "smallest": min(map(share, long)),
            "passes": f"{sum(not why_not_text(text) for text in long)} of {len(long)}",
            "short passes": f"{sum(not why_not_text(text) for text in short)} of {len(short)}",
        }
    guessed = [(len(body), decode_text(body, None)) for body in bodies]
    out["guessed"] = {
        "smallest": min(share(text) for size, (text, _, _) in guessed if size >= 200),
        "passes": sum(not why_not_text(text) for size, (text, _, _) in guessed if size >= 200),
        "bytes pass": sum(is_text(body) for body in bodies if len(body) >= 200),
    }
    return out


def damaged(data: Path, number: int) -> dict[str, Any]:
    """By coding and how its decoder ended: pages, the share of its output that is not in the page (24 bytes each), median and largest."""
    chooser = random.Random(1)  # noqa: S311 - a measurement
    http.PIECE = http.SMALL  # so that little is lost of what zlib made before it noticed
    bodies = [body for _, (_, body, _) in zip(range(3 * number), pages(data), strict=False) if len(body) > 5000][
        :number
    ]
    out: dict[str, Any] = {}
    for coding, pack in PACKINGS.items():
        if coding not in DECODERS:
            continue
        found: dict[str, list[float]] = {}
        for body in bodies:
            packed = bytearray(pack(body))
            packed[chooser.randrange(len(packed) // 5, len(packed) * 4 // 5)] ^= 1 << chooser.randrange(8)
            made, end = DECODERS[coding](bytes(packed), 10**8)
            known = {body[at : at + 24] for at in range(len(body) - 23)}
            parts = [made[at : at + 24] in known for at in range(0, len(made) - 23, 8)]
            found.setdefault(end.value, []).append(1 - sum(parts) / max(len(parts), 1) if parts else 0.0)
        out[coding] = {end: [len(shares), median(shares), max(shares)] for end, shares in found.items()}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--number", type=int, default=200, help="random bodies of each length, and pages that are compressed"
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = {
        "damaged": damaged(args.data, args.number),
        "real": real(args.data),
        "noise": noise(args.data, args.number),
    }
    print(json.dumps(found, indent=1, ensure_ascii=False))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
