"""The demo's curated text: the language reference that Python carries in `pydoc_data.topics`, one document a topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from crawl2llm.core.errors import InputError

RULE = re.compile(r"^([=*\-^~\"])\1{2,}$")
SUBTITLE = re.compile(r"^-\[ (.+) \]-$")  # `-[ Footnotes ]-`
FOOTNOTE = re.compile(r"(?<=\S) \[\d+\](?=[\s.,;:)]|$)")
EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*\n]*[^*\s])?)\*{1,2}(?![\w*])")
# An indented description reads like a sentence; an indented example does not.
SENTENCE = re.compile(r"^[ ]+[A-Z\"*(][^=]*[.:][)\"]?$", re.DOTALL)
LITERAL = re.compile(r"^(\s|>>>|\+[-=]|\|)")


def is_prose(lines: list[str]) -> bool:
    """Whether a block's lines are wrapped prose: not indented, or evenly indented sentences."""
    if not any(LITERAL.match(line) for line in lines):
        return True
    even = len({len(line) - len(line.lstrip()) for line in lines}) == 1
    return even and len(lines) > 1 and ">>>" not in lines[0] and bool(SENTENCE.match("\n".join(lines)))


def strip_markup(text: str) -> str:
    """A topic without the traces of reST: underlines, emphasis, quotes around names, footnote marks, hard line ends.

    Examples, tables and grammar keep their lines.
    """
    blocks = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = [line.rstrip() for line in block.split("\n") if not RULE.match(line.strip())]
        if not lines:
            continue
        if is_prose(lines):
            joined = " ".join(" ".join(SUBTITLE.sub(r"\1", line) for line in lines).split())
            lines = [FOOTNOTE.sub("", EMPHASIS.sub(r"\1", joined))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def documents() -> Iterator[dict[str, str]]:
    """{id, text, title, url} of every topic, in the order of their names.

    Raises InputError if this Python came without pydoc_data (some distributions split it off).
    """
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise InputError(
            "crawl.render: this Python has no pydoc_data.topics, the demo's curated text "
            f"({error}); use another build of Python, or leave the source kind 'crawl' out of ingest.extract.sources"
        ) from error
    for name in sorted(topics):
        text = strip_markup(topics[name])
        first = text.split("\n", 1)[0]
        yield {
            "id": f"topic:{name}",
            "text": text,
            "title": first if len(first) < 80 else name,
            "url": f"https://reference.demo.example/{name}",
        }
