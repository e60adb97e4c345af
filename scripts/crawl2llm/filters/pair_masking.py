"""Settings of filters for the steps that make pairs: pairs are masked and searched as documents are."""

from __future__ import annotations

from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.filter_order import DECONTAMINATE, used_filters
from crawl2llm.chain.step import Config
from crawl2llm.core.settings import Number, Settings, optional, setting
from crawl2llm.filters.pii.settings import PiiSettings


class GuardSettings(Settings):
    """Settings for a step that makes pairs, of the filter `decontaminate`."""

    overlap_max: Number | None = setting(..., "That of `decontaminate.select`.")


class MaskingSettings(Settings):
    """Settings of filters for a step that makes pairs; None of one that the run does not use."""

    pii: PiiSettings | None = optional("Those of the filter.")
    decontaminate: GuardSettings | None = optional("Those that say what counts as an item of an evaluation set.")


def masking_settings(config: Config, task: str) -> Config:
    """A run may mask, search for evaluation sets, or both."""
    settings: Config = {}
    if "pii" in config["filters"]:
        settings["pii"] = {name: tracked_section(config, f"pii.{name}") for name in ("score", "select")}
    if DECONTAMINATE in used_filters(config):
        settings[DECONTAMINATE] = {"overlap_max": config[DECONTAMINATE]["select"]["overlap_max"]}
    return settings
