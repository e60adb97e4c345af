"""What a filter reads: the texts of the documents that all filters before kept, with their edits applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.formats import spans
from crawl2llm.formats.documents import kept_ids, parquet_file, shard_of, surviving_documents, verdict_file


def manifests_by_step(verdicts: Sequence[Path]) -> list[list[Path]]:
    """The manifests of each step, which lie in one folder, in the order of the steps."""
    paths_by_folder: dict[Path, list[Path]] = {}
    for path in verdicts:
        paths_by_folder.setdefault(path.parent, []).append(path)
    return list(paths_by_folder.values())


def manifest_of_shard(manifests: Sequence[Path], shard: str) -> Path:
    """Of the manifests of one step, that of a shard, or the only one, which is for all shards."""
    return next((path for path in manifests if path.name == f"{shard}.manifest.json"), manifests[0])


def count_documents(documents: Path, verdicts: Path) -> int:
    """How many documents of a shard got here. documents, verdicts: manifests."""
    return len(kept_ids(verdict_file(verdicts, shard_of(documents))))


def texts(
    documents: Path, verdicts: Path, edits: Sequence[Path], columns: list[str], originals: bool = False
) -> Iterator[dict[str, Any]]:
    """A shard's documents that got here, in its order, with the columns `id`, `text` and `columns`; the paths are of manifests.

    originals: each row also has `original`, what turns a place in its text into one of the document's (spans.EditedText).
    """
    shard = shard_of(documents)
    spans_by_id = spans.read(edits, shard)
    for row in surviving_documents(parquet_file(documents), verdict_file(verdicts, shard), ["id", "text", *columns]):
        if originals or row["id"] in spans_by_id:
            edited_text = spans.EditedText(row["text"], spans_by_id.get(row["id"], []))
            row["text"] = edited_text.text
            if originals:
                row["original"] = edited_text.original_range
        yield row
