"""The steps of the filter sourcecode."""

from __future__ import annotations

from crawl2llm.chain.step import Filter

FILTER = Filter()
