"""The steps of the filter heuristics."""

from __future__ import annotations

from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.step import TEXT, Config, Filter, Step, skipped_by
from crawl2llm.core import language_codes
from crawl2llm.filters.heuristics.looser_thresholds import LOOSER


def calibrates(config: Config) -> bool:
    """Whether the config names a method."""
    return config["heuristics"]["calibrate"]["method"] is not None


def judges_by_language(config: Config) -> bool:
    """Whether select has to know languages: not where only one gets there, whose thresholds are those for all."""
    if config["heuristics"]["select"]["languages"] or calibrates(config):
        return True
    languages, skipped = config["language"]["select"]["languages"], skipped_by("language.select", config)
    return bool(skipped) or not languages or any(language_codes.lookup_label(LOOSER, name) for name in languages)


def reads_languages_by_language(need: str, config: Config, task: str) -> bool:
    """Languages are read if thresholds differ by language."""
    return need != "language.score" or judges_by_language(config)


def reference_thresholds(config: Config, task: str) -> Config:
    """The thresholds that hold for the language that others are calibrated to."""
    select = tracked_section(config, "heuristics.select")
    return {"select": {key: value for key, value in select.items() if key != "languages"}}


FILTER = Filter(
    {
        "score": Step(inputs={**TEXT, "languages": "language.score"}, per="shard"),
        "calibrate": Step(
            inputs={"signals": ".score", "languages": "language.score"},
            is_used=calibrates,
            extra_settings=reference_thresholds,
            exempts=True,
        ),
        "select": Step(
            inputs={"signals": ".score", "thresholds": ".calibrate", "languages": "language.score"},
            optional=("thresholds", "languages"),
            per="shard",
            reads=reads_languages_by_language,
            exempts=True,
        ),
    },
    after=("language",),
)
