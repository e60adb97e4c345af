"""The documents of html5lib-tests' tree construction, and the text that each tree shows a reader.

    python -m tests.unit.stages.ingest.tree_construction

prints, of the documents without fragments and `#script-on`, how many `fast` has the text of, and each other document.
The format is that of https://github.com/html5lib/html5lib-tests/blob/9329e64/tree-construction/README.md.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.markup import parse_page, read_markup

CASES = Path(os.environ.get("CRAWL2LLM_CASES", ROOT.parent / "shared" / "cases"))
SUITE = CASES / "html5lib" / "html5lib-tests-9329e64.tar.zst"
SECTIONS = frozenset(
    ["#errors", "#new-errors", "#document-fragment", "#script-off", "#script-on", "#document"]
)  # behind "#data"
NODE = re.compile(r"(?:^|\n)\| ")

# No reader sees the text of these: https://html.spec.whatwg.org/multipage/rendering.html#hidden-elements, with one exception. `rp` has the
# brackets around a reading that cannot be set above its word, as in plain text. No <dialog> of the suite is open.
HIDDEN = frozenset(["datalist", "dialog", "head", "noembed", "noframes", "script", "style", "template", "title"])
# What `fast` leaves out besides: pictures and other embedded things, of which the text is a label or stands in for what cannot be shown,
# what a form offers or is filled in with, and a formula in another notation.
LEFT_OUT = frozenset(
    ["svg svg", "math annotation-xml", "iframe", "object", "audio", "video", "canvas", "select", "textarea"]
)


@dataclass(frozen=True)
class Document:
    """A document of the suite. name: its file and its number there, from 1. text: what its tree shows, without white space."""

    name: str
    page: str
    text: str


def sections(file: str) -> Iterator[dict[str, str]]:
    """The tests of a .dat file: each section by its heading."""
    test: dict[str, list[str]] = {}
    heading = ""
    for line in file.split("\n"):
        if line == "#data" and (not test or heading == "#document"):
            if test:
                yield {name: "\n".join(lines) for name, lines in test.items()}
            heading, test = line, {line: []}
        elif line in SECTIONS and heading != "#document":
            heading = line
            test[heading] = []
        else:
            test[heading].append(line)
    yield {name: "\n".join(lines) for name, lines in test.items()}


def shown(tree: str) -> str:
    """The text of a tree (the section `#document`) that a reader sees, in its order, without white space."""
    out: list[str] = []
    around: list[str] = []  # the elements around a node, the outermost first
    for node in NODE.split(tree.rstrip("\n"))[1:]:
        line = node.lstrip(" ")
        depth = (len(node) - len(line)) // 2
        del around[depth:]
        if line.startswith('"'):
            if not (HIDDEN | LEFT_OUT).intersection(around):
                out.append(line[1:-1])
        else:  # an attribute or a comment has no nodes below it
            around.append(line.strip("<>"))
    return without_space("".join(out))


def without_space(text: str) -> str:
    """The text without white space: blocks have none at their ends."""
    return "".join(text.split())


def documents() -> Iterator[Document]:
    """All documents of the suite without fragments and `#script-on`. Raises OSError if the suite is not there."""
    with tarfile.open(fileobj=pa.CompressedInputStream(pa.OSFile(str(SUITE)), "zstd"), mode="r|") as archive:
        for member in archive:
            if member.name.endswith(".dat") and "tree-construction/" in member.name:
                stream = archive.extractfile(member)
                assert stream is not None
                for number, test in enumerate(sections(stream.read().decode()), 1):
                    if "#document-fragment" not in test and "#script-on" not in test:
                        name = f"{member.name.partition('tree-construction/')[2]} {number}"
                        yield Document(name, test["#data"], shown(test["#document"]))


def block_texts(page: str) -> list[str]:
    """The texts of all blocks of a page."""
    return read_markup(parse_page(page)).text


def differing() -> tuple[int, list[tuple[Document, str]]]:
    """(number of documents, those whose blocks have another text, with it)."""
    every = list(documents())
    texts = [without_space("".join(block_texts(each.page))) for each in every]
    return len(every), [(each, text) for each, text in zip(every, texts, strict=True) if text != each.text]


def main() -> int:
    count, others = differing()
    for document, text in others:
        print(f"{document.name}: {document.page!r}\n  the tree shows {document.text!r}, the blocks have {text!r}")
    print(f"{count - len(others)} of {count} documents ({(count - len(others)) / count:.1%})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
