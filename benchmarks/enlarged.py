"""WARC files made from real ones, with other texts: as large a crawl as one likes for benchmarks/data_half.py.

Copy n of a page has the page's own tags and its own words, which have changed places: every word outside tags, scripts and styles
stands where another one of the same page stood, by a permutation of the copy's number and the page's address. So markup, lengths, language,
punctuation and stop words are those of real pages, and no copy is a near-duplicate of another. Real near-duplicates are among the
pages of copy 0 alone, which is the crawl itself.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

from fastwarc.warc import ArchiveIterator, WarcRecordType

from crawl2llm.stages.crawl.answers import warc_record

# What stays: elements that are no text, tags and comments, entities. What changes places: runs of letters, of any encoding.
PIECE = re.compile(rb"(?is)<(script|style|title)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>|&#?\w+;|([a-z\x80-\xff]+)")


def shuffled(page: bytes, seed: str) -> bytes:
    """The page with its words in other places."""
    words = [found[2] for found in PIECE.finditer(page) if found[2]]
    random.Random(seed).shuffle(words)  # noqa: S311
    following = iter(words)
    return PIECE.sub(lambda found: next(following) if found[2] else found[0], page)


def copied(path: Path, number: int, folder: Path) -> None:
    """Write copy `number` of a WARC file's responses into `folder`, but for those with a body that is compressed or chunked."""
    with path.open("rb") as stream, (folder / f"copy{number:03d}-{path.name}").open("wb") as out:
        for found in ArchiveIterator(stream, WarcRecordType.response, parse_http=False):
            url = found.headers.get("WARC-Target-URI") or ""
            head, gap, body = found.reader.read().partition(b"\r\n\r\n")
            if re.search(rb"(?i)\n(content|transfer)-encoding:", head):
                continue
            body = shuffled(body, f"{number} {url}")
            address = f"{url}{'&' if '?' in url else '?'}copy={number}"
            out.write(warc_record("response", address, "application/http; msgtype=response", head + gap + body))


def enlarge(paths: list[Path], copies: int, folder: Path) -> None:
    """Write the files themselves and `copies` - 1 copies of each into `folder`."""
    for path in paths:
        shutil.copyfile(path, folder / path.name)
        for number in range(1, copies):
            copied(path, number, folder)
