"""What a page says about itself."""

from __future__ import annotations

import time

import pytest

from crawl2llm.stages.ingest.head import Head, page_facts, read_head
from crawl2llm.stages.ingest.markup import parse_page

URL = "https://example.org/a/page.html"


def said(page: str) -> dict[str, str]:
    return page_facts(read_head(parse_page(page)), URL)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("<title>A &amp; B\n  C</title>", {"title": "A & B C"}),
        ("<svg></svg><TITLE>A</TITLE><title>B</title>", {"title": "A"}),
        ('<meta property="og:title" content="A">', {"title": "A"}),
        ("<title></title><meta content='A' property=og:title>", {"title": "A"}),
        ("<html lang='de-AT'>", {"title": "", "page_language": "de-at"}),
        ('<meta property="og:locale" content="pt_BR">', {"title": "", "page_language": "pt-br"}),
        ("<html lang='not a language'>", {"title": ""}),
        ("<link rel='alternate' href='/b'><link href='/c?x=1&amp;y=2' rel='Canonical'>", {"title": "", "canonical": "https://example.org/c?x=1&y=2"}),
        ("<link rel=canonical href='javascript:x'>", {"title": ""}),
        ("<link rel=canonical href='http://[x'>", {"title": ""}),
        ('<meta name="Author" content=" A  B ">', {"title": "", "author": "A B"}),
        ('<meta property="article:author" content="https://a.b/c"><meta name="dc.creator" content="C">', {"title": "", "author": "C"}),
        ('<meta property="article:published_time" content="2024-02-29T10:00:00+01:00">', {"title": "", "published": "2024-02-29"}),
        ('<meta name=date content="2024-02-30"><meta name=date content="5 Mar 2024 10:00">', {"title": "", "published": "2024-03-05"}),
        ("<time datetime='2024-03-01' itemprop=datePublished>today</time>", {"title": "", "published": "2024-03-01"}),
        ("<time datetime='2024-03-01'>of something else</time>", {"title": ""}),
        (
            '<script type="application/ld+json">{"@type": "Article", "datePublished": "2023-01-02", "author": [{"name": "D E"}], </script>',
            {"title": "", "published": "2023-01-02", "author": "D E"},
        ),
        ("<!-- <title>A</title> --><script>'<title>B</title>'</script>", {"title": ""}),
    ],
)  # fmt: skip
def test_facts(page: str, found: dict[str, str]) -> None:
    assert said(page) == found


def test_what_is_looked_at_is_bounded() -> None:
    assert len(read_head(parse_page("<meta name=a content=b>" * 20_000)).metas) == 9_999  # and <html>
    many = " ".join(f"a{number}=1" for number in range(10_000))
    begin = time.process_time()
    assert said(f"<meta {many}><title>A</title>") == {"title": "A"} and time.process_time() - begin < 1
    assert said("<title>" + "a" * 1000 + "</title>")["title"] == "a" * 300


def test_robots_are_meta_tags_by_name() -> None:
    page = "<meta name=robots content=a><META NAME=' GoogleBot' CONTENT=b><meta property=robots content=c>"
    page += "<!-- <meta name=robots content=d> -->"
    assert read_head(parse_page(page)).robots == ["a", "b"]
    assert read_head(parse_page("words")) == Head()


@pytest.mark.parametrize(
    "page",
    [
        "<meta " + "a" * 20_000 + ">" + ("<meta " + "b" * 1990 + ">") * 2000,
        '<script type="ld+json">{"author":' + " " * 190_000 + "</script>",
        '<script type="ld+json">{"author":[' + " " * 190_000 + "</script>",
        '<script type="ld+json">{"datePublished"' + " " * 190_000 + "</script>",
        f'<meta content="{"&zz" * 6000}">' * 1000,
        f"<title>{'&#32;' * 2000}</title>" * 2000,
    ],
    ids=["names", "author", "list of authors", "date", "references", "titles"],
)
def test_the_work_grows_with_the_page_and_not_with_its_square(page: str) -> None:
    """Counted in seconds only so far as minutes are told from a second."""
    begin = time.process_time()
    page_facts(read_head(parse_page(page)), "https://example.org/")
    assert time.process_time() - begin < 10
