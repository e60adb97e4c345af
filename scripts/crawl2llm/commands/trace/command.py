"""What became of a document, and what a training step read.

With a URL or an id: every step that saw the document, what it measured and decided, where its tokens are, and at which steps they were
read. With --step: the documents of that step's batch; with --spike: of the step whose loss stands out most. With --tokens
SHARD:SOURCE:OFFSET (or, of a run of one source, SHARD:OFFSET): the document there. With --until STEP, such as a checkpoint's: what the
model had read by then, by source and host. Runs nothing, and reads single columns.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from crawl2llm.chain import command_line
from crawl2llm.commands.trace import data_order, document, spikes, words
from crawl2llm.commands.trace.data_order import Piece
from crawl2llm.commands.trace.results import Results, add_options, matching_rows, open_results
from crawl2llm.core.errors import InputError
from crawl2llm.formats.documents import open_parquet

Row = dict[str, Any]


def document_report(results: Results, key: str) -> Row:
    """The journey of every document of a URL or id."""
    documents, dropped = document.find_documents(results, key)
    order = data_order.training_order(results) if results.read_manifest(data_order.TRAIN) else None
    return {
        "documents": [
            {"id": row["id"], "steps": list(document.document_journey(results, row, order))} for row in documents
        ],
        "dropped": dropped,
    }


def documents_by_id(results: Results, names: Iterable[str]) -> dict[str, Row]:
    """id → `url, source, text` of documents of the corpus."""
    ids = sorted(set(names))
    rows: dict[str, Row] = {}
    for shard in results.shards:
        path = results.training_table(shard)
        if path.exists() and len(rows) < len(ids):
            rows |= {row["id"]: row for row in matching_rows(path, "id", ids, ["id", "url", "source", "text"])}
    return rows


def step_report(results: Results, step: int) -> Row:
    """The documents whose tokens a step read, in the order of the stream."""
    order = data_order.training_order(results)
    order.check_step(step)
    windows = order.windows_of(step)
    pieces: dict[str, list[Piece]] = {}
    for piece in order.pieces_in(order.places_of(windows)):
        pieces.setdefault(piece.document, []).append(piece)
    about = documents_by_id(results, pieces)
    documents = [document_row(some, about.get(name, {})) for name, some in pieces.items()]
    return {
        "step": step,
        "windows": windows.tolist(),
        "window": order.context + 1,
        "tokens": sum(row["tokens"] for row in documents),
        "documents": documents,
    }


def spike_report(results: Results) -> Row:
    """The steps whose loss stands out, and the documents of the first of them."""
    steepest = spikes.largest_spikes(results)
    return {**step_report(results, steepest[0]["step"]), "spikes": steepest}


def document_row(pieces: Sequence[Piece], about: Row) -> Row:
    """Pieces of a document with its address and the beginning of its text."""
    piece = pieces[0]
    return {
        "id": piece.document, "url": about.get("url"), "source": piece.source, "shard": piece.shard,
        "tokens": sum(each.end - each.start for each in pieces), "stream": [[each.start, each.end] for each in pieces],
        "text": (about.get("text") or "")[: words.TEXT_CHARACTERS],
    }  # fmt: skip


def tokens_report(results: Results, place: str) -> Row:
    """The document at a token of a shard, and the steps that read it."""
    shard, _, rest = place.partition(":")
    source, _, offset = rest.rpartition(":")
    if not offset.isdigit():
        raise InputError(f"--tokens is {place!r}; it is SHARD:OFFSET or SHARD:SOURCE:OFFSET, such as 00000:demo:1234")
    order = data_order.training_order(results)
    base, size, _ = order.file_of(shard, source or None)
    if int(offset) >= size:
        raise InputError(f"--tokens is {place!r}; that dataset has {size:,} tokens")
    token = base + int(offset)
    (piece,) = order.pieces_in([(token, token + 1)])
    about = documents_by_id(results, [piece.document]).get(piece.document, {})
    return {"tokens": place, "document": document_row([piece], about), "read_at": order.steps_reading(token, token + 1)}


def until_report(results: Results, step: int) -> Row:
    """What had been read after a step: tokens, and distinct documents and tokens by source and host."""
    order = data_order.training_order(results)
    order.check_step(step)
    place_changes = np.zeros(len(order.stream) + 1, np.int32)  # where a place that was read begins (+1) and ends (−1)
    read = number_of_windows = 0
    for number in range(order.first, step + 1):
        windows = order.windows_of(number)
        read += len(windows) * (order.context + 1)
        number_of_windows += len(windows)
        for start, end in order.places_of(windows):
            place_changes[start] += 1
            place_changes[end] -= 1
    covered = np.flatnonzero(np.diff(np.concatenate([[0], np.cumsum(place_changes)[:-1] > 0, [0]]).astype(np.int8)))
    pieces = list(order.pieces_in([(int(start), int(end)) for start, end in covered.reshape(-1, 2)]))
    names = {piece.document for piece in pieces}
    host_of = hosts_by_id(results, names)
    totals: dict[str, dict[str, Counter[str]]] = {
        "source": {"documents": Counter(), "tokens": Counter()},
        "host": {"documents": Counter(), "tokens": Counter()},
    }
    counted = set[str]()
    for piece in pieces:
        for grouping, value in (("source", piece.source), ("host", host_of.get(piece.document, ""))):
            totals[grouping]["tokens"][value] += piece.end - piece.start
            totals[grouping]["documents"][value] += piece.document not in counted
        counted.add(piece.document)
    return {
        "until": step,
        "windows": number_of_windows,
        "window": order.context + 1,
        "tokens_read": read,
        "distinct_tokens": sum(totals["source"]["tokens"].values()),
        "documents": len(names),
        **{
            f"by_{part}": {
                name: {"documents": of["documents"][name], "tokens": number}
                for name, number in of["tokens"].most_common()
            }
            for part, of in totals.items()
        },
    }


def hosts_by_id(results: Results, names: set[str]) -> dict[str, str]:
    """id → host of documents of the corpus."""
    host_of = {}
    for shard in results.shards:
        path = results.training_table(shard)
        if path.exists():
            with open_parquet(path) as file:
                for batch in file.iter_batches(columns=["id", "url"]):
                    for name, url in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        if name in names:
                            host_of[name] = urlsplit(url or "").hostname or ""
    return host_of


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm trace",
        __doc__,
        "https://difflib.docs.demo.example/difflib.html\n  crawl2llm trace --step 120\n  crawl2llm trace --tokens 00000:demo:1234 --json",
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("document", nargs="?", help="a URL, as the crawl has it, or a document's id")
    choice.add_argument("--step", type=int, help="a step of pretrain.train")
    choice.add_argument("--spike", action="store_true", help="the step whose loss is farthest above those before it")
    choice.add_argument("--tokens", metavar="SHARD:SOURCE:OFFSET", help="a token of a shard of tokenize.encode")
    choice.add_argument("--until", type=int, metavar="STEP", help="all that was read by the end of a step")
    add_options(parser)
    args = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        results = open_results(args, stack)
        if args.spike:
            report = spike_report(results)
        elif args.step is not None:
            report = step_report(results, args.step)
        elif args.until is not None:
            report = until_report(results, args.until)
        else:
            report = tokens_report(results, args.tokens) if args.tokens else document_report(results, args.document)
        report["stale"] = results.stale_lines()
        texts = words.duplicate_text_lines(results, report) if "documents" in report and "dropped" in report else ()
        return command_line.print_findings(
            args, report, lambda: [*words.answer_lines(report), *texts, *words.stale_lines(report["stale"])]
        )


if __name__ == "__main__":
    raise SystemExit(main())
