"""The steps of the filter toxicity."""

from __future__ import annotations

from crawl2llm.chain.step import measuring_filter

FILTER = measuring_filter(reads_languages=True)
