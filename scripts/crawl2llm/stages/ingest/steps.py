"""The steps of the stage ingest."""

from __future__ import annotations

from crawl2llm.chain import sources
from crawl2llm.chain.file_lists import is_listed
from crawl2llm.chain.step import DOCUMENTS, Config, Step


def has_remote_files(config: Config) -> bool:
    """Whether files of a source are remote."""
    return any(is_listed(source, config["data"]) for source in config["ingest"]["extract"]["sources"])


def copies_remote_files(config: Config) -> bool:
    """Whether remote files are to be copied to the disk first."""
    return bool(config["ingest"]["fetch"]["enabled"]) and has_remote_files(config)


def listing_settings(config: Config, task: str) -> Config:
    """Which sources have remote files, and where."""
    return sources.listing_settings(config)


def fetching_settings(config: Config, task: str) -> Config:
    """Which sources may be web pages, and how many files may be missing."""
    return sources.fetching_settings(config)


STEPS = {
    "ingest.list": Step(is_used=has_remote_files, extra_settings=listing_settings),
    "ingest.fetch": Step(
        inputs={"list": "ingest.list"}, per="shard", is_used=copies_remote_files, extra_settings=fetching_settings
    ),
    DOCUMENTS: Step(
        inputs={
            "crawl": "crawl.render",
            "list": "ingest.list",
            "fetched": "ingest.fetch",
            "synthesized": ("synthesize.rephrase", "synthesize.seed"),
        },
        optional=("crawl", "list", "fetched", "synthesized"),
        per="shard",
    ),
    "ingest.check": Step(inputs={"documents": DOCUMENTS}),
}
