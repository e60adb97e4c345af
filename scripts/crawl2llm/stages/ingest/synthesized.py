"""Reads the texts that synthesize.rephrase and synthesize.seed write, as documents that know what they were made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from crawl2llm.formats.documents import rows
from crawl2llm.stages.ingest.files import File
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.text_check import why_not_text
from crawl2llm.stages.ingest.warc import Page, RejectedRecord

# Of a text that a model wrote. metadata: JSON, as text/group_split.py reads it.
TEXT = pa.schema([(name, pa.string()) for name in ("id", "text", "url", "metadata")])


def file_of(number: int) -> str:
    """The name of a file of texts. A bare number would be a shard's, and go if there are fewer shards (workflow/stale_results.py)."""
    return f"texts-{number:05d}.parquet"


class SynthesizedReader:
    """Files of TEXT; ids are those that the texts were given when they were made."""

    def __init__(self, source: ExtractSource, settings: ExtractSettings) -> None:
        self.least = settings.min_characters

    def __call__(self, path: File, file: str = "") -> Iterator[Page | RejectedRecord]:
        """Every text of the file. Raises ManifestError for a damaged one."""
        assert isinstance(path, Path)
        for row in rows(path):
            if len(row["text"]) < self.least:
                yield RejectedRecord("no_text", row["id"], row["url"], f"{len(row['text'])} characters")
                continue
            if why := why_not_text(row["text"]):
                yield RejectedRecord("not_text", row["id"], row["url"], why)
                continue
            yield Page(row["id"], row["text"], row["url"], None, json.loads(row["metadata"]))
