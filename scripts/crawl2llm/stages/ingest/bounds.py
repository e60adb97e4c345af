"""Pages on which a parser would take minutes or gigabytes, found before they are parsed: by counts, so no result depends on the machine.

A tag costs each parser about the same. What costs more than its size is nesting (a parser looks through the open elements at most tags),
attributes of one tag (each is compared with those before), formatting elements that are left open (each paragraph opens all of them again)
and text that is joined to text (all of it is copied). `scan_page` counts them in one pass (native/bounds.pxi), 1 ns a byte.
The counts are upper bounds: a page that is within the limits takes lexbor at most 2 s and 1 GB, whatever the page is.
"""

from __future__ import annotations

from typing import NamedTuple

from crawl2llm.stages.ingest.compiled import Scan

TAGS = 200_000  # 0.2 s and 200 MB of a tree; of 3,423 real pages (docs/stages/ingest.md) the mean is 2,000, the largest 22,000
ATTRIBUTES = 1_000_000  # 0.2 s, 300 MB; 39,000 on the worst of 3,423 real pages, as below
SQUARES = 100_000_000  # of the numbers of attributes, over all tags: 10,000 in one tag take 0.1 s; 638,000
STEPS = 100_000_000  # open elements that are looked through, 2 ns to 10 ns each: 14,000 nested ones; 11,000,000
# Formatting elements that are opened again, and their attributes: 200 bytes of a tree each; 233,000.
REOPENINGS = 2_000_000
NAMES = 100_000_000  # names that a tag or an attribute is compared with: 14,000 different ones; 9,300,000
COPIES = 200_000_000  # bytes of texts that more is joined to, none of which is freed; 8,800,000
# Bytes behind a <frameset>, a broken <svg> and the like, where only a tree tells tags from text; 1,600.
HIDDEN_BYTES = 20_000
# The libraries build a tree that is slower.
LIBRARY_TAGS = 100_000
OPTIONS = 10_000  # Resiliparse's parser goes through those before: 0.5 s for as many, 15 s for 50,000; 1,900
# Resiliparse goes through each node and its text again for most elements around it to find the main content: 2.7 ns for each byte of a
# text and element around it, NODE times as much for a node; 406,000,000 on the worst of 3,423 real pages, the next 44,000,000.
DEPTHS = 600_000_000
NODE = 12
TRAFILATURA_TAGS = 50_000  # of paragraphs: 1 s to 3 s
# Of lists and tables: for each, trafilatura goes through all. 1.4 s for 5,000, 16 s for 20,000; 2,000.
ITEMS = 5_000


class Counts(NamedTuple):
    """What is in a page at most.

    tags: and comments. squares: the sum of the squares of tags' numbers of attributes. steps: open elements that are looked through, over
    all tags, and attributes that are compared. again: formatting elements, and their attributes, that are opened again. items: of lists,
    rows and cells of tables. depths: the sum over all texts of their bytes times the elements around. names: pairs of a name and one
    before. copies: bytes of texts to which more is joined. hidden: bytes where only a tree tells tags from text; the other counts hold
    the worst of these.
    """

    tags: int
    attributes: int
    squares: int
    steps: int
    again: int
    options: int
    items: int
    depths: int
    names: int
    copies: int
    hidden: int


_SCAN = Scan()


def scan_page(page: str | bytes) -> Counts:
    """The counts of a page, or of its UTF-8. Over STEPS, REOPENINGS or NAMES the pass ends, and the others count only what is before."""
    data = page if isinstance(page, bytes) else page.encode("utf-8", "replace")
    return Counts(*_SCAN.count(data, STEPS, REOPENINGS, NAMES))


def too_hard(counts: Counts, parser: str) -> tuple[str, str]:
    """(reason, detail) of a page that is not parsed for an extractor: "fast", "resiliparse" or "trafilatura"; ("", "") for others."""
    most_tags = {"resiliparse": LIBRARY_TAGS, "trafilatura": TRAFILATURA_TAGS}.get(parser, TAGS)
    most_options = TAGS if parser == "fast" else OPTIONS
    most_items = ITEMS if parser == "trafilatura" else TAGS
    for count, most, unit in (
        (counts.tags, most_tags, "tags"),
        (counts.attributes, ATTRIBUTES, "attributes"),
        (counts.squares, SQUARES, "pairs of attributes of one tag"),
        (counts.again, REOPENINGS, "formatting elements and attributes that are opened again"),
        (counts.names, NAMES, "pairs of names"),
        (counts.copies, COPIES, "bytes of texts that are joined to others"),
        (counts.hidden, HIDDEN_BYTES, "bytes where tags and text cannot be told apart"),
        (counts.options, most_options, "options"),
        (counts.items, most_items, "items of lists, rows and cells"),
    ):
        if count > most:
            return "too_complex", f"{count:,} {unit}, at most {most:,} for {parser}"
    if counts.steps > STEPS:
        return "too_deep", f"over {STEPS:,} open elements are looked through"
    if parser == "resiliparse" and (depths := counts.depths + NODE * counts.steps) > DEPTHS:
        return "too_deep", f"the depths of all nodes and bytes make {depths:,}, at most {DEPTHS:,} for {parser}"
    return "", ""
