"""The signals of a filter that measures documents one by one: the program `score` of such a filter."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import create_model

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import Settings
from crawl2llm.formats import spans, surviving_texts
from crawl2llm.formats.documents import Writer, parquet_file, shard_of, surviving_documents, verdict_file
from crawl2llm.formats.labels_by_document import language_lookup

Row = dict[str, Any]
S = TypeVar("S", bound=Settings)
IDENTITY = {"id": pa.string(), "source": pa.string(), "curated": pa.bool_()}
SPANS = "spans"  # what a filter that edits measures beside its columns: a list of spans.Span


def signal_schema(**measures: pa.DataType) -> pa.Schema:
    """The columns of a filter's signals: those that say which document it is, and its measures."""
    return pa.schema([*IDENTITY.items(), *measures.items()])


class Measuring(Generic[S]):
    """What measures the documents of a shard. Made once for each shard, so that lists and models are loaded once.

    columns: of the documents (formats/documents.py) that it reads beside `id`, `source`, `curated` and the text.
    reads_texts: whether it reads `text`, as the filters before left it.
    reads_languages: whether it reads `language`, the label of language.score.
    edits: whether it takes parts out of texts. It then measures SPANS too, without overlaps, in characters of `text`; none of a document
    that is `untouched`: of a curated source, or of one that skips the filter.
    """

    columns: tuple[str, ...] = ()
    reads_texts = True
    reads_languages = False
    edits = False

    def __init__(self, settings: S) -> None:
        """settings: of the step."""
        self.settings = settings

    def measure(self, document: Row) -> Row:
        """The measures of a document; a column that is not among them is null."""
        raise NotImplementedError

    def summary(self) -> Row:
        """The manifest's facts of the shard besides its counts."""
        return {}


def measure_shard(
    args: argparse.Namespace, manifest: Manifest, measuring: Measuring[S], schema: pa.Schema, skipped_by: list[str]
) -> list[Path]:
    """Write the signals of a shard, and the spans of a filter that edits: the body of a step."""
    shard = shard_of(args.documents)
    language_of = language_lookup(args.languages, args.documents) if measuring.reads_languages else None
    identity = [name for name in IDENTITY if name in schema.names]
    columns = list(dict.fromkeys([*identity[1:], *measuring.columns]))
    documents = (
        surviving_texts.texts(args.documents, args.verdicts, args.edits, columns, originals=measuring.edits)
        if measuring.reads_texts
        else surviving_documents(parquet_file(args.documents), verdict_file(args.verdicts, shard), columns)
    )
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    files = [args.manifest.with_name(f"{shard}.parquet"), spans.file_of(args.manifest)]
    with ExitStack() as stack:
        writer = stack.enter_context(Writer(files[0], schema))
        places = stack.enter_context(Writer(files[1], spans.SCHEMA)) if measuring.edits else None
        for document in documents:
            if language_of:
                document["language"] = language_of(document["id"])
            if measuring.edits:
                document["untouched"] = document["curated"] or document["source"] in skipped_by
            measures = measuring.measure(document)
            if places:
                for span in measures.pop(SPANS):
                    places.add(spans.original_row(document, span))
            writer.add({**{name: document[name] for name in identity}, **measures})
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = measuring.summary()
    return files if measuring.edits else files[:1]


def program(step: str, doc: str | None, measuring: type[Measuring[S]], schema: pa.Schema) -> Program[Any]:
    """The program of a step that measures documents one by one. doc: the docstring of its module; schema: its columns."""

    def body(args: argparse.Namespace, settings: Any, manifest: Manifest) -> list[Path]:
        skipped_by = settings.skipped_by if measuring.edits else []
        return measure_shard(args, manifest, measuring(settings), schema, skipped_by)

    kinds = (settings_class(step), SkippedBy) if measuring.edits else (settings_class(step),)
    return Program(step, doc, create_model("Task", __base__=kinds), body)
