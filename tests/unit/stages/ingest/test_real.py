"""Captures by real crawlers, sound and broken: every file is read and every record accounted for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest.warcs import ids, read, reasons

DATA = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
pytestmark = pytest.mark.skipif(
    not (DATA / "warc-real").is_dir(),
    reason=f"no captures at {DATA}: set CRAWL2LLM_DATA to a folder that has warc-real",
)

# As many as warcio reads, and those behind the damage where it gives up.
RECORDS = {
    "BL-20140325121225068-00000-32090~opera~8443.warc.gz": 190,
    "BL-20140325122341434-00000-32090~opera~8443.warc.gz": 190,
    "IAH-urls-wget.warc.gz": 36,
    "example.docs.warc.gz": 21,
    "example.txt.warc.gz": 6,
    "example.warc.gz": 822,
    "flashfrozen-jwat-recompressed.warc.gz": 82,
    "pywb-example-wget-1-14.warc.gz": 6,
    "pywb-example-wpull.warc.gz": 4,
    "pywb-example.warc": 6,
    "pywb-example.warc.gz": 6,
    "pywb-example2.warc.gz": 3,
    "pywb-httpbin-resource.warc.gz": 1,
    "pywb-iana.warc.gz": 343,
    "sample-0000.warc.gz": 48,
    "sample-0001.warc.gz": 34,
    "warcfile.warc.gz": 50,
    "warcfile.warc.lz4": 50,
    "warcio-example.warc": 6,
    "warcio-example.warc.gz": 6,
    "whirlwind.warc.gz": 4,
    "whirlwind.warc.wat.gz": 2,
    "whirlwind.warc.wet.gz": 2,
    "aut-issue-493.warc": 32,
    "block-sized-records.warc.gz": 3,
    "cc_net-sample.warc.wet": 4,
    "clueweb-quirk.warc.gz": 30,
    "pywb-example-bad.warc.gz.bad": 6,
    "pywb-example-extra.warc": 6,
    "pywb-missing-status-text.warc": 1,
    "swb-transfer_compression_gzip_chunked.warc.gz": 3,
    "swb-transfer_compression_none_truncated.warc.gz": 3,
    "wad-IAH-20080430204825-00000-blackbook-truncated.warc.gz": 23,
    "wad-transfer_compression_gzip.warc.gz": 5,
    "wad-truncated_datetime.warc": 5,
    "warcio-example-bad-non-chunked.warc.gz": 6,
    "warcio-example-space-in-target-uri.warc.gz": 2,
    "warcio-example-trunc.warc": 4,
    "warcio-post-test.warc.gz": 6,
}
# Of ARC, whose records have no id, what is made of them. Where warcio reads a file to its end it finds as many records.
EXAMPLE = {"type_warcinfo": 1, "page": 1}
ARC = {
    "example.arc.gz": {
        "not_html": 157, "page": 93, "status_404": 40, "status_302": 5, "status_301": 2, "type_warcinfo": 1, "no_text": 1,
        "empty_body": 1,
    },
    "pywb-example.arc": EXAMPLE,
    "pywb-example.arc.gz": EXAMPLE,
    "warcio-example.arc": EXAMPLE,
    "warcio-example.arc.gz": EXAMPLE,
    # A date that is `null`, and the file's end: the records between and before are read; warcio stops at the first record.
    "aut-badexample.arc.gz": {"not_html": 2, "broken_record": 2, "empty_body": 2, "type_warcinfo": 1},
    "pywb-bad.arc": {"broken_record": 2, "empty_body": 1},
    "warcio-bad.arc": {"broken_record": 2, "empty_body": 1},
}  # fmt: skip
FILES = sorted(path for folder in ("warc-real", "warc-broken") for path in (DATA / folder).glob("*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_record_of_the_file_is_a_page_or_has_a_reason(path: Path) -> None:
    found = read(path, max_body_bytes=20_000_000)
    records = len(ids(found))
    if path.name in ARC:
        assert reasons(found) == ARC[path.name]
        return
    assert records == RECORDS[path.name]
    assert len(found) == records + sum(isinstance(each, RejectedRecord) and not each.record_id for each in found)
    for each in found:
        if isinstance(each, Page):
            assert each.text.strip() and each.text.encode()


def pages(name: str) -> list[Page]:
    folder = next(path.parent for path in FILES if path.name == name)
    return [each for each in read(folder / name) if isinstance(each, Page)]


def test_same_capture_in_other_containers() -> None:
    for one, other in (
        ("warcfile.warc.gz", "warcfile.warc.lz4"),
        ("pywb-example.warc", "pywb-example.warc.gz"),
        ("warcio-example.warc", "warcio-example.warc.gz"),
        ("warcio-example.warc", "warcio-example-bad-non-chunked.warc.gz"),
    ):
        assert [page.text for page in pages(one)] == [page.text for page in pages(other)] != []


def test_wet_with_bare_line_feeds_and_wrong_lengths() -> None:
    assert [page.url for page in pages("cc_net-sample.warc.wet")] == [
        "http://sample_english.com",
        "http://sample_chinese.zh",
        "http://sample_russian.ru",
    ]


def test_http_headers_with_bare_line_feeds() -> None:
    found = pages("clueweb-quirk.warc.gz")
    assert len(found) == 29 and {page.metadata["charset"] for page in found} == {"euc-jp"}


def test_bodies_that_are_not_as_chunked_as_their_header_says() -> None:
    assert all("�" not in page.text for page in pages("pywb-iana.warc.gz"))
    assert len(pages("pywb-iana.warc.gz")) == 16
