"""What a page says about itself: title, date, author, canonical address, language, and the rules for robots."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from email.utils import parsedate
from urllib.parse import urljoin

from crawl2llm.stages.ingest.compiled import Tree

# Names of meta tags, the most certain first.
PUBLISHED_METAS = (
    "article:published_time", "og:article:published_time", "datepublished", "og:published_time", "parsely-pub-date", "sailthru.date",
    "dcterms.created",
    "dc.date.issued", "dcterms.issued", "dc.date", "dcterms.date", "publishdate", "publish-date", "publication_date", "publish_date",
    "pubdate", "date",
)  # fmt: skip
AUTHOR = (
    "author",
    "article:author",
    "parsely-author",
    "sailthru.author",
    "dc.creator",
    "dcterms.creator",
    "byl",
    "citation_author",
)
# In JSON-LD, which need not be whole to be searched. What a pattern has taken of a run of characters it keeps (`*+`), or its time would
# grow with the square of the run's length.
LINKED_DATE = re.compile(r'"datePublished"\s*+:\s*+"([^"]{8,40})"')
LINKED_AUTHOR = re.compile(r'"author"\s*+:\s*+(?:\[\s*+)?(?:\{[^{}]{0,500}?"name"\s*+:\s*+)?"((?:[^"\\]|\\.){1,200})"')
ISO = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?!\d)")
LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")
LONGEST = 300  # characters of a title or an author
# What is looked at, so that the work stays in proportion to the page: elements, and characters of titles and JSON-LD.
ELEMENTS, CHARACTERS = 10_000, 200_000
LONG = 20_000  # bytes of an attribute's value
HEAD_TAGS = ("title", "meta", "link", "html", "time", "script")


@dataclass(slots=True)
class Head:
    """title: of the page, or what it is called where it is shared. metas: (name, content) of meta tags, names in lower case.

    robots: the contents of those called `robots`, or something that ends in `bot`. linked: JSON-LD.
    """

    title: str = ""
    metas: list[tuple[str, str]] = field(default_factory=list)
    robots: list[str] = field(default_factory=list)
    canonical: str = ""
    language: str = ""
    linked: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)

    def meta_contents(self, names: tuple[str, ...]) -> Iterator[str]:
        """Contents of the meta tags with these names, by the order of the names."""
        for wanted in names:
            for name, content in self.metas:
                if name == wanted and content.strip():
                    yield content.strip()


def read_head(tree: Tree) -> Head:
    """The head of a page. Meta tags count wherever they stand, except in comments, raw elements and templates."""
    out, room = Head(), CHARACTERS
    for name, attributes, text in tree.elements(HEAD_TAGS, ELEMENTS, LONG, CHARACTERS):
        if name == "title":
            if not out.title and room > 0:
                out.title = " ".join(text[:room].split())
                room -= len(text)
        elif name == "script":
            if room > 0:
                out.linked.append(text[:room])
                room -= len(text)
        elif name == "meta":
            for key in ("name", "property", "itemprop", "http-equiv"):
                if key in attributes:
                    out.metas.append((attributes[key].strip().lower(), attributes.get("content", "")))
            robot = attributes.get("name", "").strip().lower()
            if robot == "robots" or robot.endswith("bot"):
                out.robots.append(attributes.get("content", ""))
        elif name == "link":
            if "canonical" in attributes.get("rel", "").lower().split():
                out.canonical = out.canonical or attributes.get("href", "").strip()
        elif name == "html":
            out.language = out.language or attributes.get("lang", "") or attributes.get("xml:lang", "")
        elif "pubdate" in attributes or attributes.get("itemprop", "").lower() == "datepublished":
            out.times.append(attributes.get("datetime", ""))
    if not out.title:
        out.title = next(out.meta_contents(("og:title", "twitter:title")), "")
    return out


def _parse_day(text: str) -> str | None:
    """The day of a date in ISO 8601 or RFC 5322, as ISO 8601."""
    if match := ISO.match(text):
        year, month, day = map(int, match.groups())
    elif parsed := parsedate(text):
        year, month, day = parsed[:3]
    else:
        return None
    try:
        return date(year, month, day).isoformat() if 1990 <= year < 2100 else None
    except ValueError:
        return None


def page_facts(page_head: Head, url: str) -> dict[str, str]:
    """title, and where the page says them: published (a day), author, canonical (absolute), page_language (a tag such as `en-gb`).

    url: the address that the page was got from, which a relative canonical one is relative to.
    """
    out = {"title": page_head.title[:LONGEST]}
    dates = [
        *page_head.meta_contents(PUBLISHED_METAS),
        *(match.group(1) for text in page_head.linked for match in LINKED_DATE.finditer(text)),
        *page_head.times,
    ]
    if day := next(filter(None, map(_parse_day, dates)), None):
        out["published"] = day
    authors = [*page_head.meta_contents(AUTHOR)]
    for text in page_head.linked:
        authors += [
            html.unescape(match.group(1)) for match in LINKED_AUTHOR.finditer(text) if "\\" not in match.group(1)
        ]
    if author := next(
        (" ".join(value.split()) for value in authors if not value.startswith(("http:", "https:", "@", "/"))), ""
    ):
        out["author"] = author[:LONGEST]
    if page_head.canonical:
        try:
            address = urljoin(url, page_head.canonical)
        except ValueError:
            address = ""
        if address.startswith(("http://", "https://")):
            out["canonical"] = address[:2000]
    languages = (page_head.language, *page_head.meta_contents(("content-language", "og:locale")))
    if language := next((each.strip() for each in languages if LANGUAGE.fullmatch(each.strip())), ""):
        out["page_language"] = language.lower().replace("_", "-")
    return out
