"""Edits of texts: what a filter removes or replaces, in a file of its own. The documents stay as they are.

A span is in characters (Unicode code points) of the original text, so that every edit can be traced, and edits of several filters can be
compared. A filter that reads edited text turns its own places back with `EditedText.original_range`. `corpus.write` applies all spans for
good; the filters in between read through them (formats/surviving_texts.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.step import stage_of
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats.documents import batches, sidecar_file

SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # of the document
        ("start", pa.int64()),  # first character, from 0
        ("end", pa.int64()),  # the character after the last
        ("replacement", pa.string()),  # what stands there instead; empty: removed
        ("rule", pa.string()),
    ]
)


@dataclass(frozen=True)
class Span:
    """`text[start:end]` of an original text, and what stands there instead. stage: the filter that says so."""

    start: int
    end: int
    replacement: str = ""
    rule: str = ""
    stage: str = ""


def original_row(row: dict[str, Any], span: Span) -> dict[str, Any]:
    """A row of SCHEMA for a span of a document's text as a filter reads it. row: of surviving_texts.texts(…, originals=True)."""
    start, end = row["original"](span.start, span.end)
    return {"id": row["id"], "start": start, "end": end, "replacement": span.replacement, "rule": span.rule}


def file_of(manifest: Path) -> Path:
    """Where a step that edits writes the spans of its shard: spans/<shard>.parquet beside its manifest."""
    return sidecar_file(manifest, "spans")


def read(manifests: Iterable[Path], shard: str, wanted: pa.Array | None = None) -> dict[str, list[Span]]:
    """The spans of a shard's documents by id, of all steps that edit, in the steps' order. Held in memory: one shard's.

    manifests: of this shard, or of all. wanted: the ids of documents; None: all. Raises ManifestError if a step's manifest of this
    shard is not among them.
    """
    spans_by_id: dict[str, list[Span]] = {}
    paths = list(manifests)
    for folder in dict.fromkeys(path.parent for path in paths):
        path = folder / f"{shard}.manifest.json"
        if path not in paths:
            raise ManifestError(f"--edits lacks {path}: the texts of shard {shard} would be read without these edits")
        manifest = Manifest.read(path)
        selected = batches(manifest.file(f"spans/{shard}.parquet"))
        if wanted is not None:
            selected = (part.filter(pc.is_in(part["id"], value_set=wanted)) for part in selected)
        for row in (row for part in selected for row in part.to_pylist()):
            name = row.pop("id")
            spans_by_id.setdefault(name, []).append(Span(**row, stage=stage_of(manifest.step)))
    return spans_by_id


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in the text's order, without overlaps: of two that share a character, the later filter's stays, over both places."""
    out: list[Span] = []
    order = sorted(enumerate(spans), key=lambda item: (item[1].start, item[1].end, item[0]))
    last = -1  # which of the filters' spans the newest in `out` is
    for number, span in order:
        if out and (span.start < out[-1].end or (span.start, span.end) == (out[-1].start, out[-1].end)):
            before = out.pop()
            stays = span if number > last else before
            last = max(number, last)
            end = max(before.end, span.end)
            out.append(Span(before.start, end, stays.replacement, stays.rule, stays.stage))
        else:
            out.append(span)
            last = number
    return out


class EditedText:
    """A text with spans applied: `text` is what is left."""

    def __init__(self, original: str, spans: Iterable[Span]) -> None:
        self.spans = merge_spans(spans)
        self.starts: list[int] = []  # of each span's replacement, in the edited text
        parts, at, length = [], 0, 0
        for span in self.spans:
            parts += [original[at : span.start], span.replacement]
            length += span.start - at
            self.starts.append(length)
            length += len(span.replacement)
            at = span.end
        self.text = "".join([*parts, original[at:]])

    def original_range(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original text of `text[start:end]`; a replacement that it cuts belongs to it as a whole."""
        return self._original_offset(start, False), self._original_offset(end, True)

    def _original_offset(self, at: int, is_end: bool) -> int:
        """Where a place between two characters of `text` lies in the original. What was removed there lies inside a longer span."""
        number = (bisect_right(self.starts, at) if not is_end else bisect_right(self.starts, at - 1)) - 1
        if number < 0:
            return at
        span, begin = self.spans[number], self.starts[number]
        inside = at - begin
        if inside < len(span.replacement) and not is_end:
            return span.start
        if is_end and inside <= len(span.replacement):
            return span.end
        return span.end + inside - len(span.replacement)


def count_spans(spans: Iterable[Span], original: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(stage, rule) → how many spans of a document, and how many bytes of UTF-8 they take away."""
    counts: dict[tuple[str, str], dict[str, Any]] = {}
    for span in merge_spans(spans):
        entry = counts.setdefault((span.stage, span.rule), {"documents": 1, "spans": 0, "bytes": 0})
        entry["spans"] += 1
        entry["bytes"] += len(original[span.start : span.end].encode()) - len(span.replacement.encode())
    return counts
