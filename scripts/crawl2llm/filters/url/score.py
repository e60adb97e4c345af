"""Compare the URL of every document with block lists: domains, ends of hosts, addresses, words and regular expressions.

Signals: `id, source, curated, domain, address, expression, words`: the entry that was found of each kind (null: none), and how many listed
words the URL holds. A document without a host in its URL, such as a book, is on no list.
A text that a model wrote of a page is judged by that page's URL.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.phrases import and_more
from crawl2llm.filters.url.lists import Lists, judged_url
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, parquet_file, shard_of, surviving_documents, verdict_file
from crawl2llm.text.group_split import url_host

SUFFIXES_SHOWN = 5  # public suffixes that a note names
SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("curated", pa.bool_()),
        *((name, pa.string()) for name in ("domain", "address", "expression")),
        ("words", pa.int64()),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    lists = Lists(settings)
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    without_host = 0
    with Writer(out, SIGNAL) as writer:
        for row in surviving_documents(
            parquet_file(args.documents),
            verdict_file(args.verdicts, shard),
            ["id", "source", "curated", "url", "metadata"],
        ):
            url = judged_url(row)
            name = url_host(url)
            without_host += name is None
            measures = {
                "domain": lists.listed_domain(name),
                "address": lists.listed_address(url),
                "expression": lists.matching_expression(url),
                "words": len(lists.words_in(url)),
            } if name else {"words": 0}  # fmt: skip
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **measures})
            progress.add()
    manifest.count_all_kept(progress.done)
    notes = [] if any(settings.values()) else ["url.score names no list: no URL was compared."]
    if suffix_entries := sorted(set(lists.listed_public_suffixes)):
        notes.append(
            f"{len(suffix_entries):,} listed domains are public suffixes and block no host below them: "
            f"{and_more(suffix_entries, SUFFIXES_SHOWN)}. Write .{suffix_entries[0]} to block all below it."
        )
    manifest.summary = {"without_host": without_host, "notes": notes}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "url.score", __doc__, f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json"
    )
    surviving_texts.add_options(parser)
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
