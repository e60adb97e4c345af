"""Looks at a sample of files with the readers, the language model and the heuristics of the workflow itself.

A sample is the beginning of some of the files, evenly spread over their list: a few megabytes, read in a bounded time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

from crawl2llm.commands.new.places import NAMES, PREFIX, Source, file_length, take_evenly
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.filters.framework.columns import columns_of_document
from crawl2llm.filters.framework.rules import failed_rules
from crawl2llm.filters.heuristics.measures import Limits, measure_document
from crawl2llm.filters.heuristics.select import rules
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.filters.language import settings as language_settings
from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.stages.ingest.decompress import SUFFIXES, is_tar
from crawl2llm.stages.ingest.extract import source_reader
from crawl2llm.stages.ingest.files import File, FileHead
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.transfer_errors import TransferError
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from crawl2llm.text.stop_words import stop_words_by_language

MOST_FILES, MOST_REMOTE_FILES = 16, 4  # most files of the sample, here and over a network
SECONDS = 30.0  # after which no further file is begun


@dataclass
class Sample:
    """What the sample held. `text_bytes` and `kept_bytes` are bytes of text by language, before and after the heuristics.

    bytes: of the files, as they lie there, that the documents were in.
    """

    files: int = 0
    bytes: int = 0
    documents: Counter[str] = field(default_factory=Counter)
    text_bytes: Counter[str] = field(default_factory=Counter)
    kept_bytes: Counter[str] = field(default_factory=Counter)
    kept_documents: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    example: str = ""  # the first record that was rejected, and why


def sampled_files(files: list[File], number: int) -> list[File]:
    """Up to `number` of the files, evenly spread over the list, empty ones left out."""
    return take_evenly([file for file in files if file_length(file) != 0], number)


def row_count(file: File) -> int:
    """The rows of a Parquet file; 0 if that cannot be read."""
    import pyarrow.parquet as pq

    from crawl2llm.stages.ingest.parquet import DAMAGE_ERRORS

    try:
        with file.open("rb", 0) as stream, pq.ParquetFile(stream) as opened:
            return int(opened.metadata.num_rows)
    except DAMAGE_ERRORS:
        return 0


def count_first_rows(
    pages: Generator[Page | RejectedRecord], count: Callable[[Page | RejectedRecord], int], total: int
) -> float:
    """Count rows until they have PREFIX bytes of text; the share of the file's `total` rows that these are."""
    rows_read = text = 0
    with closing(pages):
        for page in pages:
            rows_read += 1
            text += max(count(page), 100)  # rows without text are not read without end
            if text >= PREFIX:
                return min(rows_read / max(total, rows_read), 1.0)
    return 1.0


def file_beginning(source: Source, file: File) -> tuple[File, float]:
    """(what a reader gets of a file, bytes of the file that this is); of Parquet the whole, for its reader is stopped."""
    size = file_length(file)
    # Of text in one compressed stream only the whole file can be read; of everything else the beginning will do.
    packed = source.kind == "text" and file.suffix.lower() in SUFFIXES and not is_tar(file)
    if source.kind == "parquet" or packed or (size is not None and size <= PREFIX):
        return file, PREFIX if size is None else size
    return FileHead(file, PREFIX), PREFIX


def read_sample(source: Source, seconds: float = SECONDS) -> Sample:
    """Read a sample of the source's files: documents, languages, and what the heuristics would keep.

    Raises InputError, with the URL, for a remote file that cannot be read.
    """
    read = source_reader(ExtractSource.model_validate(source.config_entry()), ExtractSettings())
    identify = Identifier(model_path(language_settings.ScoreSettings().model))
    stop_words, limits = stop_words_by_language({}), Limits()
    heuristics_settings = SelectSettings()
    heuristics_rules = rules(heuristics_settings)
    threshold = language_settings.SelectSettings().threshold
    out, started_at, cpu_before = Sample(), time.monotonic(), time.process_time()
    progress = Progress(None, f"documents of {NAMES[source.kind]}")

    def count_page(page: Page | RejectedRecord) -> int:
        """Count what a reader made; its bytes of text."""
        progress.add()
        if not isinstance(page, Page):
            out.rejected[page.reason] += 1
            place = f"{file}, {page.record_id}" if page.record_id else str(file)
            out.example = out.example or f"{place}: {page.reason} {page.detail}".rstrip()
            return 0
        language, score = identify(page.text)
        language = language if score >= threshold else "unsure"
        size = len(page.text.encode())
        out.documents[language] += 1
        out.text_bytes[language] += size
        measures = columns_of_document(measure_document(page.text, stop_words.get(language), limits))
        if not any(failed_rules(heuristics_rules, measures, heuristics_settings)):
            out.kept_bytes[language] += size
            out.kept_documents[language] += 1
        return size

    for file in sampled_files(list(source.files), MOST_REMOTE_FILES if source.is_remote else MOST_FILES):
        if out.files and time.monotonic() - started_at > seconds:
            break
        if source.is_remote:
            log.info("reading the beginning of %s", file)
        beginning, size = file_beginning(source, file)
        try:
            if source.kind == "parquet":
                pages = cast("Generator[Page | RejectedRecord]", read(beginning, file.name))
                size *= count_first_rows(pages, count_page, row_count(file))
            else:
                for page in read(beginning, file.name):
                    count_page(page)
        except TransferError as error:
            raise InputError(str(error)) from error
        out.files, out.bytes = out.files + 1, out.bytes + round(size)
    out.seconds = time.process_time() - cpu_before  # of one core: the machine may be busy with other things
    return out
