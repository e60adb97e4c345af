"""The step of the stage crawl."""

from __future__ import annotations

from crawl2llm.chain.step import Config, Step


def has_demo_crawl(config: Config) -> bool:
    """Whether a source is the crawl that this stage writes."""
    return any(source["kind"] == "crawl" for source in config["ingest"]["extract"]["sources"])


STEPS = {"crawl.render": Step(is_used=has_demo_crawl)}
