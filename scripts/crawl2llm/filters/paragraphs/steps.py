"""The steps of the filter paragraphs."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "hash": Step(TEXT, per="shard", exempts=True),
        "repeated": Step((".hash",), per="part"),
        "score": Step((*TEXT, ".hash", ".repeated"), per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
