"""What became of a document: every step that saw it, in their order, with what was measured and decided."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from crawl2llm.chain import filter_order, steps
from crawl2llm.commands.trace.data_order import Reading
from crawl2llm.commands.trace.results import Results, matching, one
from crawl2llm.core.errors import InputError
from crawl2llm.formats.documents import opened
from crawl2llm.text.opcodes import opcodes

Row = dict[str, Any]
DROPPED = ".dropped"  # beside the documents of ingest.extract: what was none, and why
KNOWN = ("id", "source", "curated")  # of signals, what is said once
AROUND = 40  # characters that are shown beside an edit
NEAR = 5  # addresses that are named where one is not there
LONG = 1_000  # characters of an address from which on it is not compared with others


def find(results: Results, key: str) -> tuple[list[Row], list[Row]]:
    """(documents, records that ingest dropped) of an id or a URL. Documents have `shard` and `row`, their place.

    Raises InputError where nothing has it, with the nearest addresses.
    """
    column = "url" if "://" in key or "/" in key or "." in key else "id"
    names = ["id", "text", "source", "curated", "url", "date", "metadata"]
    documents = [
        {**row, "shard": shard}
        for shard, path in results.tables(steps.DOCUMENTS)
        for row in matching(path, column, [key], names)
    ]
    dropped = [
        {**row, "shard": shard}
        for shard, path in results.tables(steps.DOCUMENTS, DROPPED)
        if path.exists()
        for row in matching(
            path, "url" if column == "url" else "record_id", [key], ["file", "record_id", "url", "reason", "detail"]
        )
    ]
    if not documents and not dropped:
        near = nearest(results, key) if column == "url" else []
        raise InputError(
            f"no document has the {column} {key!r}" + (f"; the nearest are {', '.join(near)}" if near else "")
            + ("" if column == "url" else "; an id has 32 hexadecimal digits, a URL is given whole")
        )  # fmt: skip
    return documents, dropped


def nearest(results: Results, url: str) -> list[str]:
    """Addresses of documents that are like a URL: those of its host, if there are any."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    same, others = set[str](), set[str]()
    for _, path in results.tables(steps.DOCUMENTS):
        with opened(path) as file:
            for batch in file.iter_batches(columns=["url"]):
                for found in batch.column("url").to_pylist():
                    (same if found and host and host in found else others).add(found or "")
    some = sorted(same) or (sorted(others)[:20_000] if len(others) < 1_000_000 else [])
    # difflib's time grows with the product of two lengths.
    return difflib.get_close_matches(url[:LONG], [address for address in some if len(address) <= LONG], NEAR, 0.4)


def journey(results: Results, document: Row, reading: Reading | None) -> Iterator[Row]:
    """What each step says of a document, in the steps' order; a row has `step` and what follows from it. document: of `find`.

    reading: of the training, where it has ended.
    """
    name, shard = document["id"], document["shard"]
    yield {
        "step": steps.DOCUMENTS,
        **{key: document[key] for key in ("shard", "row", "source", "curated", "url", "date", "metadata")},
        "characters": len(document["text"]),
    }
    used = filter_order.filters(results.config)
    for step in filter_order.verdicts(used):
        verdict = one(results.table(step, shard), name)
        if verdict is None:
            return
        said: Row = {
            "step": step,
            **{key: verdict[key] for key in verdict if key not in ("id", "row") and verdict[key] is not None},
        }
        stage = steps.stage_of(step)
        for scorer in (f"{stage}.score", f"{stage}.compare", f"{stage}.combine"):
            if scorer in steps.STEPS and (signals := one(results.table(scorer, shard), name)):
                said.setdefault("measures", {}).update(
                    {key: value for key, value in signals.items() if key not in (*KNOWN, "row")}
                )
        edits = filter_order.FILTERS[stage].edits if stage in filter_order.FILTERS else ""
        if edits and (found := spans(results, f"{stage}.{edits}", shard, document)):
            said["spans"] = found
        if keeper := verdict["duplicate_of"]:
            said["keeper"] = kept(results, keeper)
        yield said
        if not verdict["kept"]:
            return
    if split := one(results.table("corpus.split", shard), name):
        yield {
            "step": "corpus.split",
            **{key: split[key] for key in split if key not in ("id", "row") and split[key] is not None},
        }
    if held := one(results.table("corpus.heldout", shard), name):
        yield {
            "step": "corpus.heldout",
            **{key: held[key] for key in held if key not in ("id", "row") and held[key] is not None},
            **({"keeper": kept(results, held["duplicate_of"])} if held["duplicate_of"] else {}),
        }
    if reading and (piece := reading.place(name)):
        base, _, _ = reading.file_of(piece.shard, piece.source)
        yield {
            "step": "tokenize.encode",
            "shard": piece.shard,
            "source": piece.source,
            "tokens": piece.end - piece.start,
            "offset": piece.start - base,
            "stream": [piece.start, piece.end],
        }
        taken = reading.steps(piece.start, piece.end)
        yield {
            "step": "pretrain.train",
            "windows": reading.holding(piece.start, piece.end).tolist(),
            "read_at": taken,
            "of_steps": [reading.first, reading.last],
        }


def spans(results: Results, step: str, shard: str, document: Row) -> list[Row]:
    """What a step removes from a document or replaces, with what stands around it in the original text."""
    path = results.path(step, shard).parent / "spans" / f"{shard}.parquet"
    text, out = document["text"], []
    for row in matching(path, "id", [document["id"]], ["start", "end", "replacement", "rule"]):
        start, end = row["start"], row["end"]
        out.append(
            {
                **{key: row[key] for key in ("rule", "start", "end", "replacement")},
                "before": text[max(0, start - AROUND) : start],
                "removed": text[start:end],
                "after": text[end : end + AROUND],
            }
        )
    return out


def kept(results: Results, name: str) -> Row:
    """The document that another is a duplicate of: `id, url, shard, text`; its id alone where it is of another run."""
    for shard, path in results.tables(steps.DOCUMENTS):
        if row := one(path, name, ["id", "url", "source", "text"]):
            return {**row, "shard": shard}
    return {"id": name}


def beside(one: str, other: str, width: int = 56, most: int = 40) -> list[str]:
    """Two texts side by side, line by line: ` ` the same, `|` changed, `<` in the first alone, `>` in the second alone."""
    left, right = one.splitlines(), other.splitlines()
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
            one_, other_ = (
                (left[first + at] if first + at < last else None),
                (right[begin + at] if begin + at < end else None),
            )
            mark = " " if kind == "equal" else "<" if other_ is None else ">" if one_ is None else "|"
            out.append((mark, one_ or "", other_ or ""))
    lines = [f"{cut(a, width):{width}} {mark} {cut(b, width)}" for mark, a, b in out[:most]]
    return [*lines, *([f"… {len(out) - most:,} more lines"] if len(out) > most else [])]


def cut(text: str, width: int) -> str:
    """The beginning of a text as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"
