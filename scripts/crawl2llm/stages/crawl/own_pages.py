"""The project's own pages: prose in many languages and charsets, spam, boilerplate, duplicates and broken answers.

`pages/<language>.yaml` holds the text, `pages/variants.yaml` what is made from it, `site.html` and `plain.html` are the layouts. Each
page has a gold entry {url, language, variant, duplicate_of, charset, declared, status, text}, `text` being the main text that an ideal
extractor would find, one line a paragraph.
"""

from __future__ import annotations

import html
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from crawl2llm.core.errors import InputError
from crawl2llm.stages.crawl.answers import Answer, encode_chunked, gzip_member

FOLDER = Path(__file__).parent / "pages"
BLOCK_TAGS = {"## ": "h2", "- ": "li"}
NO_MAIN_TEXT = {"navigation", "boilerplate"}
KEYS = {"variant", "of", "slug", "date", "title", "banner", "edits", "keep", "language"}


@dataclass(frozen=True)
class Site:
    """What all pages of a language share."""

    language: str
    name: str
    nav: tuple[str, ...] = ()
    related: str = ""
    footer: str = ""
    direction: str = "ltr"
    layout: str = "site"
    titles: tuple[tuple[str, str], ...] = ()  # (slug, title) of its originals, for the list of related pages


@dataclass(frozen=True)
class Page:
    """One page before it is rendered. declared: where its charset is named: `header`, `meta`, `both` or `none`."""

    site: Site
    slug: str
    title: str
    text: str
    variant: str = "original"
    date: str = ""
    charset: str = "utf-8"
    declared: str = "both"
    banner: str = ""
    duplicate_of: str | None = None
    keep: float = 1.0

    @property
    def url(self) -> str:
        """Its address; a slug with a suffix of its own keeps it."""
        suffix = "" if "." in self.slug.rsplit("/", 1)[-1] else ".html"
        return f"https://{self.site.language}.pages.demo.example/{self.slug}{suffix}"


@cache
def read_template(layout: str = "site") -> Template:
    """A layout: `site` has HTML5's sections, `plain` the bare `<div>`s of older pages."""
    return Template((FOLDER / f"{layout}.html").read_text(encoding="utf-8"))


def text_blocks(text: str) -> list[tuple[str, str]]:
    """The text's blocks as (tag, line): `## ` is a heading, `- ` a list item, a blank line ends a paragraph."""
    blocks = []
    for block in text.strip().split("\n\n"):
        for line in block.split("\n") if block.startswith("- ") else [" ".join(block.split("\n"))]:
            tag = next((tag for mark, tag in BLOCK_TAGS.items() if line.startswith(mark)), "p")
            blocks.append((tag, line if tag == "p" else line.lstrip("#- ")))
    return blocks


def gold_text(page: Page) -> str:
    """The page's main text: its title and blocks, one a line; empty if the page is all navigation or boilerplate."""
    if page.variant in NO_MAIN_TEXT or not page.text:
        return ""
    return "\n".join([page.title, *(line for _, line in text_blocks(page.text))])


def link_items(labels: Iterator[tuple[str, str]]) -> str:
    """List items that link to (address, label)."""
    return "\n".join(f'<li><a href="{html.escape(to)}">{html.escape(label)}</a></li>' for to, label in labels)


def render_page(page: Page) -> str:
    """The page as HTML."""
    site, blocks = page.site, text_blocks(page.text)
    lines = [f"<h1>{html.escape(page.title)}</h1>"]
    lines += [f'<p class="date"><time>{html.escape(page.date)}</time></p>'] if page.date else []
    if page.variant == "navigation":
        lines.append(
            "<ul>\n" + link_items((f"/list/{number}", label) for number, (_, label) in enumerate(blocks)) + "\n</ul>"
        )
    else:
        lines += [f"<{tag}>{html.escape(line, quote=False)}</{tag}>" for tag, line in blocks]
    related = [(f"/{slug}.html", title) for slug, title in site.titles if slug != page.slug]
    box = "aside" if site.layout == "site" else "div"
    aside = f"<{box}>\n<h2>{html.escape(site.related)}</h2>\n<ul>\n{link_items(iter(related))}\n</ul>\n</{box}>\n"
    return read_template(site.layout).substitute(
        language=site.language,
        direction=site.direction,
        charset=f'<meta charset="{page.charset}">\n' if page.declared in {"meta", "both"} else "",
        title=html.escape(page.title),
        site=html.escape(site.name),
        description=html.escape(blocks[0][1][:150]),
        navigation=link_items((f"/section/{number}", label) for number, label in enumerate(site.nav)),
        banner=f'<div class="banner">{html.escape(page.banner)}</div>\n' if page.banner else "",
        article="\n".join(lines),
        aside=aside if related else "",
        footer=html.escape(site.footer),
    )


def grey_png() -> bytes:
    """A grey picture of one pixel (PNG specification, https://www.w3.org/TR/png-3/)."""

    def png_chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + png_chunk(b"IDAT", zlib.compress(b"\x00\x80")) + png_chunk(b"IEND", b"")


PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"


def answer_with_gold(page: Page) -> tuple[Answer, dict[str, Any]]:
    """The page as the server's answer, and its gold entry."""
    # A character that the charset lacks becomes a character reference, as browsers' forms and most editors do it.
    body = render_page(page).encode(page.charset, "xmlcharrefreplace") if page.text else b""
    charset = f"; charset={page.charset}" if page.declared in {"header", "both"} else ""
    page_answer = Answer(page.url, body, f"text/html{charset}")
    text = gold_text(page)
    if page.variant == "chunked":
        page_answer = replace(page_answer, body=encode_chunked(body), headers={"Transfer-Encoding": "chunked"})
    elif page.variant == "gzip":
        page_answer = replace(page_answer, body=gzip_member(body), headers={"Content-Encoding": "gzip"})
    elif page.variant == "truncated":
        cut = body[: int(len(body) * page.keep)]
        page_answer = replace(page_answer, body=cut, length=len(body))
        cut_text = cut.decode(page.charset, "ignore")
        text = "\n".join(line for line in text.split("\n") if f"{html.escape(line, quote=False)}</" in cut_text)
    elif page.variant == "redirect":
        moved = f'<html><body>Moved <a href="{page.duplicate_of}">here</a>.</body></html>'.encode()
        page_answer = replace(page_answer, body=moved, status=301, headers={"Location": str(page.duplicate_of)})
        text = ""
    elif page.variant == "not_found":
        page_answer, text = replace(page_answer, status=404), ""
    elif page.variant in {"pdf", "png"}:
        kind = {"pdf": ("application/pdf", PDF), "png": ("image/png", grey_png())}[page.variant]
        page_answer, text = replace(page_answer, content_type=kind[0], body=kind[1]), ""
    gold = {
        "url": page.url,
        "language": page.site.language,
        "variant": page.variant,
        "duplicate_of": page.duplicate_of,
        "charset": page.charset,
        "declared": page.declared,
        "status": page_answer.status,
        "text": text,
    }
    return page_answer, gold


def variant_of(originals: dict[str, Page], entry: dict[str, Any]) -> Page:
    """The page that an entry of variants.yaml asks for. Raises InputError for an unknown original, key or edit."""
    where = f"{FOLDER.name}/variants.yaml, {entry.get('slug')!r}"
    if unknown := set(entry) - KEYS:
        raise InputError(f"{where}: unknown key {', '.join(sorted(unknown))}; known: {', '.join(sorted(KEYS))}")
    if "of" not in entry:
        site = next(page.site for page in originals.values() if page.site.language == entry["language"])
        title = entry.get("title", "")
        return Page(site, entry["slug"], title, title, variant=entry["variant"])
    if entry["of"] not in originals:
        raise InputError(f"{where}: no page {entry['of']!r}; there are {', '.join(originals)}")
    page = originals[entry["of"]]
    text = page.text
    for edit in entry.get("edits", []):
        if edit["find"] not in text:
            raise InputError(f"{where}: {entry['of']} has no {edit['find']!r}")
        text = text.replace(edit["find"], edit["replace"])
    overrides = {key: entry[key] for key in ("date", "title", "banner", "keep") if key in entry}
    return replace(page, slug=entry["slug"], text=text, variant=entry["variant"], duplicate_of=page.url, **overrides)


def read_pages(folder: Path = FOLDER) -> list[Page]:
    """Every own page, languages in alphabetical order, then the variants. Raises InputError for a damaged file."""
    originals: dict[str, Page] = {}
    variants: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise InputError(f"{path}: {error}") from error
        if path.stem == "variants":
            variants = raw
            continue
        pages = raw["pages"]
        site = Site(
            path.stem,
            raw["site"],
            tuple(raw["nav"]),
            raw["related"],
            raw["footer"],
            raw.get("direction", "ltr"),
            raw.get("layout", "site"),
            tuple((slug, page["title"]) for slug, page in pages.items() if "variant" not in page),
        )
        originals |= {f"{path.stem}/{slug}": Page(site, slug, **page) for slug, page in pages.items()}
    return [*originals.values(), *(variant_of(originals, entry) for entry in variants)]
