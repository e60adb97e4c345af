"""The steps of the filter licence."""

from __future__ import annotations

from crawl2llm.chain.step import DOCUMENTS, SELECT, VERDICTS_BEFORE, Filter, Step

FILTER = Filter(
    {"score": Step(inputs={"documents": DOCUMENTS, "verdicts": VERDICTS_BEFORE}, per="shard"), "select": SELECT}
)
