"""The steps of the filter boilerplate."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {
        "count": Step(inputs=TEXT, per="shard", exempts=True),
        "frequent": Step(inputs={"counts": ".count"}, per="part"),
        "score": Step(inputs={**TEXT, "frequent": ".frequent"}, per="shard", exempts=True),
        "select": SELECT,
    },
    edits="score",
)
