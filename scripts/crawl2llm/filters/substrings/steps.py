"""The steps of the filter substrings."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "sample": Step(inputs=TEXT, per="shard", exempts=True),
        "shared": Step(inputs={"samples": ".sample"}, per="part"),
        "windows": Step(inputs={**TEXT, "sample": ".sample", "shared": ".shared"}, per="shard", exempts=True),
        "repeated": Step(inputs={"windows": ".windows"}, per="part"),
        "score": Step(inputs={**TEXT, "sample": ".sample", "repeated": ".repeated"}, per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
