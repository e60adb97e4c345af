"""Blocks as Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.stages.ingest import markdown
from crawl2llm.stages.ingest.markup import parse_page, read_markup
from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.warcs import http, one


def of(page: str) -> str:
    markup = read_markup(parse_page(page))
    return markdown.markdown_text(markup, range(len(markup.text)))


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h1>A</h1><p>b <a href=x>c</a></p><h3>D<br>e</h3><p>f", "# A\n\nb c\n\n### D e\n\nf"),
        ("<ul><li>a<li>b<ul><li>c<li>d</ul><li>e</ul><p>f", "- a\n- b\n  - c\n  - d\n- e\n\nf"),
        ("<ol><li>a<li><p>b</p><p>c</p></ol>", "1. a\n2. b\n\n   c"),
        ("<ul><li><pre>x\n y</pre></ul>", "- ```\n  x\n   y\n  ```"),
        ("<pre>a\n```\nb</pre>", "````\na\n```\nb\n````"),
        ("<blockquote><p>a<br>b</p><p>c</p></blockquote>d", "> a\n> b\n>\n> c\n\nd"),
        ("<blockquote><ul><li>a<li>b</ul></blockquote>", "> - a\n> - b"),
        (
            "<table><tr><th>a<th>b|c<tr><td>1<td><tr><td><p>3</p><td>4</table>d",
            "| a | b\\|c |\n| --- | --- |\n| 1 |  |\n| 3 | 4 |\n\nd",
        ),
        ("<table><tr><td>a</table><table><tr><td><p>b</p><p>c</p><td>d</table>", "a\n\nb\n\nc\n\nd"),
        ("<table><tr><td>a<td><table><tr><td>b<td>c</table></table>", "a\n\n| b | c |\n| --- | --- |"),
        ("<p># a<p>1. b<p>- c<br>+ d<p>&gt; e<p>---<p>#f 1.2 -g *h*", "\\# a\n\n1\\. b\n\n\\- c\n\\+ d\n\n\\> e\n\n\\---\n\n#f 1.2 -g *h*"),
        ("<p>a<br>=<p>b<br>-", "a\n\\=\n\nb\n\\-"),
        (f"<table><tr><td>a<td>{'b' * 301}</table>", "a\n\n" + "b" * 301),
        ("<ol start=9 type=i><li>a<li value=3><p>b</p><p>c</p></ol>", "ix. a\niii. b\n\n     c"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_written(page: str, text: str) -> None:
    assert of(page) == text


@pytest.mark.parametrize("piece", ["<div>x", "<blockquote>x", "<ul><li>x", "<table><tr><td>x", "<pre>x\n"])
def test_what_is_nested_costs_no_more(piece: str) -> None:
    """In proportion to the page; with quadratic work it would be gigabytes."""
    assert len(of(piece * 20_000)) < 2_000_000


def test_a_page_of_a_crawl(tmp_path: Path) -> None:
    words = "Some words of a sentence that is long enough to be the main text of a page, as it ends here. " * 3
    page = f"<article><h2>Heading</h2><p>{words}</p><p>{words}</p><pre>  x = 1\n\n\ny</pre><p>{words}</p></article>"
    found = one(tmp_path, http(page.encode()), markup="markdown", main_content=False)
    assert isinstance(found, Page)
    assert found.text.startswith("## Heading\n\nSome") and "\n\n```\n  x = 1\n\n\ny\n```\n\n" in found.text
