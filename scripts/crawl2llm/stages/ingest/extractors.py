"""The main text of a page that is within the bounds of work (bounds.py), by our own blocks or a library."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from crawl2llm.stages.ingest import blocks, markdown
from crawl2llm.stages.ingest.compiled import Tree

# (page, its tree, main content only) -> text
Extract = Callable[[str, Tree, bool], str]
NEEDS = {"trafilatura": "pip install trafilatura==2.3.1 lxml_html_clean==0.4.6"}


class PageTooComplexError(ValueError):
    """A page that has too much to judge. reason: as it is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def fast_text(page: str, tree: Tree, main: bool) -> str:
    """By our own blocks. Raises PageTooComplexError."""
    try:
        return blocks.page_text(tree, main)
    except blocks.BlockLimitError as many:
        raise PageTooComplexError("too_complex", str(many)) from many


def fast_markdown(page: str, tree: Tree, main: bool) -> str:
    """The same, as Markdown. Raises PageTooComplexError."""
    try:
        return blocks.page_text(tree, main, markdown.markdown_text)
    except blocks.BlockLimitError as many:
        raise PageTooComplexError("too_complex", str(many)) from many


def resiliparse_text(page: str, tree: Tree, main: bool) -> str:
    """By Resiliparse."""
    text: str = extract_plain_text(HTMLTree.parse(page), main_content=main, alt_texts=False)
    return text


def trafilatura_text(page: str, tree: Tree, main: bool) -> str:
    """By trafilatura, without comments."""
    import trafilatura as library  # optional, and 0.5 s to import

    if not main:
        return str(library.html2txt(page))
    return library.extract(page, include_comments=False) or ""


def trafilatura_markdown(page: str, tree: Tree, main: bool) -> str:
    """By trafilatura, as the Markdown that it writes."""
    import trafilatura as library

    return library.extract(page, include_comments=False, output_format="markdown", include_formatting=True) or ""


EXTRACTORS: dict[str, Extract] = {"fast": fast_text, "resiliparse": resiliparse_text, "trafilatura": trafilatura_text}
MARKDOWN: dict[str, Extract] = {"fast": fast_markdown, "trafilatura": trafilatura_markdown}


def missing_extractor(name: str) -> str:
    """What to do where an extractor is not installed, else ""."""
    if name in NEEDS and importlib.util.find_spec(name) is None:
        return f"ingest.extract.extractor is {name}, which is not installed: {NEEDS[name]}"
    return ""
