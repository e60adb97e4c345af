"""The main text of a page, by our own blocks or a library, within bounds of work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from scripts.ingest import blocks, markdown
from scripts.ingest.bounds import too_hard, too_many_items
from scripts.ingest.compiled import Tree
from scripts.ingest.markup import tokens
from scripts.ingest.nesting import DEPTHS, Bound, open_elements, too_deep

# (page, its tree, main content only) -> text
Extract = Callable[[str, Tree, bool], str]
NEEDS = {"trafilatura": "pip install trafilatura==2.3.1 lxml_html_clean==0.4.6"}


class TooHard(ValueError):
    """A page on which a library would work too long. reason: as it is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def _bounded(parts: list[str]) -> Bound:
    bound = open_elements(parts)
    reason, detail = too_hard(parts, bound)
    if reason:
        raise TooHard(reason, detail)
    return bound


def fast(page: str, tree: Tree, main: bool) -> str:
    """By our own blocks. Raises TooHard."""
    try:
        return blocks.text(tree, main)
    except blocks.TooManyBlocks as many:
        raise TooHard("too_complex", str(many)) from many


def fast_markdown(page: str, tree: Tree, main: bool) -> str:
    """The same, as Markdown. Raises TooHard."""
    try:
        return blocks.text(tree, main, markdown.text)
    except blocks.TooManyBlocks as many:
        raise TooHard("too_complex", str(many)) from many


def resiliparse(page: str, tree: Tree, main: bool) -> str:
    """By Resiliparse. Raises TooHard."""
    parts = tokens(page)
    bound = _bounded(parts)
    parsed = HTMLTree.parse(page)
    if too_deep(parsed, len(parts) // 6, bound):
        raise TooHard("too_deep", f"the depths of all nodes and characters make over {DEPTHS:,}")
    text: str = extract_plain_text(parsed, main_content=main, alt_texts=False)
    return text


def _trafilatura(page: str) -> Any:
    """The library, for a page within its bounds. Raises TooHard."""
    parts = tokens(page)
    _bounded(parts)
    if why := too_many_items(parts):
        raise TooHard("too_complex", why)
    import trafilatura as library  # optional, and 0.5 s to import

    return library


def trafilatura(page: str, tree: Tree, main: bool) -> str:
    """By trafilatura, without comments. Raises TooHard."""
    library = _trafilatura(page)
    if not main:
        return str(library.html2txt(page))
    return library.extract(page, include_comments=False) or ""


def trafilatura_markdown(page: str, tree: Tree, main: bool) -> str:
    """By trafilatura, as the Markdown that it writes. Raises TooHard."""
    library = _trafilatura(page)
    return library.extract(page, include_comments=False, output_format="markdown", include_formatting=True) or ""


EXTRACTORS: dict[str, Extract] = {"fast": fast, "resiliparse": resiliparse, "trafilatura": trafilatura}
MARKDOWN: dict[str, Extract] = {"fast": fast_markdown, "trafilatura": trafilatura_markdown}


def missing(name: str) -> str:
    """What to do where an extractor is not installed, else ""."""
    if name in NEEDS and importlib.util.find_spec(name) is None:
        return f"ingest.extract.extractor is {name}, which is not installed: {NEEDS[name]}"
    return ""
