"""The settings of the filter substrings."""

from typing import Literal

from crawl2llm.core.settings import Settings, section, setting
from crawl2llm.filters.edit_settings import SelectSettings


class SampleSettings(Settings):
    """Samples the words of every document, so that most windows are seen to be there once only."""

    words: int = setting(
        50,
        "Fewest words of a repeated passage: 50 tokens in Lee et al. 2022 and RefinedWeb (arXiv:2306.01116, "
        "section 3.3), there of a byte-pair encoding, so some 38 words.",
        ge=2,
        le=10000,
    )


class SharedSettings(Settings):
    """Finds what is repeated of the sample, over all shards."""


class WindowsSettings(Settings):
    """Hashes the windows of words that may be repeated."""


class RepeatedSettings(Settings):
    """Finds the windows that are repeated, over all shards."""

    keep: Literal["first", "none"] = setting(
        "first", "Keep the first of equal passages, or cut all, as RefinedWeb does."
    )


class ScoreSettings(Settings):
    """Takes the repeated passages out, and measures what is left."""


class SubstringsSettings(Settings):
    """Removes passages of many words that are repeated in the whole corpus, except their first occurrence
    (Lee et al. 2022, arXiv:2107.06499, section 4.1: exact substring duplication). Off unless `filters` lists it.
    """

    sample: SampleSettings = section()
    shared: SharedSettings = section()
    windows: WindowsSettings = section()
    repeated: RepeatedSettings = section()
    score: ScoreSettings = section()
    select: SelectSettings = section()
