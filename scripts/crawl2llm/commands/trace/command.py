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
from crawl2llm.commands.trace.results import Results, matching, opened_results, options
from crawl2llm.core.errors import InputError
from crawl2llm.formats.documents import opened

Row = dict[str, Any]


def of_document(results: Results, key: str) -> Row:
    """The journey of every document of a URL or id."""
    found, dropped = document.find(results, key)
    order = data_order.of(results) if results.made(data_order.TRAIN) else None
    return {
        "documents": [{"id": one["id"], "steps": list(document.journey(results, one, order))} for one in found],
        "dropped": dropped,
    }


def known(results: Results, names: Iterable[str]) -> dict[str, Row]:
    """id → `url, source, text` of documents of the corpus."""
    wanted = sorted(set(names))
    found: dict[str, Row] = {}
    for shard in results.shards:
        path = results.train(shard)
        if path.exists() and len(found) < len(wanted):
            found |= {row["id"]: row for row in matching(path, "id", wanted, ["id", "url", "source", "text"])}
    return found


def of_step(results: Results, step: int) -> Row:
    """The documents whose tokens a step read, in the order of the stream."""
    order = data_order.of(results)
    order.check(step)
    windows = order.windows(step)
    pieces: dict[str, list[Piece]] = {}
    for piece in order.documents(order.places(windows)):
        pieces.setdefault(piece.document, []).append(piece)
    about = known(results, pieces)
    documents = [described(some, about.get(name, {})) for name, some in pieces.items()]
    return {
        "step": step,
        "windows": windows.tolist(),
        "window": order.context + 1,
        "tokens": sum(one["tokens"] for one in documents),
        "documents": documents,
    }


def of_spike(results: Results) -> Row:
    """The steps whose loss stands out, and the documents of the first of them."""
    found = spikes.largest(results)
    return {**of_step(results, found[0]["step"]), "spikes": found}


def described(pieces: Sequence[Piece], about: Row) -> Row:
    """Pieces of a document with its address and the beginning of its text."""
    piece = pieces[0]
    return {
        "id": piece.document, "url": about.get("url"), "source": piece.source, "shard": piece.shard,
        "tokens": sum(each.end - each.start for each in pieces), "stream": [[each.start, each.end] for each in pieces],
        "text": (about.get("text") or "")[: words.BEGINNING],
    }  # fmt: skip


def of_tokens(results: Results, place: str) -> Row:
    """The document at a token of a shard, and the steps that read it."""
    shard, _, rest = place.partition(":")
    source, _, offset = rest.rpartition(":")
    if not offset.isdigit():
        raise InputError(f"--tokens is {place!r}; it is SHARD:OFFSET or SHARD:SOURCE:OFFSET, such as 00000:demo:1234")
    order = data_order.of(results)
    base, size, _ = order.file_of(shard, source or None)
    if int(offset) >= size:
        raise InputError(f"--tokens is {place!r}; that dataset has {size:,} tokens")
    at = base + int(offset)
    (piece,) = order.documents([(at, at + 1)])
    about = known(results, [piece.document]).get(piece.document, {})
    return {"tokens": place, "document": described([piece], about), "read_at": order.steps(at, at + 1)}


def until(results: Results, step: int) -> Row:
    """What had been read after a step: tokens, and distinct documents and tokens by source and host."""
    order = data_order.of(results)
    order.check(step)
    seen = np.zeros(len(order.stream) + 1, np.int32)  # where a place that was read begins (+1) and ends (−1)
    read = number_of_windows = 0
    for number in range(order.first, step + 1):
        windows = order.windows(number)
        read += len(windows) * (order.context + 1)
        number_of_windows += len(windows)
        for start, end in order.places(windows):
            seen[start] += 1
            seen[end] -= 1
    covered = np.flatnonzero(np.diff(np.concatenate([[0], np.cumsum(seen)[:-1] > 0, [0]]).astype(np.int8)))
    pieces = list(order.documents([(int(start), int(end)) for start, end in covered.reshape(-1, 2)]))
    names = {piece.document for piece in pieces}
    host_of = hosts(results, names)
    by: dict[str, dict[str, Counter[str]]] = {
        "source": {"documents": Counter(), "tokens": Counter()},
        "host": {"documents": Counter(), "tokens": Counter()},
    }
    counted = set[str]()
    for piece in pieces:
        for what, value in (("source", piece.source), ("host", host_of.get(piece.document, ""))):
            by[what]["tokens"][value] += piece.end - piece.start
            by[what]["documents"][value] += piece.document not in counted
        counted.add(piece.document)
    return {
        "until": step,
        "windows": number_of_windows,
        "window": order.context + 1,
        "tokens_read": read,
        "distinct_tokens": sum(by["source"]["tokens"].values()),
        "documents": len(names),
        **{
            f"by_{what}": {
                name: {"documents": of["documents"][name], "tokens": number}
                for name, number in of["tokens"].most_common()
            }
            for what, of in by.items()
        },
    }


def hosts(results: Results, names: set[str]) -> dict[str, str]:
    """id → host of documents of the corpus."""
    found = {}
    for shard in results.shards:
        path = results.train(shard)
        if path.exists():
            with opened(path) as file:
                for batch in file.iter_batches(columns=["id", "url"]):
                    for name, url in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        if name in names:
                            found[name] = urlsplit(url or "").hostname or ""
    return found


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described(
        "crawl2llm trace",
        __doc__,
        "https://difflib.docs.demo.example/difflib.html\n  crawl2llm trace --step 120\n  crawl2llm trace --tokens 00000:demo:1234 --json",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("document", nargs="?", help="a URL, as the crawl has it, or a document's id")
    what.add_argument("--step", type=int, help="a step of pretrain.train")
    what.add_argument("--spike", action="store_true", help="the step whose loss is farthest above those before it")
    what.add_argument("--tokens", metavar="SHARD:SOURCE:OFFSET", help="a token of a shard of tokenize.encode")
    what.add_argument("--until", type=int, metavar="STEP", help="all that was read by the end of a step")
    options(parser)
    args = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        results = opened_results(args, stack)
        if args.spike:
            found = of_spike(results)
        elif args.step is not None:
            found = of_step(results, args.step)
        elif args.until is not None:
            found = until(results, args.until)
        else:
            found = of_tokens(results, args.tokens) if args.tokens else of_document(results, args.document)
        found["stale"] = results.stale()
        texts = words.both_texts(results, found) if "documents" in found and "dropped" in found else ()
        return command_line.show(
            args, found, lambda: [*words.lines(found), *texts, *words.lines_of_stale(found["stale"])]
        )


if __name__ == "__main__":
    raise SystemExit(main())
