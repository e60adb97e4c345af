"""What a filter that only removes took out of a document, and what is left (framework/edit_rules.py: whether that is too little).

Signals: `id, source, curated, taken` (units, such as lines, that were taken out), `removed` (share of the characters that are in them),
`words` and `characters` (left).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.spans import SCHEMA, EditedText, Span, file_of, original_row
from crawl2llm.text.c4_lines import count_words
from crawl2llm.text.characters import SPACELESS

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        ("taken", pa.int64()),
        ("removed", pa.float64()),
        ("words", pa.int64()),
        ("characters", pa.int64()),
    ]
)


def edit_signals(row: dict[str, Any], spans: Sequence[Span]) -> dict[str, Any]:
    """The signals of a document. row: its `id`, `source`, `curated` and `text`. spans: what is taken out of that text, without overlaps."""
    text = row["text"]
    remaining = EditedText(text, spans).text if spans else text
    words = count_words(remaining) if SPACELESS.search(remaining) else len(remaining.split())
    return {
        **{key: row[key] for key in ("id", "source", "curated")},
        "removed": sum(span.end - span.start for span in spans) / max(1, len(text)),
        "words": words,
        "characters": len(remaining.strip()),
    }


class EditWriter:
    """Writes the spans and the signals of a shard. Use as a context manager; files: what it wrote."""

    def __init__(self, manifest: Path) -> None:
        """manifest: the path of the task's."""
        self.files = [manifest.with_name(f"{shard_of(manifest)}.parquet"), file_of(manifest)]
        self.writers = [Writer(self.files[0], SIGNAL), Writer(self.files[1], SCHEMA)]
        self.documents = self.edited_documents = self.removed_units = 0

    def __enter__(self) -> EditWriter:
        for writer in self.writers:
            writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for writer in self.writers:
            writer.__exit__(kind, *rest)

    def add_document(self, row: dict[str, Any], spans: Sequence[Span], removed_units: int) -> None:
        """Add a document of surviving_texts.texts(…, originals=True). spans: see `edit_signals`. removed_units: in these places."""
        for span in spans:
            self.writers[1].add(original_row(row, span))
        self.writers[0].add({**edit_signals(row, spans), "taken": removed_units})
        self.documents += 1
        self.edited_documents += bool(spans)
        self.removed_units += removed_units

    def fill_manifest(self, manifest: Manifest, unit: str) -> None:
        """Counts and summary. unit: the units that were taken out, in the plural."""
        manifest.count_all_kept(self.documents)
        manifest.summary = {"edited": self.edited_documents, "taken": {unit: self.removed_units}}
