"""Settings of filters for the steps that make pairs: pairs are masked and searched as documents are."""

from __future__ import annotations

from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.filter_order import DECONTAMINATE, used_filters
from crawl2llm.chain.step import Config


def masking_settings(config: Config, task: str) -> Config:
    """A run may mask, search for evaluation sets, or both."""
    settings: Config = {}
    if "pii" in config["filters"]:
        settings["pii"] = {name: tracked_section(config, f"pii.{name}") for name in ("score", "select")}
    if DECONTAMINATE in used_filters(config):
        settings[DECONTAMINATE] = {"overlap_max": config[DECONTAMINATE]["select"]["overlap_max"]}
    return settings
