"""The steps of the filter boilerplate."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "count": Step(TEXT, per="shard", exempts=True),
        "frequent": Step((".count",), per="part"),
        "score": Step((*TEXT, ".frequent"), per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
