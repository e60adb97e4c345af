"""The licence that a page's HTML names, and how it says so."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest

from crawl2llm.stages.ingest.licences import name_of, page_licence
from crawl2llm.stages.ingest.markup import parse_page
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.warc import WarcReader

BY = "https://creativecommons.org/licenses/by/4.0/"
SA = "http://creativecommons.org/licenses/by-sa/3.0/deed.de"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (BY, "cc-by-4.0"),
        (SA, "cc-by-sa-3.0"),
        ("//creativecommons.org/licenses/by-nc-nd/2.0/", "cc-by-nc-nd-2.0"),
        ("https://creativecommons.org/licenses/by/", "cc-by"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "cc0-1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "public-domain"),
        ("https://creativecommons.org/licenses/", ""),
        ("https://creativecommons.org/licenses/bygone/4.0", ""),
        ("https://www.gnu.org/licenses/fdl-1.3.html", "gfdl-1.3"),
        ("https://www.nationalarchives.gov.uk/doc/open-government-licence/version/3/", "ogl-uk-3"),
        ("https://opendatacommons.org/licenses/odbl/1.0/", "odc-odbl-1.0"),
        ("https://opensource.org/licenses/MIT", "mit"),
        ("https://www.apache.org/licenses/LICENSE-2.0", "apache-2.0"),
        ("https://example.org/licenses/by/4.0/", ""),
    ],
)
def test_names(address: str, name: str) -> None:
    assert name_of(address) == name


@pytest.mark.parametrize(
    ("html", "found"),
    [
        (f'<p><a rel="license" href="{BY}">x</a>', {"licence": "cc-by-4.0", "licence_from": "rel"}),
        (f'<link href={BY} rel=LICENSE>', {"licence": "cc-by-4.0", "licence_from": "rel"}),
        (f'<meta name="DC.rights" content="{BY}">', {"licence": "cc-by-4.0", "licence_from": "meta"}),
        (f'<script type="application/ld+json">{{"license": "{BY}"}}</script>', {"licence": "cc-by-4.0", "licence_from": "json_ld"}),
        (
            f'<script type="application/ld+json">{{"license":{{"@type":"x","url":"{BY}"}}}}</script>',
            {"licence": "cc-by-4.0", "licence_from": "json_ld"},
        ),
        (f'<a href="{SA}">x</a> <a href="{BY}">y</a>', {"licence": "cc-by-sa-3.0", "licence_from": "link", "licences_beside": 1}),
        (f'<a href="{SA}">x</a> <a rel="nofollow license" href="{BY}">y</a>', {"licence": "cc-by-4.0", "licence_from": "rel"}),
        (f"The words {BY} in a text are no link.", {}),
        ('<a rel="license" href="/terms">x</a>', {}),
        ("<p>no licence</p>", {}),
    ],
)  # fmt: skip
def test_a_page(html: str, found: dict[str, object]) -> None:
    assert page_licence(html, parse_page(html)) == found


def test_time_is_in_proportion_to_the_page() -> None:
    for part in ("<a ", f'<a href="{BY}', '"license":{"license":', "<meta name=", f"<a {BY} "):
        html = f"ld+json {BY}" + (part * 300_000)[:300_000]
        start = time.process_time()
        page_licence(html, parse_page(html))
        assert time.process_time() - start < 1, part


def test_it_is_written_where_the_key_asks_for_it() -> None:
    """Without the key, which a fingerprint then lacks, metadata is as it was."""
    html = f"<html><body><p>A text of a page that has some words.</p><a rel=license href='{BY}'>CC BY</a></body></html>"

    class Record:
        headers: ClassVar[dict[str, str]] = {
            "WARC-Target-URI": "https://example.org/",
            "WARC-Date": "2024-01-01T00:00:00Z",
        }
        record_id = "a"
        http_headers = None

    source, settings = ExtractSource(name="web", kind="warc"), ExtractSettings(main_content=False)
    plain = WarcReader(source, settings).page_of_html(Record(), html.encode(), "text/html", {})  # type: ignore[arg-type]
    asked = WarcReader(source, settings.model_copy(update={"licence": True})).page_of_html(
        Record(), html.encode(), "text/html", {}
    )  # type: ignore[arg-type]
    said = {"licence": "cc-by-4.0", "licence_from": "rel"}
    assert asked.metadata == {**plain.metadata, **said} and asked.text == plain.text  # type: ignore[union-attr]
