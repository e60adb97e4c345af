"""What a page's blocks look like, in whole numbers: their text, the elements around them, their neighbours, and where they stand.

All are integers, so a decision does not depend on how a processor rounds. They are computed by the compiled part
(stages/ingest/native/measures.pxi), which takes the tables from here. `first` measures a page; `second` looks at the scores that the first
forest gave its blocks: those of the neighbours, and of the elements around.
"""

from __future__ import annotations

import sys
from array import array

from crawl2llm.stages.ingest import compiled
from crawl2llm.stages.ingest.markup import Markup, parse_page, read_markup
from crawl2llm.stages.ingest.tags import AROUND, CODE, GROUPS

# The bits of what elements say, and two measures of each: of the four elements around a block, and of all.
BITS = [*GROUPS, "hidden", *(f"<{name}>" for name in AROUND)]
NAMES = tuple((f"near {name}", f"in {name}") for name in BITS)
HEADINGS = CODE["h1"], CODE["h6"]


def _character_kinds() -> bytes:
    """Of each character: digit, upper case, space, end of a sentence, comma, separator, a bit each."""
    out = bytearray(65536)
    for number in range(0x3000):
        character = chr(number)
        out[number] = character.isdigit() | character.isupper() << 1 | character.isspace() << 2
    for bit, characters in enumerate((".!?…。！？।۔", ",;:、，；：—–", "|»«›‹•·/>→@#©"), 3):
        for character in characters:
            out[ord(character)] |= 1 << bit
    return bytes(out)


KINDS = _character_kinds()


def compiled_page(markup: Markup) -> compiled.Page:
    """The page whose blocks are measured. markup: with at least one block."""
    return compiled.Page(markup, sys.modules[__name__])


def measure_names() -> tuple[list[str], list[str]]:
    """Of all measures: of `first`, and of `second`."""
    sample = compiled_page(read_markup(parse_page("<p>one")))
    return sample.first(None, None), sample.second(array("q", [0]), None, None)
