"""The steps of the filter multilingual."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {"score": Step(inputs={**TEXT, "languages": "language.score"}, per="shard", exempts=True), "select": SELECT},
    after=("language",),
    edits="score",
)
