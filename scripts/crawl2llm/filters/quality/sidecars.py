"""Sidecars of scores: one column for each scorer of a step, in the order of the documents that got to this filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality.scorers import TRAINED
from crawl2llm.filters.quality.settings import ScorerModel
from crawl2llm.formats.documents import open_parquet, parquet_file, shard_of

IDENTITY_COLUMNS = [("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_())]
LANGUAGE = ("language", pa.string())
CLASSIFIER = "quality.score"  # writes `score`, of TRAINED


def sidecar_schema(names: Sequence[str], language: bool = False) -> pa.Schema:
    """The columns of a sidecar with these scorers: float64, null if a scorer has nothing to say on a document."""
    return pa.schema([*IDENTITY_COLUMNS, *([LANGUAGE] if language else []), *((name, pa.float64()) for name in names)])


def describe_scorers(better_by_name: Mapping[str, str], kind: str) -> dict[str, Any]:
    """What a step's summary says of its scorers: kind, and whether high or low scores are better."""
    return {name: {"kind": kind, "better": better} for name, better in better_by_name.items()}


def better_scores(entries: Sequence[ScorerModel]) -> dict[str, str]:
    """By name of a scorer, whether its high or its low scores are better."""
    return {entry.name: entry.better or "high" for entry in entries}


def read_scorers(manifests: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Scorer → kind and `better`, from one manifest of each step, in this order and by name; TRAINED with a classifier or without."""
    scorers: dict[str, dict[str, Any]] = {}
    for path in manifests:
        manifest = Manifest.read(path)
        step_scorers = (
            {TRAINED: {"kind": "trained", "better": "high"}}
            if manifest.step == CLASSIFIER
            else manifest.summary["scorers"]
        )
        scorers |= step_scorers
    return scorers


def join_sidecars(manifests: Sequence[Path]) -> pa.Table:
    """The scores of a shard: id, source, curated, language (null if no step knows it) and a column for each scorer.

    manifests: one of each step. Raises InputError if two sidecars are not of the same documents.
    """
    table: pa.Table | None = None
    for path in manifests:
        with open_parquet(parquet_file(path)) as file:
            sidecar = file.read()
        if Manifest.read(path).step == CLASSIFIER:
            sidecar = sidecar.rename_columns([TRAINED if name == "score" else name for name in sidecar.column_names])
        if table is None:
            table = sidecar
            continue
        if not table["id"].equals(sidecar["id"]):
            raise InputError(f"{path}: its documents are not those of {manifests[0]}")
        for name in sidecar.column_names:
            if name not in table.column_names:
                table = table.append_column(name, sidecar[name])
    assert table is not None
    if LANGUAGE[0] not in table.column_names:
        table = table.append_column(LANGUAGE[0], pa.nulls(len(table), LANGUAGE[1]))
    return table.combine_chunks()


def scorer_values(table: pa.Table, name: str) -> np.ndarray:
    """A scorer's column as float64; NaN if it is null."""
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=float)


def manifests_by_shard(manifests: Sequence[Path]) -> Iterator[tuple[str, list[Path]]]:
    """(shard, its manifests, one of each step) of the manifests of several steps, each of all shards."""
    shards: dict[str, list[Path]] = {}
    for path in manifests:
        shards.setdefault(shard_of(path), []).append(path)
    yield from sorted(shards.items())
