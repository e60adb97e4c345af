"""The steps of the filter toxicity."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter({"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT}, after=("language",))
