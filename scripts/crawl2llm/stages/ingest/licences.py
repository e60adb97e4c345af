"""The licence that a page's HTML says it is under: by `rel=license`, in meta tags, in JSON-LD, or by a link to a licence.

Names: core/licence_names.py. As C4Corpus (Habernal et al. 2016) and C5 (github.com/BramVanroy/CommonCrawl-CreativeCommons) do, the
address of a licence decides, and no words of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from crawl2llm.core.licence_names import name_of
from crawl2llm.stages.ingest.compiled import Tree
from crawl2llm.stages.ingest.head import CHARACTERS, LONG

# The most certain first: what a page says of itself, then any link in it, which may be about a picture.
LICENCE_PLACES = ("rel", "meta", "json_ld", "link")
# What the addresses of core/licence_names.py hold; to search for words is fast where an expression is not.
HINTS = (
    "creativecommons.org/",
    "gnu.org/licen",
    "gnu.org/copyleft",
    "open-government-licence",
    "opendatacommons.org/",
    "apache.org/licenses",
    "opensource.org/licen",
)
LICENCE_TAGS = ("a", "link", "area", "meta", "script")
MOST = 200_000  # elements that are looked at
LICENCE_JSON = re.compile(
    r'"license"\s{0,20}:\s{0,20}(?:\[\s{0,20})?(?:\{[^{}]{0,300}?"(?:@id|url)"\s{0,20}:\s{0,20})?"([^"]{4,300})"'
)
# Names of meta tags that hold a licence.
METAS = frozenset(
    [
        "license",
        "licence",
        "dc.rights",
        "dc.rights.license",
        "dcterms.rights",
        "dcterms.license",
        "dc.license",
        "og:license",
        "copyright",
        "rights",
        "cc:license",
    ]
)


def _has_hint(text: str) -> bool:
    return any(hint in text for hint in HINTS)


def _named_licences(tree: Tree) -> Iterator[tuple[str, str]]:
    """(how it is said, name of the licence) of a page's elements and JSON-LD, in its order."""
    for name, attributes, text in tree.elements(LICENCE_TAGS, MOST, LONG, CHARACTERS):
        if name == "meta":
            names = {attributes.get(key, "").strip().lower() for key in ("name", "property", "itemprop")}
            if names & METAS:
                yield "meta", name_of(attributes.get("content", ""))
        elif name == "script":
            for match in LICENCE_JSON.finditer(text):
                yield "json_ld", name_of(match[1].replace("\\/", "/"))
        elif _has_hint(attributes.get("href", "")):
            rel = {"license", "licence", "dct:license", "cc:license"} & set(attributes.get("rel", "").lower().split())
            is_rel = rel or attributes.get("property", "").lower().endswith("license")
            yield "rel" if is_rel else "link", name_of(attributes["href"])


def page_licence(html: str, tree: Tree) -> dict[str, str | int]:
    """`licence`, `licence_from` (one of LICENCE_PLACES) and, if others are named in the same way, how many (`licences_beside`); else {}.

    tree: of the page `html`.
    """
    if not _has_hint(html):
        return {}
    names_by_place: dict[str, list[str]] = {how: [] for how in LICENCE_PLACES}
    for how, name in _named_licences(tree):
        if name and name not in names_by_place[how]:
            names_by_place[how].append(name)
    for how, names in names_by_place.items():
        if names:
            beside: dict[str, str | int] = {"licences_beside": len(names) - 1} if len(names) > 1 else {}
            return {"licence": names[0], "licence_from": how, **beside}
    return {}
