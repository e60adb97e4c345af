"""The verdicts of a filter whose rules (rules.py) judge a document by its own measures: the program `select` of such a filter."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import create_model

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.columns import Columns, encode_labels
from crawl2llm.filters.framework.rules import Rules, failed_rules
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import verdict_row

Row = dict[str, Any]
S = TypeVar("S", bound=Settings)


def judge_documents(rules: Rules, columns: Columns, settings: Settings) -> list[Row]:
    """The verdicts on documents. One of a curated source stays, if its table says which are; its verdict lists the rules all the same."""
    stays = columns.truth_values("curated") if columns.has_column("curated") else np.zeros(len(columns), bool)
    failed = failed_rules(rules, columns, settings)
    return [verdict_row(*row) for row in zip(columns.column("id").to_pylist(), failed, stays.tolist(), strict=True)]


def judge_shard(
    args: argparse.Namespace,
    settings: SkippedBy,
    manifest: Manifest,
    rules: Rules,
    languages: Mapping[str, str] | None = None,
    further_signals: Iterable[pa.Table] = (),
    count: Callable[[Row, Row], None] = lambda row, verdict: None,
) -> list[Path]:
    """Write the verdicts of a shard: the body of a step.

    settings: of the task. languages: by id, if a threshold differs by language and the signals do not name it.
    further_signals: tables of other steps, with other columns, of the same documents. count: see `select_shard`.
    """
    tables = list(further_signals)

    def judge_batch(batch: pa.RecordBatch) -> list[Row]:
        ids = batch.column("id")
        labels = (
            batch.column("language")
            if "language" in batch.schema.names
            else pa.array([(languages or {}).get(name, "") for name in ids.to_pylist()], pa.string())
        )
        further = [table.take(pc.index_in(ids, value_set=table["id"].combine_chunks())) for table in tables]
        return judge_documents(rules, Columns([batch, *further], *encode_labels(labels)), settings)

    return select_shard(args.signals, judge_batch, manifest, args.manifest, settings.skipped_by, count)


def program(step: str, doc: str | None, rules_of: Callable[[S], Rules]) -> Program[Any]:
    """The program of a filter's select that has no other input and writes nothing else. rules_of: settings of the step → rules."""

    def body(args: argparse.Namespace, settings: Any, manifest: Manifest) -> list[Path]:
        return judge_shard(args, settings, manifest, rules_of(settings))

    return Program(step, doc, create_model("Task", __base__=(settings_class(step), SkippedBy)), body)
