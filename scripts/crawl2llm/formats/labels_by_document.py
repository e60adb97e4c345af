"""The languages that language.score found, by document, for the steps that measure or judge by language."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.formats.documents import parquet_file, rows


def languages_by_id(manifests: Iterable[Path]) -> dict[str, str]:
    """Id → language, of shards in memory. manifests: of language.score; none if nothing is to be looked up."""
    return {row["id"]: row["language"] for path in manifests for row in rows(parquet_file(path), ["id", "language"])}


def language_lookup(manifest: Path, documents: Path) -> Callable[[str], str]:
    """Id → language of a shard's documents; InputError for one that language.score did not see.

    manifest: of the same language.score shard. documents: the manifest that the documents are from.
    """
    languages = languages_by_id([manifest])

    def language_of(identifier: str) -> str:
        if identifier not in languages:
            raise InputError(f"{manifest}: no language for document {identifier} of {documents}")
        return languages[identifier]

    return language_of
