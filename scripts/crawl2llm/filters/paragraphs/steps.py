"""The steps of the filter paragraphs."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "hash": Step(inputs=TEXT, per="shard", exempts=True),
        "repeated": Step(inputs={"hashes": ".hash"}, per="part"),
        "score": Step(inputs={**TEXT, "hashes": ".hash", "repeated": ".repeated"}, per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
