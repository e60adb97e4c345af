"""The languages of documents, where topics are by language."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crawl2llm.formats.documents import parquet_file, rows, shard_of


def language_by_id(manifests: Sequence[Path], shard: str) -> dict[str, str]:
    """id → language of a shard's documents by language.score; empty without its manifests."""
    manifest = next((path for path in manifests if shard_of(path) == shard), None)
    return {row["id"]: row["language"] for row in rows(parquet_file(manifest), ["id", "language"])} if manifest else {}
