"""The steps of the filter toxicity."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter(
    {"score": Step(inputs={**TEXT, "languages": "language.score"}, per="shard"), "select": SELECT}, after=("language",)
)
