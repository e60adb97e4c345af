"""What the questions of `crawl2llm trace` cost on a large corpus: a document by its URL and by its id, and a text in the corpus.

    python -m benchmarks.trace --documents 1000000                            # writes benchmarks/results/trace.json

`--texts` are JSON Lines with `text`, also compressed (else the C4 sample of $CRAWL2LLM_DATA), whose rows are repeated under other ids and
addresses. Documents lie in `--shards` files as ingest.extract writes them, in a folder that is removed, and verdicts of 15 filters beside
them. The index of `who-wrote` is measured on `--indexed` documents of which no two are alike. Seconds are those of the clock, on one core,
with files that were just written; the floor is reading the column.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import documents
from benchmarks.machine import processor, versions
from crawl2llm.commands.trace import index
from crawl2llm.commands.trace.attribution import (
    COLUMNS,
    TextQuery,
    documents_of_files,
    likely_documents,
    search_documents,
)
from crawl2llm.commands.trace.results import matching_rows
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import DOCUMENT, Writer, document_id, verdict_table

FILTERS = 15
SEARCHED = 20_000  # documents that a text is looked for in, at most


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return round(time.perf_counter() - start, 3), found


def address(number: int) -> str:
    """Of a document."""
    return f"https://host{number % 5000}.example/page/{number}.html"


def of_index(folder: Path, texts: list[str], number: int) -> dict[str, Any]:
    """What an index costs, and a question of it. Every sixth word of a document is its own, so that no other has a run of eight with it."""

    def text(document: int) -> str:
        words = texts[document % len(texts)].split()
        return " ".join(word if place % 6 else f"n{document}" for place, word in enumerate(words))

    folder.mkdir()
    files, words = [], 0
    for first in range(0, number, 10_000):
        files.append(folder / f"{first:08d}.parquet")
        own = range(first, min(first + 10_000, number))
        documents.written(files[-1], own, map(text, own))
        words += sum(len(texts[document % len(texts)].split()) for document in own)
    built, _ = timed(lambda: index.build_index(folder / "index", files, "benchmark"))
    wanted = " ".join(text(number // 2).split()[10:60])

    def question() -> list[Any]:
        found = index.open_index(folder / "index", files, "benchmark")
        assert found is not None
        return search_documents(
            TextQuery(wanted, index.SURE_WORDS), found.document_rows(likely_documents(found, wanted)[0], COLUMNS)
        )[0]

    seconds, runs = timed(question)
    assert [one.number for one in runs] == [len(TextQuery(wanted, index.SURE_WORDS).words)]
    size = sum(path.stat().st_size for path in (folder / "index").iterdir())
    return {
        "documents": number,
        "words": words,
        "build_seconds": built,
        "milliseconds_a_document": round(1000 * built / number, 3),
        "bytes_a_word": round(size / words, 2),
        "question_seconds": seconds,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    documents.options(parser)
    parser.add_argument("--indexed", type=int, default=200_000)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/trace.json")
    args = parser.parse_args(argv)
    texts = documents.texts(args.texts)
    with tempfile.TemporaryDirectory() as name:
        files, verdicts = [], []
        for shard in range(args.shards):
            files.append(Path(name) / f"{shard:05d}.parquet")
            verdicts.append(Path(name) / f"verdicts-{shard:05d}.parquet")
            own = range(shard, args.documents, args.shards)
            repeated = (texts[number % len(texts)] for number in own)
            ids = documents.written(files[-1], own, repeated, url=pa.array(map(address, own), pa.string()))["id"]
            judged_all = verdict_table({"id": ids, "kept": pa.array([True] * len(ids))})
            with Writer(verdicts[-1], judged_all.schema) as writer:
                writer.add_table(judged_all)
        last = args.documents - 1
        url, wanted = address(last), document_id(str(last))

        def lookup(column: str, value: str) -> list[dict[str, Any]]:
            return [row for path in files for row in matching_rows(path, column, [value], DOCUMENT.names)]

        by_url, found = timed(lambda: lookup("url", url))
        assert [row["id"] for row in found] == [wanted]
        by_id, _ = timed(lambda: lookup("id", wanted))
        judged, _ = timed(
            lambda: [list(matching_rows(verdicts[-1], "id", [wanted], ["id", "kept"])) for _ in range(FILTERS)]
        )
        floor, _ = timed(lambda: [pq.read_table(path, columns=["url"]) for path in files])
        some = files[: max(1, SEARCHED * args.shards // args.documents)]
        looked = sum(pq.read_metadata(path).num_rows for path in some)
        text = TextQuery(" ".join(texts[0].split()[10:60]), 8)
        wrote, (runs, _) = timed(lambda: search_documents(text, documents_of_files(some)))
        assert runs
        size = sum(path.stat().st_size for path in files)
        indexed = of_index(Path(name) / "apart", texts, args.indexed)
    result = {
        "documents": args.documents,
        "bytes": size,
        "seconds": {"by_url": by_url, "by_id": by_id, "verdicts_of_15_filters": judged},
        "floor_seconds": {"read the column url": floor},
        "who_wrote": {
            "documents": looked,
            "seconds": wrote,
            "milliseconds_a_document": round(1000 * wrote / looked, 3),
        },
        "who_wrote_by_index": indexed,
        "versions": versions("pyarrow"),
        "hardware": {"processor": processor()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
