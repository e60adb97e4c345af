"""Held-out splits by origin: all pieces of one book, and all pages of one host, are on the same side, and so is what a model wrote of them.

A split by document would leave pieces of a book, or pages that share a site's boilerplate and authors, on both sides, and
what is measured on the held-out side would look better than it is on text that the model never saw.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from crawl2llm.core.console import format_quantity
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.text.normal_forms import normal_form

COLUMNS = ["id", "url", "metadata"]  # of a document, for `origin`
# the scheme of the URL of a text that a model wrote, and the key of its metadata that says of what
SYNTHESIZED = "synthesized"
MOST = 1.5  # times the wanted share: an origin that would take the held-out side beyond that stays in training
LARGEST = 0.2  # share of all documents: the most that is held out where every origin is larger than wanted
MANY = 0.5  # share of the documents in origins that are too large to be held out, from which a note says so

# A URL without a scheme: a host with a dot, whose last label is a word, then a port, a path or nothing. So no number
# (`10.1000/182`), no `urn:isbn:1`, no `mailto:`.
BARE_URL = re.compile(
    r"//|(?:[\w-]+\.)+(?P<last>xn--[\w-]+|[^\W\d_]{2,})\.?(?=[:/?#]|$)(?!:(?!\d+(?:[/?#]|$)))", re.IGNORECASE
)
# Last labels that are a file's suffix, as in `novel.txt`, which names a document and no host.
SUFFIXES = re.compile(
    "csv|docx?|epub|gz|html?|jsonl?|parquet|pdf|php|rtf|tar|tex|tsv|txt|xhtml|xml|ya?ml|zst", re.IGNORECASE
)


def url_host(url: str) -> str | None:
    """The host of a URL, with or without a scheme; None if it has none.

    Without its port, a leading `www.` and the dot of the root; international names in Unicode, whichever form the URL
    has.
    """
    url = url.strip()
    bare = BARE_URL.match(url)
    if bare and not SUFFIXES.fullmatch(bare["last"] or ""):
        url = "//" + url.removeprefix("//")
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:  # such as http://[::1
        return None
    if not name.isascii() or "xn--" in name:
        # Not by the codec `idna`: it makes `ss` of `ß`, which is another host.
        name = normal_form("NFKC", ".".join(map(_unicode_label, re.split("[.。]", name))).lower())
    return name.rstrip(".").removeprefix("www.") or None


def _unicode_label(label: str) -> str:
    # The codec takes quadratic time, and no label of the DNS has more than 63 characters.
    if not label.startswith("xn--") or len(label) > 63:
        return label
    try:
        name = label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
    return name if name.isprintable() else label  # such as a lone surrogate, which cannot be hashed


def synthesis_source(row: dict[str, Any]) -> dict[str, Any] | None:
    """What a text was made from that a model wrote (stages/synthesize): `seed`, a document's id, its `origin` and more; None for others.

    row: a document's `url` and `metadata`.
    """
    if not (row["url"] or "").startswith(f"{SYNTHESIZED}:"):
        return None
    source = json.loads(row["metadata"] or "{}").get(SYNTHESIZED)
    return dict(source) if isinstance(source, dict) else None


def origin_of(row: dict[str, Any]) -> str:
    """Where a document comes from: a page's host, the file of a piece of a book, else the document itself; of what a model wrote of
    a document, where that comes from.

    row: a document's `id`, `url` and `metadata`. A row of JSON Lines without a URL is a document of its own, and so is a
    text that was not cut (`metadata` has no `piece`).
    """
    if source := synthesis_source(row):
        return str(source["origin"])
    url = row["url"] or ""
    if url.startswith("file:"):
        cut = "piece" in json.loads(row["metadata"] or "{}")
        return url.rpartition("#")[0] if cut else row["id"]
    return url_host(url) or row["id"]


@dataclass
class Tally:
    """What decides a split, counted over documents."""

    documents: int = 0
    sizes: dict[float, int] = field(default_factory=dict)  # hash of an origin → its documents
    least: float = 1.0  # the lowest hash of a document
    most: float = 0.0  # the highest
    at_least: int = 0  # documents of that hash: those made from one document have the same
    at_most: int = 0
    below: int = 0  # documents whose hash is below the share to hold out

    def add_document(self, own_hash: float, origin_hash: float | None, fraction: float) -> None:
        """Count a document. own_hash: its hash. origin_hash: that of its origin, where the split is by origin."""
        self.documents += 1
        self.at_least = 1 if own_hash < self.least else self.at_least + (own_hash == self.least)
        self.at_most = 1 if own_hash > self.most else self.at_most + (own_hash == self.most)
        self.least, self.most = min(self.least, own_hash), max(self.most, own_hash)
        self.below += own_hash < fraction
        if origin_hash is not None:
            self.sizes[origin_hash] = self.sizes.get(origin_hash, 0) + 1

    def held_out_by_hash(self, fraction: float) -> int:
        """How many documents are held out by their own hashes: see Split.holds."""
        if self.least == self.most:
            return 0
        return self.documents - self.at_most if self.most < fraction else self.below or self.at_least


@dataclass
class _Choice:
    fraction: float
    seed: int
    by: str = "origin"


@dataclass
class Split(Tally, _Choice):
    """Which documents are held out, about `fraction` of them: `add` every document, `decide`, then ask `is_held_out`.

    by: `origin` or `document`. The choice is made by the hash of (seed, origin or id) alone, never by the order in which the
    documents come. Memory: about 150 bytes an origin. What a model wrote of a document is on that document's side, and has no say in the
    choice: with and without such texts the same documents are held out. Only if there are no others do they decide, by what they are
    made from. `documents` counts those that decide.
    """

    synthesized: Tally = field(default_factory=Tally)  # of texts that a model wrote
    held_origins: set[float] = field(default_factory=set)
    summary: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences for the report, where the split is not as asked for

    def _own_hash(self, row: dict[str, Any]) -> float:
        source = synthesis_source(row)
        return uniform_hash(self.seed, str(source["seed"]) if source else row["id"], "split")

    def add(self, row: dict[str, Any]) -> None:
        """Count a document (columns: COLUMNS)."""
        origin_hash = uniform_hash(self.seed, origin_of(row), "split") if self.by == "origin" else None
        (self.synthesized if synthesis_source(row) else self).add_document(
            self._own_hash(row), origin_hash, self.fraction
        )

    def decide(self, noun: str = "documents") -> None:
        """Choose the origins, and fill `summary` and `notes`. noun: how a note calls the documents.

        Origins are taken in the order of their hashes until they hold `fraction` of the documents; one that would take them
        beyond MOST times that stays in training. Where none fits, the smallest is held out if it is at most LARGEST of
        all; else the split is by document. Of two documents or more at least one is held out and one is not.
        """
        if not self.documents:
            for each in fields(Tally):
                setattr(self, each.name, getattr(self.synthesized, each.name))
        wanted, number = self.fraction * self.documents, 0
        room = min(MOST * wanted, self.documents - 1)
        if self.by == "origin" and wanted:
            for place, size in sorted(self.sizes.items()):
                if number < wanted and number + size <= room:
                    self.held_origins.add(place)
                    number += size
            size, place = min(((size, place) for place, size in self.sizes.items()), default=(0, 0.0))
            if not self.held_origins and size <= min(LARGEST * self.documents, self.documents - 1):
                self.held_origins, number = {place}, size
        large = [size for size in self.sizes.values() if size > room]
        wanted_by, self.by = self.by, "origin" if self.held_origins else "document"
        if self.by == "document" and wanted:
            number = self.held_out_by_hash(self.fraction)
        share = number / max(self.documents, 1)
        self._add_note(noun, wanted_by, share, sum(large))
        self.summary = {
            "by": self.by,
            "documents": self.documents,
            "origins": len(self.sizes) if wanted_by == "origin" else None,
            "too_large": {"origins": len(large), "documents": sum(large)} if self.held_origins else None,
            "heldout": {"documents": number, "origins": len(self.held_origins) or None, "fraction": round(share, 6)},
        }

    def _add_note(self, noun: str, wanted_by: str, share: float, large: int) -> None:
        if wanted_by == "origin" and self.by == "document" and share:
            number = len(self.sizes)
            self.notes.append(
                f"The {self.documents:,} {noun} come from {format_quantity(number, 'origin')} (hosts or files), too large to "
                "hold one out: they are split by document, and both sides share origins."
            )
        elif self.held_origins and share > MOST * self.fraction:
            self.notes.append(f"{share:.1%} of the {noun} are held out, not {self.fraction:.1%}: no origin is smaller.")
        elif self.held_origins and large >= MANY * self.documents:
            self.notes.append(
                f"{large / self.documents:.0%} of the {noun} come from origins (hosts or files) too large to be held "
                f"out: measurements on held-out text say little about them."
            )
        elif self.fraction and not share:
            self.notes.append(f"None of the {noun} is held out: there are {self.documents}.")

    def is_held_out(self, row: dict[str, Any]) -> bool:
        """Whether a document (columns: COLUMNS) is held out."""
        if self.by == "origin":
            return uniform_hash(self.seed, origin_of(row), "split") in self.held_origins
        own_hash = self._own_hash(row)
        return self.fraction > 0 and own_hash != self.most and (own_hash < self.fraction or own_hash == self.least)
