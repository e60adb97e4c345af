"""The steps of the filter substrings."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "sample": Step(TEXT, per="shard", exempts=True),
        "shared": Step((".sample",), per="part"),
        "windows": Step((*TEXT, ".sample", ".shared"), per="shard", exempts=True),
        "repeated": Step((".windows",), per="part"),
        "score": Step((*TEXT, ".sample", ".repeated"), per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
