"""The steps of the filter lines."""

from __future__ import annotations

from crawl2llm.chain.step import SELECT, TEXT, Filter, Step

FILTER = Filter({"score": Step(inputs=TEXT, per="shard", exempts=True), "select": SELECT}, edits="score")
