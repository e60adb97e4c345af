"""What became of a document: every step that saw it, in their order, with what was measured and decided."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.commands.trace.data_order import DataOrder
from crawl2llm.commands.trace.results import Results, matching_rows, row_of_document
from crawl2llm.core.errors import InputError
from crawl2llm.formats.documents import open_parquet
from crawl2llm.text.opcodes import opcodes

Row = dict[str, Any]
DROPPED_SUFFIX = ".dropped"  # beside the documents of ingest.extract: what was none, and why
COMMON_COLUMNS = ("id", "source", "curated")  # of signals, what is said once
CONTEXT_CHARACTERS = 40  # characters that are shown beside an edit
MOST_ADDRESSES = 5  # addresses that are named where one is not there
LONGEST_ADDRESS = 1_000  # characters of an address from which on it is not compared with others


def find_documents(results: Results, key: str) -> tuple[list[Row], list[Row]]:
    """(documents, records that ingest dropped) of an id or a URL. Documents have `shard` and `row`, their place.

    Raises InputError if nothing has it, with the nearest addresses.
    """
    column = "url" if "://" in key or "/" in key or "." in key else "id"
    names = ["id", "text", "source", "curated", "url", "date", "metadata"]
    documents = [
        {**row, "shard": shard}
        for shard, path in results.shard_tables(DOCUMENTS)
        for row in matching_rows(path, column, [key], names)
    ]
    dropped = [
        {**row, "shard": shard}
        for shard, path in results.shard_tables(DOCUMENTS, DROPPED_SUFFIX)
        if path.exists()
        for row in matching_rows(
            path, "url" if column == "url" else "record_id", [key], ["file", "record_id", "url", "reason", "detail"]
        )
    ]
    if not documents and not dropped:
        similar = nearest_addresses(results, key) if column == "url" else []
        raise InputError(
            f"no document has the {column} {key!r}" + (f"; the nearest are {', '.join(similar)}" if similar else "")
            + ("" if column == "url" else "; an id has 32 hexadecimal digits, a URL is given whole")
        )  # fmt: skip
    return documents, dropped


def nearest_addresses(results: Results, url: str) -> list[str]:
    """Addresses of documents that are like a URL: those of its host, if there are any."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    same_host, other_hosts = set[str](), set[str]()
    for _, path in results.shard_tables(DOCUMENTS):
        with open_parquet(path) as file:
            for batch in file.iter_batches(columns=["url"]):
                for known_url in batch.column("url").to_pylist():
                    (same_host if known_url and host and host in known_url else other_hosts).add(known_url or "")
    candidates = sorted(same_host) or (sorted(other_hosts)[:20_000] if len(other_hosts) < 1_000_000 else [])
    # difflib's time grows with the product of two lengths.
    return difflib.get_close_matches(
        url[:LONGEST_ADDRESS],
        [address for address in candidates if len(address) <= LONGEST_ADDRESS],
        MOST_ADDRESSES,
        0.4,
    )


def document_journey(results: Results, document: Row, reading: DataOrder | None) -> Iterator[Row]:
    """What each step says of a document, in the steps' order; a row has `step` and what follows from it. document: of `find_documents`.

    reading: of the training, if it has ended.
    """
    name, shard = document["id"], document["shard"]
    yield {
        "step": DOCUMENTS,
        **{key: document[key] for key in ("shard", "row", "source", "curated", "url", "date", "metadata")},
        "characters": len(document["text"]),
    }
    filters = filter_order.used_filters(results.config)
    for step in filter_order.verdict_steps(filters):
        verdict = row_of_document(results.shard_table(step, shard), name)
        if verdict is None:
            return
        step_row: Row = {
            "step": step,
            **{key: verdict[key] for key in verdict if key not in ("id", "row") and verdict[key] is not None},
        }
        stage = steps.stage_of(step)
        for scorer in (f"{stage}.score", f"{stage}.compare", f"{stage}.combine"):
            if scorer in steps.STEPS and (signals := row_of_document(results.shard_table(scorer, shard), name)):
                step_row.setdefault("measures", {}).update(
                    {key: value for key, value in signals.items() if key not in (*COMMON_COLUMNS, "row")}
                )
        edits = filter_order.FILTERS[stage].edits if stage in filter_order.FILTERS else ""
        if edits and (removed := removed_spans(results, f"{stage}.{edits}", shard, document)):
            step_row["spans"] = removed
        if keeper := verdict["duplicate_of"]:
            step_row["keeper"] = find_keeper(results, keeper)
        yield step_row
        if not verdict["kept"]:
            return
    if split := row_of_document(results.shard_table("corpus.split", shard), name):
        yield {
            "step": "corpus.split",
            **{key: split[key] for key in split if key not in ("id", "row") and split[key] is not None},
        }
    if heldout := row_of_document(results.shard_table("corpus.heldout", shard), name):
        yield {
            "step": "corpus.heldout",
            **{key: heldout[key] for key in heldout if key not in ("id", "row") and heldout[key] is not None},
            **({"keeper": find_keeper(results, heldout["duplicate_of"])} if heldout["duplicate_of"] else {}),
        }
    if reading and (piece := reading.place_of(name)):
        base, _, _ = reading.file_of(piece.shard, piece.source)
        yield {
            "step": "tokenize.encode",
            "shard": piece.shard,
            "source": piece.source,
            "tokens": piece.end - piece.start,
            "offset": piece.start - base,
            "stream": [piece.start, piece.end],
        }
        steps_read = reading.steps_reading(piece.start, piece.end)
        yield {
            "step": "pretrain.train",
            "windows": reading.reader.windows_holding(piece.start, piece.end).tolist(),
            "read_at": steps_read,
            "of_steps": [reading.first, reading.last],
        }


def removed_spans(results: Results, step: str, shard: str, document: Row) -> list[Row]:
    """What a step removes from a document or replaces, with what stands around it in the original text."""
    path = results.manifest_path(step, shard).parent / "spans" / f"{shard}.parquet"
    text, out = document["text"], []
    for row in matching_rows(path, "id", [document["id"]], ["start", "end", "replacement", "rule"]):
        start, end = row["start"], row["end"]
        out.append(
            {
                **{key: row[key] for key in ("rule", "start", "end", "replacement")},
                "before": text[max(0, start - CONTEXT_CHARACTERS) : start],
                "removed": text[start:end],
                "after": text[end : end + CONTEXT_CHARACTERS],
            }
        )
    return out


def find_keeper(results: Results, name: str) -> Row:
    """The document that another is a duplicate of: `id, url, shard, text`; its id alone where it is of another run."""
    for shard, path in results.shard_tables(DOCUMENTS):
        if row := row_of_document(path, name, ["id", "url", "source", "text"]):
            return {**row, "shard": shard}
    return {"id": name}


def side_by_side(left_text: str, right_text: str, width: int = 56, most: int = 40) -> list[str]:
    """Two texts side by side, line by line: ` ` the same, `|` changed, `<` in the first alone, `>` in the second alone."""
    left, right = left_text.splitlines(), right_text.splitlines()
    out = []
    for kind, first, last, begin, end in opcodes(left, right):
        number = max(last - first, end - begin)
        if kind == "equal" and number > 3:
            out += [
                (" ", left[first], right[begin]),
                (" ", f"… {number - 2:,} equal lines …", ""),
                (" ", left[last - 1], right[end - 1]),
            ]
            continue
        for at in range(number):
            left_line = left[first + at] if first + at < last else None
            right_line = right[begin + at] if begin + at < end else None
            if kind == "equal":
                mark = " "
            elif right_line is None:
                mark = "<"
            else:
                mark = ">" if left_line is None else "|"
            out.append((mark, left_line or "", right_line or ""))
    lines = [f"{shorten_line(a, width):{width}} {mark} {shorten_line(b, width)}" for mark, a, b in out[:most]]
    return [*lines, *([f"… {len(out) - most:,} more lines"] if len(out) > most else [])]


def shorten_line(text: str, width: int) -> str:
    """The beginning of a text as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"
